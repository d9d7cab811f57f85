#include "chip/run_overrun.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <tuple>

namespace strata::chip {

namespace {

using Clock = std::chrono::steady_clock;

/// CPU time that a thread of this process has used.
std::chrono::nanoseconds cpu_time_of(int thread) {
  // The kernel's own encoding of "CPU clock of that thread" (see clock_getcpuclockid).
  constexpr clockid_t kPerThread = 4;
  constexpr clockid_t kScheduled = 2;
  const auto clock =
      static_cast<clockid_t>((~static_cast<clockid_t>(thread)) * 8 + (kPerThread | kScheduled));
  timespec time{};
  if (::clock_gettime(clock, &time) != 0) return {};
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

/// Whether the thread runs, or would if it were given a CPU.
bool wants_cpu(int thread) {
  std::ifstream file(fmt::format("/proc/self/task/{}/stat", thread));
  std::string text;
  std::getline(file, text);
  const std::size_t behind_name = text.rfind(") ");
  return behind_name != std::string::npos && behind_name + 2 < text.size() &&
         text[behind_name + 2] == 'R';
}

/// One block that does not return, and how much its thread had run when it was first seen.
struct BusyBlock {
  std::uint32_t core;
  TaskId task;
  std::uint32_t block;
  int thread;
  std::chrono::nanoseconds cpu;
  [[nodiscard]] auto key() const { return std::tuple(core, task, block); }
};

std::vector<BusyBlock> busy_blocks(const CorePool& pool) {
  std::vector<BusyBlock> blocks;
  for (const CoreStatus& core : pool.status()) {
    if (core.state == CoreStatus::State::idle) continue;
    blocks.push_back({core.core, core.task, core.block, core.thread, cpu_time_of(core.thread)});
  }
  std::sort(blocks.begin(), blocks.end(),
            [](const BusyBlock& a, const BusyBlock& b) { return a.key() < b.key(); });
  return blocks;
}

bool same_blocks(const std::vector<BusyBlock>& a, const std::vector<BusyBlock>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const BusyBlock& x, const BusyBlock& y) { return x.key() == y.key(); });
}

/// Whether some block's thread wants to go on and has not had the time to.
bool any_starves(const std::vector<BusyBlock>& blocks) {
  return std::any_of(blocks.begin(), blocks.end(), [](const BusyBlock& block) {
    return wants_cpu(block.thread) && cpu_time_of(block.thread) - block.cpu < kGrace / 2;
  });
}

}  // namespace

std::string describe(std::span<const CoreStatus> cores) {
  std::string text;
  for (const CoreStatus& core : cores) {
    if (core.state == CoreStatus::State::idle) continue;
    text += "\n  " + core.to_string();
    if (!core.arguments.empty()) {
      text += fmt::format("; its arguments: {}", fmt::join(core.arguments, ", "));
    }
  }
  return text;
}

bool wait_for_cancelled(RunThread& run, const CorePool& pool) {
  const Clock::time_point start = Clock::now();
  Clock::time_point last_change = start;
  std::vector<BusyBlock> blocks = busy_blocks(pool);
  while (!run.wait_until(Clock::now() + kGrace / 20)) {
    const Clock::time_point now = Clock::now();
    std::vector<BusyBlock> next = busy_blocks(pool);
    if (!same_blocks(blocks, next)) {
      blocks = std::move(next);
      last_change = now;
    }
    if (now - start >= 10 * kGrace) return run.wait_until(now);
    // Without a busy core it is the orchestration, of which nothing is known.
    if (now - last_change >= kGrace && !blocks.empty() && !any_starves(blocks))
      return run.wait_until(now);
  }
  return true;
}

}  // namespace strata::chip
