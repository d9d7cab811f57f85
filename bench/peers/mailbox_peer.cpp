// The mailbox beside the least that could do its work, between two processes on two CPUs.
//
//   mailbox [BUDGET_MS [best]]      prints `name nanoseconds`, a line per figure
//
//   raw-ring/round-trip      64 bytes there and 64 back over a shared memory, both sides spin
//   raw-ring/pipelined       the same one way, as many as a ring of 64 takes: per message
//   raw-ring/both-ways       pipelined, and each is answered by 64 bytes: per message
//   eventfd/round-trip       both sides sleep in read()
//   mailbox/...              a submission there and its completion back
//     round-trip             one in flight; the worker waits, the parent polls
//     pipelined              as many in flight as the mailbox takes: per task
//     asleep                 one in flight; the parent sleeps in epoll, the worker does not spin
//
// Each figure is the median of many short measurements, which take turns, so that raw and mailbox
// meet the same machine; `best` gives the shortest instead, for a machine that does other work.
//
// Thread safety: one thread in each of two processes.

#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "ipc/mailbox.hpp"
#include "os/cpu.hpp"
#include "os/event_fd.hpp"
#include "os/mapping.hpp"
#include "os/memfd.hpp"
#include "timing.hpp"

namespace {

using namespace strata;
using bench::median;
using bench::now_ns;

/// The CPUs that this program may use, before it binds itself.
cpu_set_t allowed_set() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  (void)sched_getaffinity(0, sizeof allowed, &allowed);
  return allowed;
}

/// Binds this process to the `index`-th of them.
void bind_to_cpu(int index) {
  static const cpu_set_t allowed = allowed_set();
  cpu_set_t one;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || index-- != 0) continue;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    (void)sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

/// Runs `body` in a second process, on another CPU, until this object is gone.
class Other {
 public:
  template <class Body>
  explicit Other(Body body) : pid_(fork()) {
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    bind_to_cpu(1);
    body();
    _exit(0);
  }
  Other(const Other&) = delete;
  Other& operator=(const Other&) = delete;
  ~Other() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t pid_;
};

// ---- The least ----------------------------------------------------------------------------------

struct alignas(64) RawSlot {
  std::atomic<std::uint64_t> sequence;
  std::uint64_t payload[7];
};
constexpr std::uint64_t kSlots = 64;

/// Sequence numbers in the slots, as the mailbox has them; free slots are known without a look.
struct RawRings {
  RawSlot there[kSlots];
  RawSlot back[kSlots];
  alignas(64) std::atomic<std::uint64_t> read;  ///< How many the other side has read, one way.
};

void raw_put(RawSlot* ring, std::uint64_t number) {
  RawSlot& slot = ring[number % kSlots];
  for (std::uint64_t& word : slot.payload)
    word = number;
  slot.sequence.store(number + 1, std::memory_order_release);
}

std::uint64_t raw_get(const RawSlot* ring, std::uint64_t number) {
  const RawSlot& slot = ring[number % kSlots];
  while (slot.sequence.load(std::memory_order_acquire) != number + 1)
    os::cpu_relax();
  std::uint64_t payload[7];
  std::memcpy(payload, slot.payload, sizeof payload);
  return payload[6];
}

bool raw_there(const RawSlot* ring, std::uint64_t number) {
  return ring[number % kSlots].sequence.load(std::memory_order_acquire) == number + 1;
}

