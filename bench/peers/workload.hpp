// Workload: a task graph as data, so that every runtime is given exactly the same work.
//
// A workload is a sequence of tasks, each with a list of (region, mode) accesses; what may run when
// follows from the sequence alone. Runtimes that infer dependencies are given the accesses; for the
// others dependencies() finds the edges in advance, outside of what is timed.
//
// Thread safety: plain data; read by many threads while nobody writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace strata::bench {

enum class Mode : std::uint8_t { read, write, update };

struct WorkAccess {
  std::uint32_t region = 0;
  Mode mode = Mode::read;
};

/// Where the regions lie, for runtimes that know of memory rather than of names.
///
/// Regions are slices of one vector if grid is 0. Otherwise the first grid * grid are the tiles of
/// one square matrix, row by row, and any more are boxes of a tile's size half a tile further down
/// and right, (grid - 1) a row: each overlaps four tiles.
struct Workload {
  std::string name = {};
  std::uint32_t regions = 0;
  std::uint32_t grid = 0;
  std::vector<WorkAccess> accesses = {};
  std::vector<std::uint32_t> first = {0};  ///< Task i has accesses first[i] up to first[i + 1].
  std::size_t timed_from = 0;  ///< Where only submission is timed: the tasks before this are not.

  [[nodiscard]] std::size_t tasks() const noexcept { return first.size() - 1; }
  [[nodiscard]] std::span<const WorkAccess> accesses_of(std::size_t task) const noexcept {
    return std::span(accesses).subspan(first[task], first[task + 1] - first[task]);
  }
  void read(std::uint32_t region) { accesses.push_back({region, Mode::read}); }
  void write(std::uint32_t region) { accesses.push_back({region, Mode::write}); }
  void update(std::uint32_t region) { accesses.push_back({region, Mode::update}); }
  /// Ends the task that the accesses since the last call belong to.
  void end_task() { first.push_back(static_cast<std::uint32_t>(accesses.size())); }
};

/// The workload of that name; throws std::invalid_argument for an unknown one.
///
///   one            a single task
///   independent    tasks that write a region each
///   chain          tasks that update one region
///   fan            one task, 64 that read what it wrote, one that reads what those wrote; repeated
///   tree           binary reduction tree
///   stencil        1-D 3-point stencil, 64 wide
///   2r1w           two reads and one write at random over 64 regions
///   cholesky       tiled Cholesky factorisation of 20 x 20 tiles
///   args-N         N - 1 reads and one write at random over 64 regions
///   readers        a writer, then 40,000 readers of the same region
///   readers-others the same with a task on one of 64 other regions after each reader
///   tiles-same-N, tiles-new-N, tiles-overlap-N
///                  N tiles of a matrix are written, then tasks access a tile again, a tile never
///                  accessed before, or boxes that overlap four tiles; the first N are not timed
Workload make_workload(std::string_view name);

/// 1-D 3-point stencil over `width` points.
Workload make_stencil(std::uint32_t width, std::uint32_t steps);

/// The edges that the accesses of a workload imply, each once.
struct Dependencies {
  std::vector<std::uint32_t> predecessors;  ///< How many each task has.
  std::vector<std::uint32_t> first;         ///< As in Workload, into successors.
  std::vector<std::uint32_t> successors;
  [[nodiscard]] std::span<const std::uint32_t> successors_of(std::size_t task) const noexcept {
    return std::span(successors).subspan(first[task], first[task + 1] - first[task]);
  }
};
Dependencies dependencies(const Workload& workload);

}  // namespace strata::bench
