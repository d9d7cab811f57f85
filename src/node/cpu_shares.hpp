// Which CPUs are whose: those of a machine are divided among all chips of platform cpu in a tree of
// Workers, so that no two chips get in each other's way as long as there is one for each.
//
// Each Worker divides what it was given: a chip of its own takes one share, a next-level worker as
// many as there are such chips below it, which it divides in turn.
//
// Thread safety: plain values and pure functions.
#pragma once

#include <vector>

#include "strata/worker.hpp"

namespace strata::node {

/// The CPUs that this thread may use, in order.
[[nodiscard]] std::vector<int> allowed_cpu_list();

/// Of the places of one Worker, in the order of its options.
struct CpuShares {
  /// Of a chip of platform cpu, the CPUs it may use; of another none, which means all.
  std::vector<std::vector<int>> chips = {};
  /// What chips of platform cpu below a next-level worker have together; none if there are none.
  std::vector<std::vector<int>> next_level = {};
};

/// Divides `cpus`. Where there are fewer than chips, each chip has one, in turn.
[[nodiscard]] CpuShares cpu_shares(const WorkerOptions& options, const std::vector<int>& cpus);

}  // namespace strata::node
