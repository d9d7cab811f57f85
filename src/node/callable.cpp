#include "strata/callable.hpp"

#include <filesystem>
#include <utility>

#include "strata/error.hpp"

namespace strata {

Callable Callable::in_library(std::string path, std::string symbol) {
  if (path.empty() || symbol.empty()) {
    throw InvalidArgument("Callable::in_library: the " +
                          std::string(path.empty() ? "path" : "symbol") + " is empty");
  }
  if (path.find('/') != std::string::npos) {
    path = std::filesystem::absolute(path).lexically_normal().string();
  }
  return {.source = Source::library, .library = std::move(path), .symbol = std::move(symbol)};
}

Callable Callable::in_program(std::string name) {
  if (name.empty()) throw InvalidArgument("Callable::in_program: the name is empty");
  return {.source = Source::program, .symbol = std::move(name)};
}

Callable Callable::chip_program(std::string file, ChipRunOptions run) {
  if (file.empty()) throw InvalidArgument("Callable::chip_program: the path of the file is empty");
  return {.source = Source::chip_program,
          .library = std::filesystem::absolute(std::filesystem::path(std::move(file)))
                         .lexically_normal()
                         .string(),
          .run = std::move(run)};
}

Callable Callable::as_orchestration() const {
  Callable copy = *this;
  copy.orchestration = true;
  return copy;
}

std::string Callable::to_string() const {
  if (source == Source::chip_program) return "chip program " + library;
  if (source == Source::builtin) return symbol + " (of Strata)";
  return symbol + (source == Source::library ? " (in " + library + ")" : " (in this program)");
}

void Call::operator()(TaskContext& context) const {
  throw InvalidState("task " + std::to_string(context.task().number()) +
                     " is a Call, which only the lanes of a Worker's processes can run: give it"
                     " on(worker.any_sub()), on(worker.chip(0)) or the like");
}

}  // namespace strata
