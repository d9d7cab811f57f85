#include "workload.hpp"

#include <algorithm>
#include <charconv>
#include <random>
#include <stdexcept>

namespace strata::bench {
namespace {

constexpr std::uint32_t kTasks = 8192;        // of most workloads, roughly
constexpr std::uint32_t kHeldTasks = 20'000;  // where only submission is timed
constexpr std::uint32_t kReaders = 40'000;
constexpr std::uint32_t kSharedRegions = 64;
constexpr std::uint32_t kCholeskyTiles = 20;
constexpr std::uint32_t kSeed = 20240229;

Workload make_one() {
  Workload w{.regions = 1};
  w.write(0);
  w.end_task();
  return w;
}

Workload make_independent() {
  Workload w{.regions = kTasks};
  for (std::uint32_t i = 0; i < kTasks; ++i) {
    w.write(i);
    w.end_task();
  }
  return w;
}

Workload make_chain() {
  Workload w{.regions = 1};
  for (std::uint32_t i = 0; i < kTasks; ++i) {
    w.update(0);
    w.end_task();
  }
  return w;
}

Workload make_fan() {
  constexpr std::uint32_t kWidth = 64;
  constexpr std::uint32_t kSource = kWidth;
  constexpr std::uint32_t kSink = kWidth + 1;
  Workload w{.regions = kWidth + 2};
  for (std::uint32_t round = 0; round < kTasks / kWidth; ++round) {
    w.read(kSink);
    w.write(kSource);
    w.end_task();
    for (std::uint32_t i = 0; i < kWidth; ++i) {
      w.read(kSource);
      w.write(i);
      w.end_task();
    }
    for (std::uint32_t i = 0; i < kWidth; ++i)
      w.read(i);
    w.write(kSink);
    w.end_task();
  }
  return w;
}

Workload make_tree() {
  // Nodes are numbered as in a binary heap and submitted from the leaves to the root.
  constexpr std::uint32_t kNodes = kTasks - 1;
  Workload w{.regions = kNodes};
  for (std::uint32_t node = kNodes; node-- > 0;) {
    if (2 * node + 2 < kNodes) {
      w.read(2 * node + 1);
      w.read(2 * node + 2);
    }
    w.write(node);
    w.end_task();
  }
  return w;
}

/// `count` distinct regions out of kSharedRegions.
std::vector<std::uint32_t> draw(std::mt19937& random, std::uint32_t count) {
  std::vector<std::uint32_t> drawn;
  while (drawn.size() < count) {
    const auto region = static_cast<std::uint32_t>(random() % kSharedRegions);
    if (std::find(drawn.begin(), drawn.end(), region) == drawn.end()) drawn.push_back(region);
  }
  return drawn;
}

Workload make_random(std::uint32_t tasks, std::uint32_t arguments) {
  Workload w{.regions = kSharedRegions};
  std::mt19937 random(kSeed);
  for (std::uint32_t i = 0; i < tasks; ++i) {
    const std::vector<std::uint32_t> drawn = draw(random, arguments);
    for (std::uint32_t k = 0; k + 1 < arguments; ++k)
      w.read(drawn[k]);
    w.write(drawn.back());
    w.end_task();
  }
  return w;
}

Workload make_cholesky() {
  constexpr std::uint32_t n = kCholeskyTiles;
  Workload w{.regions = n * n, .grid = n};
  const auto tile = [](std::uint32_t row, std::uint32_t column) { return row * n + column; };
  for (std::uint32_t k = 0; k < n; ++k) {
    w.update(tile(k, k));  // factorise the diagonal tile
    w.end_task();
    for (std::uint32_t i = k + 1; i < n; ++i) {  // solve for the column below it
      w.read(tile(k, k));
      w.update(tile(i, k));
      w.end_task();
    }
    for (std::uint32_t i = k + 1; i < n; ++i) {  // update what lies right of the column
      w.read(tile(i, k));
      w.update(tile(i, i));
      w.end_task();
      for (std::uint32_t j = k + 1; j < i; ++j) {
        w.read(tile(i, k));
        w.read(tile(j, k));
        w.update(tile(i, j));
        w.end_task();
      }
    }
  }
  return w;
}

Workload make_readers(bool others) {
  Workload w{.regions = 1 + kSharedRegions};
  w.write(0);
  w.end_task();
  w.timed_from = 1;
  for (std::uint32_t i = 0; i < kReaders; ++i) {
    w.read(0);
    w.end_task();
    if (others) {
      w.update(1 + i % kSharedRegions);
      w.end_task();
    }
  }
  return w;
}

enum class TileAccess { same, fresh, overlap };

Workload make_tiles(std::uint32_t tiles, TileAccess access) {
  std::uint32_t grid = 1;
  while (grid * grid < tiles)
    ++grid;
  Workload w{.regions = grid * grid + (grid - 1) * (grid - 1), .grid = grid};
  std::vector<std::uint32_t> order(grid * grid);
  for (std::uint32_t i = 0; i < order.size(); ++i)
    order[i] = i;
  std::mt19937 random(kSeed);
  std::shuffle(order.begin(), order.end(), random);

  w.timed_from = access == TileAccess::fresh ? order.size() - order.size() / 10 : order.size();
  for (const std::uint32_t tile : order) {
    w.update(tile);
    w.end_task();
  }
  if (access == TileAccess::same) {
    for (std::uint32_t i = 0; i < 10'000; ++i) {
      w.update(order[random() % order.size()]);
      w.end_task();
    }
  } else if (access == TileAccess::overlap) {
    for (std::uint32_t region = grid * grid; region < w.regions; ++region) {
      w.read(region);
      w.end_task();
    }
  }
  return w;
}

/// The number after `prefix` in `name`, or 0 if the name has not this form.
std::uint32_t number_after(std::string_view prefix, std::string_view name) {
  if (!name.starts_with(prefix)) return 0;
  name.remove_prefix(prefix.size());
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  return error == std::errc() && end == name.data() + name.size() ? number : 0;
}

Workload make_unnamed(std::string_view name) {
  if (name == "one") return make_one();
  if (name == "independent") return make_independent();
  if (name == "chain") return make_chain();
  if (name == "fan") return make_fan();
  if (name == "tree") return make_tree();
  if (name == "stencil") return make_stencil(64, kTasks / 64);
  if (name == "2r1w") return make_random(kTasks, 3);
  if (name == "cholesky") return make_cholesky();
  if (name == "readers") return make_readers(false);
  if (name == "readers-others") return make_readers(true);
  const std::uint32_t arguments = number_after("args-", name);
  if (arguments > 0 && arguments <= kSharedRegions) return make_random(kHeldTasks, arguments);
  if (const auto n = number_after("tiles-same-", name)) return make_tiles(n, TileAccess::same);
  if (const auto n = number_after("tiles-new-", name)) return make_tiles(n, TileAccess::fresh);
  if (const auto n = number_after("tiles-overlap-", name))
    return make_tiles(n, TileAccess::overlap);
  throw std::invalid_argument("no workload is called '" + std::string(name) + "'");
}

}  // namespace

Workload make_workload(std::string_view name) {
  Workload w = make_unnamed(name);
  w.name = name;
  return w;
}

Workload make_stencil(std::uint32_t width, std::uint32_t steps) {
  // Two rows of points: a step reads the one that the step before it wrote, and writes the other.
  Workload w{.name = "stencil", .regions = 2 * width};
  for (std::uint32_t step = 0; step < steps; ++step) {
    const std::uint32_t source = step % 2 * width;
    const std::uint32_t target = width - source;
    for (std::uint32_t x = 0; x < width; ++x) {
      if (x > 0) w.read(source + x - 1);
      w.read(source + x);
      if (x + 1 < width) w.read(source + x + 1);
      w.write(target + x);
      w.end_task();
    }
  }
  return w;
}

Dependencies dependencies(const Workload& workload) {
  struct RegionState {
    std::int64_t writer = -1;
    std::vector<std::uint32_t> readers;  // since that writer
  };
  const std::size_t count = workload.tasks();
  std::vector<RegionState> states(workload.regions);
  std::vector<std::vector<std::uint32_t>> successors(count);
  Dependencies result;
  result.predecessors.resize(count);

  for (std::uint32_t task = 0; task < count; ++task) {
    const auto add_edge = [&](std::uint32_t from) {
      // Edges into `task` are made one after the other, so a second one would be the last here.
      if (from == task || (!successors[from].empty() && successors[from].back() == task)) return;
      successors[from].push_back(task);
      ++result.predecessors[task];
    };
    for (const WorkAccess access : workload.accesses_of(task)) {
      RegionState& state = states[access.region];
      if (access.mode == Mode::read) {
        if (state.writer >= 0) add_edge(static_cast<std::uint32_t>(state.writer));
        state.readers.push_back(task);
        continue;
      }
      if (state.readers.empty() && state.writer >= 0) {
        add_edge(static_cast<std::uint32_t>(state.writer));
      }
      for (const std::uint32_t reader : state.readers)
        add_edge(reader);
      state.readers.clear();
      state.writer = task;
    }
  }

  result.first.push_back(0);
  for (const std::vector<std::uint32_t>& of_task : successors) {
    result.successors.insert(result.successors.end(), of_task.begin(), of_task.end());
    result.first.push_back(static_cast<std::uint32_t>(result.successors.size()));
  }
  return result;
}

}  // namespace strata::bench
