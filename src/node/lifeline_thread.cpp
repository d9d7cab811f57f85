#include "node/lifeline_thread.hpp"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "node/protocol.hpp"
#include "os/cpu.hpp"
#include "os/deadline.hpp"
#include "strata/error.hpp"
#include "trace/crash_handler.hpp"
#include "trace/stack_board.hpp"

namespace strata::node {
namespace {

using std::chrono::nanoseconds;
using namespace std::chrono_literals;

/// Addresses, not memory: pages are touched as they are needed. Thread-local storage of the program
/// and its libraries lies there too.
constexpr std::size_t kStackBytes = std::size_t{1} << 20U;
/// How often it looks for what no descriptor tells.
constexpr int kLookMs = 1000;
/// A crash handler that takes longer hangs.
constexpr nanoseconds kCrashLimit = 5s;
/// How long the main thread may take to end the process.
constexpr nanoseconds kEndLimit = 3s;
/// How long a start that was called off may go on.
constexpr nanoseconds kStartLimit = 500ms;

[[noreturn]] void end_process() noexcept {
  for (;;)
    syscall(SYS_kill, getpid(), SIGKILL);
}

bool is_over(std::int64_t since_ns, nanoseconds limit) noexcept {
  return since_ns != 0 && os::monotonic_now_ns() - since_ns > limit.count();
}

/// What the thread knows.
struct Lifeline {
  WorkerShared* shared = nullptr;
  std::int64_t stop_since_ns = 0;

  void stop(Stop how) noexcept {
    if (stop_since_ns == 0) stop_since_ns = os::monotonic_now_ns();
    shared->ask_to_stop(how);
  }
  void take_messages() noexcept;
  void end_what_hangs() const noexcept;
  [[noreturn]] void run() noexcept;
};

void Lifeline::take_messages() noexcept {
  for (;;) {
    const ipc::LifelineMessage message = ipc::receive_lifeline(kLifelineFd);
    switch (message.kind) {
      case ipc::LifelineKind::query:
        // A parent that does not read has no answer; it is not waited for.
        (void)ipc::send_answer(kLifelineFd, message.id, what_are_you_doing(*shared->record));
        break;
      case ipc::LifelineKind::stop:
        stop(message.stop == ipc::StopKind::now ? Stop::now : Stop::drain);
        break;
      case ipc::LifelineKind::nothing:
        return;
      case ipc::LifelineKind::answer:  // Not ours to get.
      case ipc::LifelineKind::closed:
      case ipc::LifelineKind::broken:
        end_process();
    }
  }
}

void Lifeline::end_what_hangs() const noexcept {
  if (const auto crash = trace::crash_in_progress_since();
      crash && is_over(crash->count(), kCrashLimit)) {
    end_process();
  }
  if (is_over(shared->ending_since_ns.load(std::memory_order_acquire), kEndLimit)) end_process();
  // A start that was called off has nothing to lose. One that has children of its own ends them
  // first, and its parent says how long it may take.
  if (!shared->ready.load(std::memory_order_acquire) &&
      !shared->next_level.load(std::memory_order_acquire) && is_over(stop_since_ns, kStartLimit)) {
    end_process();
  }
}

void Lifeline::run() noexcept {
  trace::StackBoard& stacks = trace::StackBoard::of_process();
  std::array<pollfd, 3> watched{pollfd{.fd = kLifelineFd, .events = POLLIN, .revents = 0},
                                pollfd{.fd = shared->signals->fd(), .events = POLLIN, .revents = 0},
                                pollfd{.fd = stacks.request_fd(), .events = POLLIN, .revents = 0}};
  for (;;) {
    for (pollfd& each : watched)
      each.revents = 0;
    const bool hurry = stop_since_ns != 0;
    (void)poll(watched.data(), watched.size(), hurry ? kLookMs / 10 : kLookMs);
    if (watched[1].revents != 0 && shared->signals->take().contains(SIGTERM)) stop(Stop::now);
    if (watched[0].revents != 0) take_messages();
    if (watched[2].revents != 0) stacks.answer();
    end_what_hangs();
  }
}

void* lifeline_main(void* shared) { Lifeline{.shared = static_cast<WorkerShared*>(shared)}.run(); }

/// Copies the text if it is whole; `sequence` must be the same before and after.
struct TaskInHand {
  std::uint64_t task = 0;
  std::uint64_t since_cycles = 0;
  std::uint64_t name_length = 0;
  std::array<char, 120> name = {};
};

bool read_task(const trace::TaskArea& area, TaskInHand& task) noexcept {
  const std::uint64_t before = area.sequence.load(std::memory_order_acquire);
  if (before % 2 != 0) return false;
  task.task = area.task.load(std::memory_order_relaxed);
  task.since_cycles = area.since_cycles.load(std::memory_order_relaxed);
  task.name_length = area.name.bytes_in_all.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < area.name.words.size(); ++i) {
    const std::uint64_t word = area.name.words[i].load(std::memory_order_relaxed);
    std::memcpy(task.name.data() + i * sizeof word, &word, sizeof word);
  }
  std::atomic_thread_fence(std::memory_order_acquire);
  return area.sequence.load(std::memory_order_relaxed) == before;
}

/// CLOCK_MONOTONIC of a cycle count, by the two instants that are known on both clocks.
std::uint64_t ns_of(const trace::RecordLayout& layout, std::uint64_t cycles) noexcept {
  const auto now_ns = static_cast<std::uint64_t>(os::monotonic_now_ns());
  const std::uint64_t now_cycles = os::cycle_count();
  const std::uint64_t made_ns = layout.made_ns.load(std::memory_order_relaxed);
  const std::uint64_t made_cycles = layout.made_cycles.load(std::memory_order_relaxed);
  if (now_cycles <= made_cycles || cycles >= now_cycles || cycles < made_cycles) return now_ns;
  const double share =
      static_cast<double>(cycles - made_cycles) / static_cast<double>(now_cycles - made_cycles);
  return made_ns + static_cast<std::uint64_t>(share * static_cast<double>(now_ns - made_ns));
}

}  // namespace

ipc::LifelineAnswer what_are_you_doing(const trace::ProcessRecord& record) noexcept {
  const trace::RecordLayout& layout = record.layout();
  ipc::LifelineAnswer answer;
  answer.state = layout.card.state.load(std::memory_order_acquire);
  answer.since_ns = layout.card.state_since_ns.load(std::memory_order_relaxed);
  TaskInHand task;
  // Tasks that change faster than they can be read are not what anybody asks about.
  for (int tries = 0; tries < 100; ++tries) {
    if (!read_task(layout.card.task, task)) continue;
    if (task.task == 0) break;
    answer.state = static_cast<std::uint64_t>(trace::ProcessState::running);
    answer.task = task.task;
    answer.since_ns = ns_of(layout, task.since_cycles);
    answer.set_name({task.name.data(), std::min<std::size_t>(task.name_length, task.name.size())});
    answer.name_length = static_cast<std::uint32_t>(task.name_length);
    break;
  }
  return answer;
}

void start_lifeline_thread(WorkerShared& shared) {
  sigset_t blocked;
  sigset_t before;
  sigfillset(&blocked);
  // A crash of this thread is told of like any other.
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT})
    sigdelset(&blocked, signal);
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_t thread = {};
  const int failed = pthread_create(&thread, &attributes, lifeline_main, &shared);
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (failed != 0) throw SystemError("can't start the lifeline thread", failed);
}

}  // namespace strata::node