class RawEcho {
 public:
  RawEcho()
      : memfd_(os::make_memfd("bench", sizeof(RawRings))),
        mapping_(os::Mapping::shared(memfd_.get(), sizeof(RawRings))),
        rings_(*reinterpret_cast<RawRings*>(mapping_.data())),
        other_([this] {
          for (std::uint64_t i = 0;; ++i)
            raw_put(rings_.back, raw_get(rings_.there, i));
        }) {}
  double round_trip(int count) {
    const double begin = now_ns();
    for (int i = 0; i < count; ++i, ++next_) {
      raw_put(rings_.there, next_);
      (void)raw_get(rings_.back, next_);
    }
    return (now_ns() - begin) / count;
  }
  double both_ways(int count) {
    const double begin = now_ns();
    const std::uint64_t end = next_ + static_cast<std::uint64_t>(count);
    std::uint64_t answered = next_;
    while (answered != end) {
      while (next_ != end && next_ - answered < kSlots)
        raw_put(rings_.there, next_++);
      while (answered != next_ && raw_there(rings_.back, answered))
        (void)raw_get(rings_.back, answered++);
    }
    return (now_ns() - begin) / count;
  }

 private:
  os::UniqueFd memfd_;
  os::Mapping mapping_;
  RawRings& rings_;
  std::uint64_t next_ = 0;
  Other other_;
};

class RawOneWay {
 public:
  RawOneWay()
      : memfd_(os::make_memfd("bench", sizeof(RawRings))),
        mapping_(os::Mapping::shared(memfd_.get(), sizeof(RawRings))),
        rings_(*reinterpret_cast<RawRings*>(mapping_.data())),
        other_([this] {
          for (std::uint64_t i = 0;; ++i) {
            (void)raw_get(rings_.there, i);
            if (i % 16 == 15) rings_.read.store(i + 1, std::memory_order_release);
          }
        }) {}
  /// `count` is a multiple of 16.
  double pipelined(int count) {
    const double begin = now_ns();
    const std::uint64_t end = next_ + static_cast<std::uint64_t>(count);
    for (; next_ != end; ++next_) {
      while (next_ - read_ == kSlots) {
        read_ = rings_.read.load(std::memory_order_acquire);
        if (next_ - read_ == kSlots) os::cpu_relax();
      }
      raw_put(rings_.there, next_);
    }
    while (rings_.read.load(std::memory_order_acquire) != end)
      os::cpu_relax();
    return (now_ns() - begin) / count;
  }

 private:
  os::UniqueFd memfd_;
  os::Mapping mapping_;
  RawRings& rings_;
  std::uint64_t next_ = 0, read_ = 0;
  Other other_;
};

class EventFdEcho {
 public:
  EventFdEcho()
      : there_(eventfd(0, EFD_CLOEXEC)), back_(eventfd(0, EFD_CLOEXEC)), other_([this] {
          std::uint64_t value = 0;
          while (read(there_.get(), &value, sizeof value) == sizeof value)
            (void)!write(back_.get(), &value, sizeof value);
        }) {}
  double round_trip(int count) {
    const double begin = now_ns();
    for (int i = 0; i < count; ++i) {
      std::uint64_t value = 1;
      (void)!write(there_.get(), &value, sizeof value);
      (void)!read(back_.get(), &value, sizeof value);
    }
    return (now_ns() - begin) / count;
  }

 private:
  os::UniqueFd there_, back_;
  Other other_;
};

// ---- The mailbox --------------------------------------------------------------------------------

