#include "node/callable_loader.hpp"

#include <dlfcn.h>

#include "node/builtin.hpp"
#include "node/this_program.hpp"
#include "strata/chip_error.hpp"
#include "strata/error.hpp"

namespace strata::node {
namespace {

std::string last_loader_error() {
  const char* const text = dlerror();
  return text == nullptr ? "the loader does not say why" : text;
}

ProgramFunction as_function(void* address, bool orchestration) {
  if (orchestration) {
    return {.orchestration = reinterpret_cast<WorkerFunction::OrchestrationFunction>(address)};
  }
  return {.function = reinterpret_cast<WorkerFunction::Function>(address)};
}

LoadedCallable find_in_program(const Callable& callable) {
  const ProgramFunction* const found = find_program_function(callable.symbol);
  if (found == nullptr) {
    throw InvalidArgument("this program has no WorkerFunction named '" + callable.symbol +
                          "'; it has: " + program_function_names());
  }
  if (callable.orchestration != (found->orchestration != nullptr)) {
    throw InvalidArgument("the WorkerFunction '" + callable.symbol + "' is " +
                          (callable.orchestration ? "no" : "an") +
                          " orchestration; Callable::as_orchestration is for those alone");
  }
  return {.name = callable.symbol, .code = *found};
}

LoadedCallable find_in_library_itself(const Callable& callable) {
  const ProgramFunction* const found = find_builtin(callable.symbol);
  if (found == nullptr) {
    throw InvalidArgument("Strata has no function '" + callable.symbol +
                          "': this worker is of another version than its Worker");
  }
  return {.name = callable.symbol, .code = *found};
}

}  // namespace

const CallableLoader::Library& CallableLoader::library(const std::string& path) {
  const auto known = libraries_.find(path);
  if (known != libraries_.end()) return known->second;
  step_("load library " + path);
  Library library;
  library.handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library.handle == nullptr) library.why_not = last_loader_error();
  return libraries_.emplace(path, std::move(library)).first->second;
}

LoadedCallable CallableLoader::load(const Callable& callable) {
  if (callable.source == Callable::Source::program) return find_in_program(callable);
  if (callable.source == Callable::Source::builtin) return find_in_library_itself(callable);
  if (callable.source == Callable::Source::chip_program) {
    throw InvalidArgument(callable.to_string() + " is no function");
  }
  const Library& from = library(callable.library);
  if (from.handle == nullptr) {
    throw Error("can't load library " + callable.library + ": " + from.why_not);
  }
  dlerror();
  void* const address = dlsym(from.handle, callable.symbol.c_str());
  if (address == nullptr) {
    throw Error("library " + callable.library + " has no function '" + callable.symbol +
                "' (is it defined by STRATA_WORKER_FUNCTION?): " + last_loader_error());
  }
  return {.name = callable.symbol, .code = as_function(address, callable.orchestration)};
}

LoadedCallable CallableLoader::load_program(const Callable& callable, const std::string& build_id) {
  step_("load chip program " + callable.library);
  auto program = chip::Program::load(callable.library);
  const ChipProgramInfo& info = program->info();
  if (info.build_id != build_id) {
    throw ChipError(ErrorCode::stale_program,
                    callable.library + " is not the file that was added to the Worker: that had" +
                        " build id " + build_id + ", this one " + info.build_id +
                        "; add it again (Worker::add)");
  }
  return {.name = info.name, .program = std::move(program), .run = callable.run};
}

void CallableLoader::forget_failures() {
  std::erase_if(libraries_, [](const auto& entry) { return entry.second.handle == nullptr; });
}

}  // namespace strata::node
