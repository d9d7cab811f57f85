// A Strata program whose workers are looked at:
//
//   pool_program deaths WORKERS COUNT
//       runs COUNT tasks that end their worker by _exit(7), in turn on each of the workers, says
//       "ready", and waits for ever.
//   pool_program pools|spins WORKERS THREADS
//       each worker has one task with so many threads in stuck_in_a_pool(), one that blocks all
//       signals, in stuck_behind_a_mask(), one in sleeps_for_good(), and one that holds the locks
//       of the loader and of stdio, in stuck_with_locks(); for `spins` also one that computes
//       without end, in stuck_in_a_spin(). Says "ready" once they are all there, as the kernel has
//       it. SIGUSR1 to the
//       program lets them go; then it says "sum N, disturbed M": how many threads ended as they
//       should, and how many sleeps were cut short.
#include <link.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "strata/strata.hpp"

namespace {

using namespace std::chrono_literals;

/// What all processes share, in one buffer.
enum class Word : std::uint8_t { ready, go, sum, disturbed };
constexpr std::int64_t kWords = 4;

std::atomic_ref<std::int64_t> word(std::int64_t* words, Word which) {
  return std::atomic_ref(words[static_cast<std::size_t>(which)]);
}

void wait_for(std::int64_t* words, Word which, std::int64_t value) {
  while (word(words, which).load() != value)
    std::this_thread::sleep_for(1ms);
}

// Of one task: its threads wait for this process alone.
std::atomic<unsigned> let_go{0};
std::atomic<pid_t> sleeper{0};
std::atomic<bool> spinning{false};
volatile unsigned turns = 0;

}  // namespace

