// What one would write by hand instead of a strata::Worker.
//
//   by_hand MEASURE WORKERS [BUDGET_MS]
//
//   start              programs that do nothing, until each has said that it is there; their end
//   ring               round trip between two processes that spin on a ring in shared memory, with
//                      frames as long as those of a task with one tensor
//   pool:independent   worker processes behind pipes, 64 bytes there and back, several ahead
//   pool:chain         the same, one at a time
//
// Thread safety: one thread in each process.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <stdexcept>
#include <string_view>

#include "figures.hpp"
#include "ipc/frame.hpp"
#include "ipc/mailbox_layout.hpp"
#include "os/child_process.hpp"
#include "os/cpu.hpp"
#include "os/mapping.hpp"
#include "os/memfd.hpp"
#include "os/spawn.hpp"
#include "os/system_error.hpp"

namespace strata::bench {
namespace {

constexpr double kMs = 1e6;

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) os::throw_errno("making a pipe");
    read.reset(ends[0]);
    write.reset(ends[1]);
  }
  os::UniqueFd read, write;
};

void read_all(int fd, void* to, std::size_t bytes) {
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = ::read(fd, at, bytes);
    if (got <= 0) throw std::runtime_error("a process has ended early");
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
}

void write_all(int fd, const void* from, std::size_t bytes) {
  if (::write(fd, from, bytes) != static_cast<ssize_t>(bytes)) os::throw_errno("writing to a pipe");
}

/// A process that was started as the workers of a strata::Worker are.
os::ChildProcess start(const std::string& program, const std::string& argument, int in, int out) {
  return os::spawn({.path = program,
                    .argv = {program, argument},
                    .envp = os::current_environment(),
                    .descriptors = {{in, 0}, {out, 1}, {2, 2}},
                    .own_process_group = true});
}

void wait(os::ChildProcess& process) {
  if (!process.wait(os::Deadline::after(std::chrono::seconds(30))))
    throw std::runtime_error("a process did not end");
}

// ---- Programs that do nothing -------------------------------------------------------------------

Values measure_start(unsigned workers, double budget_ns) {
  std::vector<double> ends;
  const auto sample = [&] {
    const double begin = now_ns();
    Pipe in, out;
    std::vector<os::ChildProcess> processes;
    for (unsigned i = 0; i < workers; ++i)
      processes.push_back(start(STRATA_BENCH_TRIVIAL, "", in.read.get(), out.write.get()));
    std::vector<char> bytes(workers);
    read_all(out.read.get(), bytes.data(), bytes.size());
    const double there = now_ns();
    in.write.reset();
    for (os::ChildProcess& process : processes)
      wait(process);
    ends.push_back((now_ns() - there) / kMs);
    return (there - begin) / kMs;
  };
  (void)sample();
  ends.clear();
  const Values values{{"", summary(sample_for(budget_ns, 5, sample), "ms")}};
  return {{"", values.at("")}, {"close", summary(ends, "ms")}};
}

// ---- A ring -------------------------------------------------------------------------------------

/// With one tensor of one dimension.
constexpr std::size_t kThereBytes =
    ipc::kSubmissionHeaderBytes + ipc::kTensorHeaderBytes + 2 * sizeof(std::int64_t);

template <std::size_t Bytes>
struct alignas(64) Slot {
  std::atomic<std::uint64_t> sequence;  ///< Release by who puts, acquire by who gets.
  std::byte payload[Bytes];

  void put(std::uint64_t number, const std::byte* from) {
    std::memcpy(payload, from, Bytes);
    sequence.store(number + 1, std::memory_order_release);
  }
  void get(std::uint64_t number, std::byte* to) const {
    while (sequence.load(std::memory_order_acquire) != number + 1)
      os::cpu_relax();
    std::memcpy(to, payload, Bytes);
  }
};

struct Rings {
  static constexpr std::uint64_t kSlots = 64;
  Slot<kThereBytes> there[kSlots];
  Slot<sizeof(ipc::CompletionFrame)> back[kSlots];
};

