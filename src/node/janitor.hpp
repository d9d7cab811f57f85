// Janitor: a small process that outlives a Worker's process by moments, to end what that left
// behind where nobody else can.
//
// Worker processes die with their parent by themselves. Programs that tasks have started do not,
// and neither do the control groups that both are in. Where control groups can be used, the janitor
// waits for the end of the Worker's process; should that die with groups left, it ends everything
// in them, removes them, and goes. It is a run of strata-worker.
//
// Thread safety: one thread at a time.
#pragma once

#include <memory>

#include "os/child_process.hpp"
#include "os/unique_fd.hpp"

namespace strata::node {

class Janitor {
 public:
  /// Starts one for the groups of this process. Null where there are no control groups, or where it
  /// can't be started: then one does without. `program` is strata-worker, opened.
  [[nodiscard]] static std::unique_ptr<Janitor> start(int program);
  /// Dismisses it, and waits a moment for its end, which the reaper does if it takes longer.
  ~Janitor();
  Janitor(const Janitor&) = delete;
  Janitor& operator=(const Janitor&) = delete;

  /// Tells it that it is not needed any more, without waiting.
  void dismiss() noexcept;

 private:
  Janitor(os::UniqueFd lifeline, os::ChildProcess process) noexcept
      : lifeline_(std::move(lifeline)), process_(std::move(process)) {}

  /// A byte dismisses it. Its end of file is no sign of anything: processes that the program has
  /// forked may have copies of it.
  os::UniqueFd lifeline_;
  os::ChildProcess process_;
};

/// Names of control groups begin so.
inline constexpr const char* kGroupPrefix = "strata";

/// For the main of strata-worker.
[[nodiscard]] bool is_janitor(int argc, char** argv) noexcept;
[[nodiscard]] int janitor_main(char** argv);

}  // namespace strata::node
