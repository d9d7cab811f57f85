// What worker processes of the user's own executable need to know of it: the file, its build id,
// and the functions that it has registered by name.
//
// Thread safety: all functions from any thread once static constructors have run; the ProcessScope
// is constructed by the main thread before others begin.
#pragma once

#include <string>
#include <string_view>

#include "strata/worker_task.hpp"

namespace strata::node {

/// The running executable, as ProcessScope found it.
struct ThisProgram {
  int file = -1;         ///< O_PATH, close on exec, open until the process ends; for execveat.
  std::string path;      ///< Of the file when it was opened, for messages.
  std::string argv0;     ///< What the program calls itself.
  std::string build_id;  ///< As own_build_id().
};

/// Null until a ProcessScope was entered.
[[nodiscard]] const ThisProgram* this_program() noexcept;

/// Build id of the running executable in hex digits, from its ELF notes; empty if it has none.
[[nodiscard]] const std::string& own_build_id();

/// A WorkerFunction; one of the two pointers is null.
struct ProgramFunction {
  WorkerFunction::Function function = nullptr;
  WorkerFunction::OrchestrationFunction orchestration = nullptr;
};

/// The WorkerFunction of that name; null if there is none.
[[nodiscard]] const ProgramFunction* find_program_function(std::string_view name) noexcept;

/// Throws InvalidArgument if two WorkerFunctions have the same name, naming all such.
void check_program_functions();

/// "f, g" or "none": the names of all WorkerFunctions, for messages.
[[nodiscard]] std::string program_function_names();

}  // namespace strata::node
