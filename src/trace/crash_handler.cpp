#include "trace/crash_handler.hpp"

#include <cxxabi.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <typeinfo>
#include <utility>

#include "base/exception_text.hpp"
#include "os/system_error.hpp"
#include "trace/clocks.hpp"
#include "trace/crash_writer.hpp"
#include "trace/process_record.hpp"
#include "trace/process_record_reader.hpp"

namespace strata::trace {
namespace {

constexpr std::array kCrashSignals{SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

/// What the handler needs, in memory that is there before any constructor runs.
struct HandlerState {
  /// Written by install_crash_handler() before the handlers are there.
  std::atomic<RecordLayout*> record{nullptr};
  std::atomic<long> pid{0};
  /// Id of the thread that crashes; taken with a compare-exchange by the first.
  std::atomic<long> thread{0};
  /// Signal that it crashes with.
  std::atomic<int> signal{0};
  /// CLOCK_MONOTONIC; 0: no crash. Written by the thread that crashes, read by any, relaxed.
  std::atomic<std::uint64_t> since_ns{0};
  /// Says what the thread that crashes is doing; may be null.
  std::atomic<CrashNote> note{nullptr};
  /// The handlers that were there before, in the order of kCrashSignals. Written before ours is
  /// installed, so that ours finds it however early it is called.
  std::array<struct sigaction, kCrashSignals.size()> previous{};
};
constinit HandlerState state;

std::terminate_handler previous_terminate = nullptr;

/// Ends the process by the signal, whatever is installed, masked or inherited.
[[noreturn]] void die(int signal) noexcept {
  struct sigaction action = {};
  action.sa_handler = SIG_DFL;
  sigaction(signal, &action, nullptr);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  syscall(SYS_tgkill, syscall(SYS_getpid), syscall(SYS_gettid), signal);
  // The first process of a container survives its own signals.
  syscall(SYS_exit_group, 128 + signal);
  __builtin_unreachable();
}

/// Calls the handler that ours has replaced, if there was one.
void call_previous(int signal, siginfo_t* info, void* context) noexcept {
  for (std::size_t i = 0; i < kCrashSignals.size(); ++i) {
    if (kCrashSignals[i] != signal) continue;
    const struct sigaction& previous = state.previous[i];
    if ((previous.sa_flags & SA_SIGINFO) != 0) {
      if (previous.sa_sigaction != nullptr) previous.sa_sigaction(signal, info, context);
    } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
      previous.sa_handler(signal);
    }
  }
}

/// For a thread that crashes while another writes: the process ends soon. Should it not, since a
/// handler that ours called has jumped out of it, this thread dies of its own signal.
[[noreturn]] void wait_for_the_end(int signal) noexcept {
  constexpr std::uint64_t kPatience = 10'000'000'000;
  const std::uint64_t begin = monotonic_ns();
  while (monotonic_ns() - begin < kPatience) {
    const timespec pause{.tv_sec = 0, .tv_nsec = 10'000'000};
    syscall(SYS_nanosleep, &pause, nullptr);
  }
  die(signal);
}

void on_crash(int signal, siginfo_t* info, void* context) noexcept {
  // A forked child is not the process that the record is about.
  if (syscall(SYS_getpid) != state.pid.load(std::memory_order_relaxed)) {
    call_previous(signal, info, context);
    die(signal);
  }
  const long self = syscall(SYS_gettid);
  long nobody = 0;
  if (!state.thread.compare_exchange_strong(nobody, self, std::memory_order_acq_rel)) {
    if (nobody != self) wait_for_the_end(signal);
    // What we do here has crashed, or a handler that we called has, or it has called us again.
    die(state.signal.load(std::memory_order_relaxed));
  }
  state.signal.store(signal, std::memory_order_relaxed);
  RecordLayout& record = *state.record.load(std::memory_order_acquire);
  const std::uint64_t now = monotonic_ns();
  record.crash.since_ns.store(now, std::memory_order_relaxed);
  state.since_ns.store(now, std::memory_order_relaxed);
  write_crash(record, signal, *info, context, state.note.load(std::memory_order_relaxed));
  call_previous(signal, info, context);
  die(signal);
}

/// Keeps what an uncaught exception says, then does what would have been done without us.
[[noreturn]] void on_terminate() noexcept {
  static std::atomic<bool> taken{false};
  RecordLayout* const record = state.record.load(std::memory_order_acquire);
  const bool ours = record != nullptr && getpid() == state.pid.load(std::memory_order_relaxed);
  if (ours && !taken.exchange(true, std::memory_order_relaxed)) {
    try {
      std::string text = "terminate called";
      if (const std::type_info* const type = abi::__cxa_current_exception_type()) {
        text = "uncaught exception of type " + base::type_text(*type);
        try {
          throw;
        } catch (const std::exception& error) {
          text += ": ";
          text += error.what();
        } catch (...) {
          // Its type is all that it says.
        }
      }
      write_crash_text(record->crash, text.data(), text.size());
    } catch (...) {
      // No memory for the text; the crash itself will be seen.
    }
  }
  if (previous_terminate != nullptr) previous_terminate();
  std::abort();
}

void install_handlers() {
  struct sigaction action = {};
  action.sa_sigaction = on_crash;
  // Nothing else interrupts the handler; a crash inside it does, and ends the process at once.
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigfillset(&action.sa_mask);
  for (const int signal : kCrashSignals)
    sigdelset(&action.sa_mask, signal);
  for (std::size_t i = 0; i < kCrashSignals.size(); ++i) {
    struct sigaction current = {};
    if (sigaction(kCrashSignals[i], nullptr, &current) != 0) {
      os::throw_errno("can't look at the crash handlers");
    }
    const bool ours = (current.sa_flags & SA_SIGINFO) != 0 && current.sa_sigaction == on_crash;
    if (ours) continue;
    state.previous[i] = current;
    if (sigaction(kCrashSignals[i], &action, nullptr) != 0) {
      os::throw_errno("can't install a crash handler");
    }
  }
  if (std::get_terminate() != on_terminate) previous_terminate = std::set_terminate(on_terminate);
}

std::size_t page_size() noexcept { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

AlternateStack::AlternateStack() {
  stack_t current = {};
  if (sigaltstack(nullptr, &current) != 0) os::throw_errno("can't look at the alternate stack");
  if ((current.ss_flags & SS_DISABLE) == 0 && current.ss_size >= kBytes) return;
  const std::size_t page = page_size();
  os::Mapping mapping = os::Mapping::anonymous(kBytes + page);
  // The guard: what overflows this stack too dies there instead of in somebody's memory.
  if (mprotect(mapping.data(), page, PROT_NONE) != 0) {
    os::throw_errno("can't protect the end of an alternate stack");
  }
  stack_t stack = {};
  stack.ss_sp = mapping.data() + page;
  stack.ss_size = kBytes;
  if (sigaltstack(&stack, nullptr) != 0) os::throw_errno("can't set an alternate stack");
  mapping_ = std::move(mapping);
  previous_ = current;
}

AlternateStack::~AlternateStack() {
  // What was there before comes back, unless somebody has put another one in its place.
  stack_t current = {};
  if (!mapping_ || sigaltstack(nullptr, &current) != 0) return;
  if (current.ss_sp == mapping_->data() + page_size()) sigaltstack(&previous_, nullptr);
}

void install_crash_handler(ProcessRecord& record) {
  // For ever: the thread may run until the process ends.
  static AlternateStack* const stack = new AlternateStack;
  (void)stack;
  warm_up_unwinder();
  state.pid.store(syscall(SYS_getpid), std::memory_order_relaxed);
  state.record.store(&record.layout(), std::memory_order_release);
  install_handlers();
}

ProcessRecord* early_crash_handler() noexcept {
  static ProcessRecord* const record = []() noexcept -> ProcessRecord* {
    if (std::getenv(kWorkerToken) == nullptr) return nullptr;
    try {
      // A descriptor that is something else stays as it is, and open.
      (void)ProcessRecordReader(kRecordDescriptor);
      auto* const attached =
          new ProcessRecord(ProcessRecord::attach(os::UniqueFd(kRecordDescriptor)));
      install_crash_handler(*attached);
      return attached;
    } catch (...) {
      return nullptr;
    }
  }();
  return record;
}

void set_crash_note(CrashNote note) noexcept { state.note.store(note, std::memory_order_relaxed); }

std::optional<std::chrono::nanoseconds> crash_in_progress_since() noexcept {
  const std::uint64_t since = state.since_ns.load(std::memory_order_relaxed);
  if (since == 0) return std::nullopt;
  return std::chrono::nanoseconds(static_cast<std::int64_t>(since));
}

}  // namespace strata::trace