class MailboxEcho {
 public:
  explicit MailboxEcho(bool spins)
      : memfd_(ipc::make_mailbox()),
        page_(ipc::SpinnerBudget::make(2)),
        event_(os::EventFd::make()),
        parent_(memfd_.get()),
        epoll_(epoll_create1(EPOLL_CLOEXEC)),
        other_([this, spins] {
          ipc::SpinnerBudget budget(page_.get());
          ipc::MailboxWorker worker(memfd_.get(), event_.fd(), spins ? &budget : nullptr);
          ipc::CompletionFrame done;
          while (worker.wait() == ipc::MailboxWorker::WaitResult::frame) {
            done.dispatch = worker.take().frame.header().dispatch;
            worker.complete(done);
          }
        }) {
    epoll_event event{.events = EPOLLIN | EPOLLET, .data = {}};
    (void)epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, event_.fd(), &event);
  }

  double round_trip(int count) {
    const double begin = now_ns();
    for (int i = 0; i < count; ++i) {
      (void)parent_.push({.header = {.dispatch = next_++}});
      while (parent_.pop().result != ipc::MailboxParent::PopResult::completion)
        os::cpu_relax();
    }
    return (now_ns() - begin) / count;
  }
  double pipelined(int count) {
    const double begin = now_ns();
    int pushed = 0;
    int popped = 0;
    while (popped != count) {
      const int before = pushed;
      while (pushed != count && parent_.push_quietly({.header = {.dispatch = next_}}).result ==
                                    ipc::MailboxParent::PushResult::pushed) {
        ++pushed;
        ++next_;
      }
      if (pushed != before) parent_.wake();
      while (parent_.pop().result == ipc::MailboxParent::PopResult::completion)
        ++popped;
    }
    return (now_ns() - begin) / count;
  }
  double asleep(int count) {
    const double begin = now_ns();
    for (int i = 0; i < count; ++i) {
      (void)parent_.push({.header = {.dispatch = next_++}});
      while (parent_.arm()) {
        epoll_event event{};
        (void)epoll_wait(epoll_.get(), &event, 1, -1);
      }
      if (parent_.pop().result != ipc::MailboxParent::PopResult::completion) std::abort();
    }
    return (now_ns() - begin) / count;
  }

 private:
  os::UniqueFd memfd_, page_;
  os::EventFd event_;
  ipc::MailboxParent parent_;
  os::UniqueFd epoll_;
  std::uint64_t next_ = 0;
  Other other_;
};

}  // namespace

int main(int argc, char** argv) {
  const double budget_ms = argc > 1 ? std::atof(argv[1]) : 2000;
  const bool best = argc > 2 && std::strcmp(argv[2], "best") == 0;
  if (os::allowed_cpus() < 2) {
    std::fprintf(stderr, "mailbox: needs two CPUs\n");
    return 77;
  }
  bind_to_cpu(0);
  std::vector<double> raw_round, raw_one_way, raw_both, event_round, round, pipelined, asleep;
  const double end = now_ns() + budget_ms * 1e6;
  // Each echo spins as long as it lives, so there is one at a time.
  do {
    {
      RawEcho raw;
      (void)raw.round_trip(100);
      for (int i = 0; i < 10; ++i) {
        raw_round.push_back(raw.round_trip(400));
        raw_both.push_back(raw.both_ways(1600));
      }
    }
    {
      RawOneWay raw;
      (void)raw.pipelined(1600);
      for (int i = 0; i < 10; ++i)
        raw_one_way.push_back(raw.pipelined(1600));
    }
    {
      MailboxEcho mailbox(true);
      (void)mailbox.round_trip(100);
      for (int i = 0; i < 10; ++i) {
        round.push_back(mailbox.round_trip(400));
        pipelined.push_back(mailbox.pipelined(1600));
      }
    }
    {
      EventFdEcho event;
      (void)event.round_trip(20);
      for (int i = 0; i < 10; ++i)
        event_round.push_back(event.round_trip(50));
    }
    {
      MailboxEcho mailbox(false);
      (void)mailbox.asleep(20);
      for (int i = 0; i < 10; ++i)
        asleep.push_back(mailbox.asleep(50));
    }
  } while (now_ns() < end);
  const auto print = [best](const char* name, const std::vector<double>& samples) {
    std::printf("%s %.1f\n", name,
                best ? *std::min_element(samples.begin(), samples.end()) : median(samples));
  };
  print("raw-ring/round-trip", raw_round);
  print("raw-ring/pipelined", raw_one_way);
  print("raw-ring/both-ways", raw_both);
  print("eventfd/round-trip", event_round);
  print("mailbox/round-trip", round);
  print("mailbox/pipelined", pipelined);
  print("mailbox/asleep", asleep);
  return 0;
}
