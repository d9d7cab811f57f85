// Cgroup: a control group of our own, where we may have one: what is in it, and what that starts,
// can be ended as a whole, also what has left its session and process group.
//
// Only version 2 of the interface, and only below the group that this process is in. Where that is
// not writable there is nothing, and callers do without.
//
// Thread safety: one thread at a time.
//
// Invariants
//   (1) The directory is removed with the object if no process is in it any more. One that stays,
//       since its owner was killed, is found by sweep_stale().
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "os/unique_fd.hpp"

namespace strata::os {

class Cgroup {
 public:
  /// Makes a group "<prefix>-<pid>-<start time>-<number>". Nothing where that is not possible.
  [[nodiscard]] static std::optional<Cgroup> create(std::string_view prefix);
  /// Removes the groups of owners that are gone in which there is no process, with those below
  /// them. Returns how many.
  static int sweep_stale(std::string_view prefix);
  /// The beginning of the names of this process's groups: "<prefix>-<pid>-<start time>-".
  [[nodiscard]] static std::string name_prefix(std::string_view prefix);
  /// Ends every group in `directory` whose name begins so, with all that is in it and below it.
  /// Returns how many are left: their processes are on their way out, as a rule.
  static int end_groups(const std::string& directory, std::string_view name_prefix);
  /// The directory in which create() makes groups; empty if there is none.
  [[nodiscard]] static std::string parent_directory();

  Cgroup(Cgroup&& other) noexcept;
  Cgroup& operator=(Cgroup&& other) noexcept;
  Cgroup(const Cgroup&) = delete;
  Cgroup& operator=(const Cgroup&) = delete;
  ~Cgroup();

  /// Descriptor of its directory, for SpawnOptions::cgroup_fd.
  [[nodiscard]] int fd() const noexcept { return directory_.get(); }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Sends SIGKILL to all that is in it. False if not all could be reached.
  bool kill() noexcept;
  /// Removes it if no process is in it. True if it is gone. The destructor does the same.
  bool remove() noexcept;
  /// Whether a process is in it. A zombie is in none.
  [[nodiscard]] bool populated() const;

 private:
  Cgroup(std::string path, UniqueFd directory) noexcept;

  std::string path_;
  UniqueFd directory_;
};

}  // namespace strata::os
