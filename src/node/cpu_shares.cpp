#include "node/cpu_shares.hpp"

#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <memory>

#include "strata/platform.hpp"

namespace strata::node {

namespace {

std::size_t takes_share(const ChipOptions& chip) {
  return Platform::parse(chip.platform).name == "cpu" ? 1 : 0;
}

/// How many chips in the tree take a share.
std::size_t shares_of(const WorkerOptions& options) {
  std::size_t count = 0;
  for (const ChipOptions& chip : options.chips)
    count += takes_share(chip);
  for (const WorkerOptions& next : options.next_level)
    count += shares_of(next);
  return count;
}

/// Of `all` shares, those from `first` on, `count` of them.
std::vector<int> part_of(const std::vector<int>& cpus, std::size_t all, std::size_t first,
                         std::size_t count) {
  std::vector<int> part;
  if (count == 0 || cpus.empty()) return part;
  if (all <= cpus.size()) {
    for (std::size_t i = first * cpus.size() / all; i < (first + count) * cpus.size() / all; ++i)
      part.push_back(cpus[i]);
    return part;
  }
  for (std::size_t i = 0; i < std::min(count, cpus.size()); ++i)
    part.push_back(cpus[(first + i) % cpus.size()]);
  return part;
}

}  // namespace

std::vector<int> allowed_cpu_list() {
  // The kernel says EINVAL where it knows more CPUs than there is room for.
  for (int room = CPU_SETSIZE; room <= (1 << 20); room *= 2) {
    const auto destroy = [](cpu_set_t* set) { CPU_FREE(set); };
    const std::unique_ptr<cpu_set_t, decltype(destroy)> set(
        CPU_ALLOC(static_cast<std::size_t>(room)), destroy);
    const std::size_t size = CPU_ALLOC_SIZE(static_cast<std::size_t>(room));
    if (sched_getaffinity(0, size, set.get()) != 0) continue;
    std::vector<int> cpus;
    for (int cpu = 0; cpu < room; ++cpu) {
      if (CPU_ISSET_S(static_cast<std::size_t>(cpu), size, set.get())) cpus.push_back(cpu);
    }
    return cpus;
  }
  return {};
}

CpuShares cpu_shares(const WorkerOptions& options, const std::vector<int>& cpus) {
  const std::size_t all = shares_of(options);
  std::size_t taken = 0;
  const auto take = [&](std::size_t count) {
    std::vector<int> part = part_of(cpus, all, taken, count);
    taken += count;
    return part;
  };
  CpuShares shares;
  shares.chips.reserve(options.chips.size());
  for (const ChipOptions& chip : options.chips)
    shares.chips.push_back(take(takes_share(chip)));
  shares.next_level.reserve(options.next_level.size());
  for (const WorkerOptions& next : options.next_level)
    shares.next_level.push_back(take(shares_of(next)));
  return shares;
}

}  // namespace strata::node
