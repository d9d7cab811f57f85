// Where the program strata-worker is found.
//
// Thread safety: any thread.
#pragma once

#include <string>
#include <vector>

#include "os/unique_fd.hpp"

namespace strata::node {

/// A program to start worker processes with, opened: it stays the same file whatever happens to its
/// path.
struct OpenProgram {
  std::string path;
  os::UniqueFd file;  ///< O_PATH, close on exec; for execveat.
};

/// Opens strata-worker. Looks at `option` (WorkerOptions::worker_program), or else at
/// $STRATA_WORKER_PROGRAM, or else beside this executable and in ../bin from there, where Strata
/// was built, where it was installed, and in PATH. Throws InvalidState that lists every place tried
/// and why it would not do.
[[nodiscard]] OpenProgram find_worker_program(const std::string& option);

}  // namespace strata::node
