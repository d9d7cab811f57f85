// Crashes in the way that its argument names, with a process record as descriptor 5. Its crash
// handler is installed as a worker process does: early where STRATA_WORKER_TOKEN is set, in main
// elsewhere. The functions that crash have C linkage and are never inlined, so that their names are
// in the stack.
#undef NDEBUG
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cassert>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

#include "trace/crash_handler.hpp"
#include "trace/process_record.hpp"
#include "trace/recorder.hpp"

using strata::trace::AlternateStack;
using strata::trace::ProcessRecord;
using strata::trace::ProcessState;

#define CRASHES extern "C" __attribute__((noinline))

CRASHES void strata_test_null_write(volatile int* at) { *at = 1; }

CRASHES int strata_test_overflow(int depth) {
  volatile char room[4096];
  room[0] = static_cast<char>(depth);
  if (depth < 0) return room[0];
  return strata_test_overflow(depth + 1) + room[0];  // Not a tail call.
}

CRASHES void strata_test_abort() { std::abort(); }

CRASHES void strata_test_assert(int value) { assert(value == 42 && "the answer"); }

CRASHES int strata_test_divide(volatile int* by) { return 7 / *by; }

CRASHES void strata_test_trap() { __builtin_trap(); }

CRASHES void strata_test_past_end() {
  // A mapping of two pages whose file has one.
  const int fd = memfd_create("short", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, 4096) != 0) std::_Exit(3);
  void* const at = mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  static_cast<volatile char*>(at)[4096] = 1;
}

CRASHES void strata_test_throw(std::size_t bytes) {
  throw std::runtime_error("the cause: " + std::string(bytes, 'x'));
}

CRASHES void strata_test_call(void (*function)()) {
  function();
  std::_Exit(3);  // Keeps the call from being the last thing here.
}

namespace {

volatile int* volatile nowhere = nullptr;

void say(const char* text) { (void)!write(STDERR_FILENO, text, std::strlen(text)); }

void null_write() { strata_test_null_write(nowhere); }

/// Crashes inside fork(), where glibc holds the locks of all of malloc's arenas: the system call
/// that makes the child raises SIGSYS instead, whose handler does not return.
void crash_in_malloc() {
  struct sigaction action = {};
  action.sa_handler = [](int) { null_write(); };
  sigaction(SIGSYS, &action, nullptr);
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  std::array<sock_filter, 5> program{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fork, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  sock_fprog filter{.len = program.size(), .filter = program.data()};
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) std::_Exit(3);
  (void)fork();
  std::_Exit(3);
}

/// A handler as a library has it: says that it ran, and calls the one before.
struct sigaction before_library = {};
void library_handler(int signal, siginfo_t* info, void* context) {
  say("library's handler\n");
  if ((before_library.sa_flags & SA_SIGINFO) != 0) {
    before_library.sa_sigaction(signal, info, context);
  }
}
void install_library_handler() {
  struct sigaction action = {};
  action.sa_sigaction = library_handler;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, &before_library);
}

void two_threads() {
  std::atomic<int> ready{0};
  const auto body = [&ready] {
    const AlternateStack stack;
    ready.fetch_add(1);
    while (ready.load() < 2) {
    }
    null_write();
  };
  std::thread first(body);
  std::thread second(body);
  first.join();
  second.join();
}

void forked_child() {
  const pid_t child = fork();
  if (child == 0) null_write();
  int status = 0;
  waitpid(child, &status, 0);
  std::_Exit(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV ? 0 : 3);
}

/// What the library does when it is loaded decides.
void load(const std::string& path) {
  if (dlopen(path.c_str(), RTLD_NOW) == nullptr) say(dlerror());
}

void catch_and_go_on() {
  static sigjmp_buf back;
  struct sigaction action = {};
  action.sa_handler = [](int) { siglongjmp(back, 1); };
  sigaction(SIGSEGV, &action, nullptr);
  if (sigsetjmp(back, 1) == 0) null_write();
  std::_Exit(0);
}