Values measure_ring(double budget_ns) {
  constexpr int kRoundTrips = 10'000;
  const os::UniqueFd memory = os::make_memfd("bench", sizeof(Rings));
  const os::Mapping mapping = os::Mapping::shared(memory.get(), sizeof(Rings));
  Rings& rings = *reinterpret_cast<Rings*>(mapping.data());
  std::array<std::byte, kThereBytes> frame{};
  const pid_t other = fork();
  if (other == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (std::uint64_t i = 0;; ++i) {
      rings.there[i % Rings::kSlots].get(i, frame.data());
      rings.back[i % Rings::kSlots].put(i, frame.data());
    }
  }
  os::ChildProcess process(other, {});
  std::uint64_t number = 0;
  const auto sample = [&] {
    return timed([&] {
             for (int i = 0; i < kRoundTrips; ++i, ++number) {
               rings.there[number % Rings::kSlots].put(number, frame.data());
               rings.back[number % Rings::kSlots].get(number, frame.data());
             }
           }) /
           kRoundTrips / 1000;
  };
  (void)sample();
  const Values values{{"", summary(sample_for(budget_ns, 3, sample), "us/task")}};
  kill(other, SIGKILL);
  return values;
}

// ---- Workers behind pipes -----------------------------------------------------------------------

using Request = std::array<std::byte, 64>;

/// What a worker of the pool does: answers each request.
[[noreturn]] void be_a_pool_worker() {
  Request request;
  while (::read(0, request.data(), request.size()) == static_cast<ssize_t>(request.size()))
    write_all(1, request.data(), request.size());
  _exit(0);
}

class Pool {
 public:
  explicit Pool(unsigned workers) : workers_(workers) {
    for (Member& member : workers_) {
      member.process =
          start("/proc/self/exe", "worker", member.requests.read.get(), member.answers.write.get());
    }
  }
  /// Each worker has up to `ahead` requests, and gets the next when it has answered one.
  void run(int tasks, int ahead) {
    int sent = 0, answered = 0;
    std::vector<pollfd> waits;
    for (const Member& member : workers_)
      waits.push_back({.fd = member.answers.read.get(), .events = POLLIN, .revents = 0});
    const auto send = [&](Member& member) {
      if (sent == tasks) return;
      write_all(member.requests.write.get(), request_.data(), request_.size());
      ++sent;
    };
    for (int i = 0; i < ahead; ++i) {
      for (Member& member : workers_)
        send(member);
    }
    while (answered < tasks) {
      if (waits.size() > 1) (void)poll(waits.data(), waits.size(), -1);
      for (std::size_t i = 0; i < workers_.size(); ++i) {
        if (waits.size() > 1 && (waits[i].revents & POLLIN) == 0) continue;
        read_all(workers_[i].answers.read.get(), request_.data(), request_.size());
        ++answered;
        send(workers_[i]);
        if (answered == tasks) return;
      }
    }
  }

 private:
  struct Member {
    Pipe requests, answers;
    os::ChildProcess process;
  };
  std::vector<Member> workers_;
  Request request_{};
};

Values measure_pool(unsigned workers, int ahead, double budget_ns) {
  constexpr int kTasks = 2000;
  Pool pool(workers);
  pool.run(kTasks, ahead);
  const auto sample = [&] { return timed([&] { pool.run(kTasks, ahead); }) / kTasks / 1000; };
  return {{"", summary(sample_for(budget_ns, 3, sample), "us/task")}};
}

Values measure(std::string_view what, unsigned workers, double budget_ns) {
  if (what == "start") return measure_start(workers, budget_ns);
  if (what == "ring") return measure_ring(budget_ns);
  if (what == "pool:independent") return measure_pool(workers, 16, budget_ns);
  if (what == "pool:chain") return measure_pool(1, 1, budget_ns);
  throw std::invalid_argument("no measure is called '" + std::string(what) + "'");
}

}  // namespace
}  // namespace strata::bench

int main(int argc, char** argv) {
  using namespace strata::bench;
  if (argc == 2 && std::strcmp(argv[1], "worker") == 0) be_a_pool_worker();
  if (argc < 3 || argc > 4) {
    std::fprintf(stderr, "usage: %s MEASURE WORKERS [BUDGET_MS]    see by_hand/main.cpp\n",
                 argv[0]);
    return 2;
  }
  try {
    const auto workers = static_cast<unsigned>(std::max(1, std::atoi(argv[2])));
    const double budget_ns = (argc > 3 ? std::atof(argv[3]) : 100) * 1e6;
    print_values(measure(argv[1], workers, budget_ns), true, "");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}
