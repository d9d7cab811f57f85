// Child programs for tests: this test program, started again with an action to do instead of tests.
//
// Thread safety: free functions, callable from any thread.
#pragma once

#include <string>
#include <vector>

#include "os/child_process.hpp"
#include "os/spawn.hpp"
#include "os/unique_fd.hpp"

namespace strata::os::test {

/// The first argument by which main() knows that it is a child.
inline constexpr const char* kChildMark = "--strata-test-child";

/// What a child does. Returns its exit code.
int child_main(const std::vector<std::string>& arguments);

/// Options that start this program with an action and its arguments, standard descriptors as here.
SpawnOptions child_options(const std::vector<std::string>& arguments);

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};
Pipe make_pipe();

/// Reads to the end of the file, which comes when the last process that can write is gone.
std::string read_all(int fd);
/// Reads up to the end of a line.
std::string read_line(int fd);

struct Outcome {
  ExitStatus status;
  std::string output;
};
/// Runs a child to its end; what it writes to descriptor 1 is caught. `options` comes from
/// child_options(), its descriptors 0 and 2 stay, 1 is replaced.
Outcome run(SpawnOptions options);

}  // namespace strata::os::test