// What the tests look for in stacks. Each does something after its call, so that none is the last
// thing in it and becomes a jump.
extern "C" {
__attribute__((noinline)) void waits_to_be_let_go() {
  while (let_go.load() == 0) {
    ::syscall(SYS_futex, &let_go, FUTEX_WAIT_PRIVATE, 0U, nullptr);
    turns = turns + 1;
  }
}
__attribute__((noinline)) void stuck_in_a_pool() {
  waits_to_be_let_go();
  turns = turns + 1;
}
__attribute__((noinline)) void stuck_behind_a_mask() {
  sigset_t all;
  sigfillset(&all);
  (void)pthread_sigmask(SIG_BLOCK, &all, nullptr);
  waits_to_be_let_go();
  turns = turns + 1;
}
__attribute__((noinline)) void stuck_with_locks() {
  flockfile(stdout);
  (void)dl_iterate_phdr(
      [](dl_phdr_info*, std::size_t, void*) {
        waits_to_be_let_go();
        turns = turns + 1;
        return 1;
      },
      nullptr);
  funlockfile(stdout);
}
__attribute__((noinline)) void stuck_in_a_spin() {
  while (let_go.load() == 0) {
    turns = turns + 1;
    spinning.store(true);
  }
}
/// A sleep that does not last is what its caller did not ask for.
__attribute__((noinline)) int sleeps_for_good() {
  sleeper.store(static_cast<pid_t>(::syscall(SYS_gettid)));
  const timespec time{.tv_sec = 100'000, .tv_nsec = 0};
  const int result = ::nanosleep(&time, nullptr);
  turns = turns + 1;
  return result;
}
}

namespace {

const strata::WorkerFunction kFall("fall", [](strata::WorkerTask&) { ::_exit(7); });

/// What the kernel says of each thread: the number of its system call, and the arguments.
std::map<pid_t, std::string> calls_of_threads() {
  std::map<pid_t, std::string> calls;
  std::error_code error;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", error)) {
    std::string call;
    std::getline(std::ifstream(thread.path() / "syscall"), call);
    calls[std::atoi(thread.path().filename().c_str())] = call;
  }
  return calls;
}

/// Whether so many threads wait to be let go, one sleeps, and one spins if it is to.
bool all_are_stuck(std::int64_t waiting, bool spins) {
  std::array<char, 64> wait{};
  std::snprintf(wait.data(), wait.size(), "%d %p ", SYS_futex, static_cast<void*>(&let_go));
  const auto calls = calls_of_threads();
  const auto sleep = calls.find(sleeper.load());
  if (sleep == calls.end() || (spins && !spinning.load())) return false;
  const long sleeps_in = std::atol(sleep->second.c_str());
  if (sleeps_in != SYS_clock_nanosleep && sleeps_in != SYS_nanosleep) return false;
  return std::ranges::count_if(calls, [&](const auto& call) {
           return call.second.starts_with(wait.data());
         }) == waiting;
}

const strata::WorkerFunction kFillPool("fill_pool", [](strata::WorkerTask& task) {
  auto* const words = task.data<std::int64_t>(0);
  const auto count = task.scalar<std::int64_t>(0);
  const bool spins = task.scalar<std::int64_t>(1) != 0;
  const auto run = [words](auto function) {
    return std::thread([words, function] {
      function();
      word(words, Word::sum).fetch_add(1);
    });
  };
  std::vector<std::thread> pool;
  pool.reserve(static_cast<std::size_t>(count) + 3);
  for (std::int64_t i = 0; i < count; ++i)
    pool.push_back(run(stuck_in_a_pool));
  pool.push_back(run(stuck_behind_a_mask));
  pool.push_back(run(stuck_with_locks));
  if (spins) pool.push_back(run(stuck_in_a_spin));
  std::thread([words] {
    (void)sleeps_for_good();
    word(words, Word::disturbed).fetch_add(1);
  }).detach();
  while (!all_are_stuck(count + 2, spins))
    std::this_thread::sleep_for(1ms);
  word(words, Word::ready).fetch_add(1);
  wait_for(words, Word::go, 1);
  let_go.store(1);
  ::syscall(SYS_futex, &let_go, FUTEX_WAKE_PRIVATE, INT32_MAX);
  for (std::thread& thread : pool)
    thread.join();
});

void say(const char* text) {
  std::puts(text);
  std::fflush(stdout);
}

strata::WorkerOptions options_for(unsigned workers) {
  return {.name = "pools",
          .subs = {{.count = workers, .program = strata::WorkerProgram::this_program}}};
}

[[noreturn]] void deaths(unsigned workers, unsigned count) {
  strata::Worker worker(options_for(workers));
  const auto callable = worker.add(strata::Callable::in_program("fall"));
  worker.init();
  for (unsigned i = 0; i < count; ++i) {
    try {
      worker.run([&](strata::Orchestration& o) {
        o.submit(strata::Call(callable), on(worker.sub(i % workers)), strata::named("falls"));
      });
    } catch (const strata::Error&) {
      // As it should be.
    }
  }
  say("ready");
  for (;;)
    ::pause();
}

int pools(unsigned workers, unsigned threads, bool spins) {
  sigset_t go;
  sigemptyset(&go);
  sigaddset(&go, SIGUSR1);
  (void)pthread_sigmask(SIG_BLOCK, &go, nullptr);
  strata::Worker worker(options_for(workers));
  const auto callable = worker.add(strata::Callable::in_program("fill_pool"));
  strata::Buffer shared = worker.create_buffer(kWords * sizeof(std::int64_t));
  std::int64_t* const words = shared.as<std::int64_t>().data();
  worker.init();
  const strata::Run run = worker.submit([&](strata::Orchestration& o) {
    for (unsigned i = 0; i < workers; ++i)
      o.submit(strata::Call(callable), no_dep(inout(shared.tensor(strata::DType::int64, {kWords}))),
               strata::scalar(std::int64_t{threads}), strata::scalar(std::int64_t{spins}),
               on(worker.sub(i)), strata::named("fills"));
  });
  wait_for(words, Word::ready, workers);
  say("ready");
  int signal = 0;
  (void)sigwait(&go, &signal);
  word(words, Word::go).store(1);
  run.result();
  std::printf("sum %ld, disturbed %ld\n", word(words, Word::sum).load(),
              word(words, Word::disturbed).load());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const strata::ProcessScope scope(argc, argv);
  if (argc != 4) return 2;
  const auto number = [&](int i) {
    return static_cast<unsigned>(std::strtoul(argv[i], nullptr, 10));
  };
  const std::string_view what = argv[1];
  if (what == "deaths") deaths(number(2), number(3));
  if (what == "pools" || what == "spins") return pools(number(2), number(3), what == "spins");
  return 2;
}
