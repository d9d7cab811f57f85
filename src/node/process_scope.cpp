#include "strata/process_scope.hpp"

#include <fcntl.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <system_error>

#include "node/this_program.hpp"
#include "node/worker_process.hpp"
#include "os/system_error.hpp"
#include "strata/error.hpp"

namespace strata {
namespace {

/// Set once, by ProcessScope; release, read with acquire. What it points to is never destroyed.
std::atomic<const node::ThisProgram*> entered_program{nullptr};

}  // namespace

namespace node {

const ThisProgram* this_program() noexcept {
  return entered_program.load(std::memory_order_acquire);
}

}  // namespace node

ProcessScope::ProcessScope(int argc, char** argv) {
  if (entered()) {
    throw InvalidState(
        "a ProcessScope was constructed twice in this process; one, first of all in"
        " main, is enough");
  }
  auto* const program = new node::ThisProgram;
  program->file = open("/proc/self/exe", O_PATH | O_CLOEXEC);
  if (program->file < 0) {
    delete program;
    os::throw_errno("ProcessScope: can't open the executable, /proc/self/exe");
  }
  std::error_code failed;
  program->path = std::filesystem::read_symlink("/proc/self/exe", failed).string();
  program->argv0 = argc > 0 && argv != nullptr && argv[0] != nullptr ? argv[0] : program->path;
  program->build_id = node::own_build_id();
  entered_program.store(program, std::memory_order_release);
  if (node::is_worker_process()) node::worker_process_main();
}

bool ProcessScope::entered() noexcept { return node::this_program() != nullptr; }

}  // namespace strata
