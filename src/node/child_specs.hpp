// ChildSpec: one place for a worker process, as the options of a Worker ask for it.
//
// Thread safety: plain values and pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "os/deadline.hpp"
#include "strata/worker.hpp"

namespace strata::node {

/// Kinds of lanes, in the order in which a Worker's engine has them.
inline constexpr std::array<std::string_view, 3> kChildKinds = {"sub", "chip", "next"};

/// One place for a worker process.
struct ChildSpec {
  std::string path = {};       ///< "node/sub[0]".
  std::string role = {};       ///< "sub worker".
  std::string_view kind = {};  ///< Of its lane: one of kChildKinds.
  WorkerProgram program = WorkerProgram::strata_worker;
  unsigned height = 0;            ///< Levels of workers below it.
  nlohmann::json configure = {};  ///< The message, but for the deadline.
};

/// Where in a tree of processes a Worker is. The default: at its root.
struct Placement {
  std::uint32_t first_slab = 1;             ///< Numbers for slabs: from here ...
  std::uint32_t slab_numbers = 0xfffffffe;  ///< ... and as many, all levels below included.
  int tree_page = -1;                       ///< The tree's spinner budget; none at the root.
  os::Deadline start_deadline = {};         ///< Of the whole tree, if earlier than its own.
  /// To be divided among the chips of platform cpu, all levels below included; none: all that the
  /// process may use.
  std::vector<int> cpus = {};

  /// How many of the numbers are the Worker's own; the rest is for the levels below.
  [[nodiscard]] std::uint32_t own_slabs() const noexcept { return slab_numbers / 16; }
};

/// Throws InvalidArgument, for the Worker at `path`, for what can't work.
void check_options(const WorkerOptions& options, const std::string& path);
/// Whether some worker, at any level, is the user's own executable.
[[nodiscard]] bool runs_this_program(const WorkerOptions& options);
/// All places of a Worker: subs, chips, next-level workers.
[[nodiscard]] std::vector<ChildSpec> child_specs(const WorkerOptions& options,
                                                 const Placement& placement);

}  // namespace strata::node
