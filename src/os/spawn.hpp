// spawn: starts a program in a new process, without ever copying this one.
//
// fork() copies the page tables of the parent, its locks in whatever state they are in, and the
// state of every library; a child of it that does more than exec may hang or crash. Here the child
// shares the parent's memory until it execs (CLONE_VM | CLONE_VFORK), runs on a stack of its own,
// and makes system calls only.
//
// Needs Linux 5.11 (close_range with CLOSE_RANGE_CLOEXEC).
//
// Thread safety: spawn() may be called from several threads at the same time. With die_with_parent
// the child dies with the *thread* that called spawn(): call it from one that lives long.
//
// Invariants
//   (1) The new program has the descriptors that are listed, at the numbers that are listed, and no
//       others, whatever other threads of the parent open meanwhile.
//   (2) It starts with no signal blocked and each at its default action; process group, cgroup and
//       parent-death signal are set before its first instruction.
//   (3) If spawn() throws, there is no child, and none is left to wait for.
//   (4) No handler of the parent ever runs in the child, and no handler of the calling thread runs
//       while the child shares its memory.
#pragma once

#include <string>
#include <vector>

#include "os/child_process.hpp"

namespace strata::os {

struct SpawnOptions {
  /// The program: an open descriptor of it, or a path. The descriptor wins; scripts need a path.
  int program_fd = -1;
  std::string path = {};
  /// Arguments, the program's name first.
  std::vector<std::string> argv = {};
  /// The whole environment, "NAME=value" each.
  std::vector<std::string> envp = {};
  /// Descriptor `from` of this process is `to` in the child. Any order, any overlap; each `to`
  /// once.
  struct Descriptor {
    int from = -1;
    int to = -1;
  };
  std::vector<Descriptor> descriptors = {};
  /// The child leads a process group of its own.
  bool own_process_group = false;
  /// Descriptor of a cgroup's directory; the child is born in that group.
  int cgroup_fd = -1;
  /// The child gets SIGKILL when the thread that spawned it ends.
  bool die_with_parent = true;
};

/// Starts the program. Throws SystemError that names the program and the step that failed, or
/// InvalidArgument for a descriptor that is listed wrongly.
[[nodiscard]] ChildProcess spawn(const SpawnOptions& options);

/// The environment of this process, as SpawnOptions wants it.
[[nodiscard]] std::vector<std::string> current_environment();

}  // namespace strata::os