void run(const std::string& how, ProcessRecord& record) {
  const std::map<std::string, void (*)()> ways = {
      {"null_write", null_write},
      {"overflow", [] { strata_test_overflow(0); }},
      {"overflow_in_thread",
       [] {
         std::thread([] {
           const AlternateStack stack;
           strata_test_overflow(0);
         }).join();
       }},
      {"abort", strata_test_abort},
      {"assert", [] { strata_test_assert(41); }},
      {"divide",
       [] {
         volatile int zero = 0;
         std::_Exit(strata_test_divide(&zero));
       }},
      {"trap", strata_test_trap},
      {"past_end", strata_test_past_end},
      {"uncaught", [] { strata_test_throw(10); }},
      {"uncaught_long", [] { strata_test_throw(100'000); }},
      {"uncaught_int", [] { throw 42; }},
      {"call_null",
       [] {
         void (*volatile function)() = nullptr;
         strata_test_call(function);
       }},
      {"in_malloc", crash_in_malloc},
      {"two_threads", two_threads},
      {"note",
       [] {
         strata::trace::set_crash_note([](char* to, std::size_t bytes) {
           constexpr std::string_view kText = "kernel 'add', block 3 of 7";
           if (bytes < kText.size()) return std::size_t{0};
           std::memcpy(to, kText.data(), kText.size());
           return kText.size();
         });
         null_write();
       }},
      {"note_crashes",
       [] {
         strata::trace::set_crash_note([](char*, std::size_t) {
           *nowhere = 1;
           return std::size_t{1};
         });
         strata_test_abort();
       }},
      {"forked_child", forked_child},
      {"recovers", catch_and_go_on},
      {"no_core",
       [] {
         const rlimit none{0, 0};
         setrlimit(RLIMIT_CORE, &none);
         null_write();
       }},
      {"library_after",
       [] {
         install_library_handler();
         null_write();
       }},
      {"library_before", null_write},
      {"library_around",
       [] {
         install_library_handler();  // For the second time: it calls us, and we call it.
         null_write();
       }},
      {"default_after",
       [] {
         signal(SIGSEGV, SIG_DFL);
         null_write();
       }},
      {"handler_crashes", null_write},
      {"handler_hangs", null_write},
      {"blocked",
       [] {
         sigset_t all;
         sigfillset(&all);
         pthread_sigmask(SIG_SETMASK, &all, nullptr);
         std::abort();
       }},
      {"wait",
       [] {
         say("ready\n");
         while (true)
           pause();
       }},
  };
  record.begin_task(5, "the task", "crash_driver");
  if (how.starts_with("load:")) return load(how.substr(5));
  ways.at(how)();
}

/// Before any handler of ours, as a library that is linked in does it.
void prepare(std::string_view how) {
  if (how == "library_before" || how == "library_around") install_library_handler();
  if (how == "handler_hangs") {
    struct sigaction action = {};
    action.sa_handler = [](int) {
      say(strata::trace::crash_in_progress_since() ? "crash in progress\n" : "nothing known\n");
      while (true)
        pause();
    };
    sigaction(SIGSEGV, &action, nullptr);
  }
  if (how == "handler_crashes") {
    struct sigaction action = {};
    action.sa_handler = [](int) {
      say("crashes now\n");
      raise(SIGBUS);
    };
    sigaction(SIGSEGV, &action, nullptr);
  }
}

}  // namespace

__attribute__((constructor(101))) static void early() {
  (void)strata::trace::early_crash_handler();
}

/// Stands for a static initialiser of the user's.
__attribute__((constructor(200))) static void crash_in_constructor() {
  if (std::getenv("STRATA_TEST_CRASH_IN_CONSTRUCTOR") == nullptr) return;
  null_write();
  std::_Exit(3);  // Keeps the call from being the last thing here.
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  prepare(argv[1]);
  ProcessRecord* record = strata::trace::early_crash_handler();
  if (record == nullptr) {
    record = new ProcessRecord(
        ProcessRecord::attach(strata::os::UniqueFd(strata::trace::kRecordDescriptor)));
    strata::trace::install_crash_handler(*record);
  }
  strata::trace::record_into(*record);
  record->set_state(ProcessState::running);
  record->set_step("crash");
  for (std::uint64_t task = 1; task <= 4; ++task) {
    record->begin_task(task, "warm-up", "crash_driver");
    record->end_task();
  }
  run(argv[1], *record);
  return 3;
}
