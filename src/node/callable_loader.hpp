// CallableLoader: finds the code of callables, in shared libraries, chip program files and in this
// program.
//
// Libraries stay loaded until the process ends, chip programs as long as somebody has them. One
// that could not be loaded is tried anew for the next message that names it, not for each callable
// in one.
//
// Thread safety: none; one thread at a time.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "node/callable_table.hpp"
#include "strata/callable.hpp"

namespace strata::node {

class CallableLoader {
 public:
  /// `step` is told what the loader does before it does what may take long or crash.
  explicit CallableLoader(std::function<void(std::string_view)> step) : step_(std::move(step)) {}

  /// Throws Error that says why there is no such function.
  [[nodiscard]] LoadedCallable load(const Callable& callable);
  /// The same for a chip program, which must be the very one of that build id. Throws ChipError.
  [[nodiscard]] LoadedCallable load_program(const Callable& callable, const std::string& build_id);
  /// Libraries that could not be loaded will be tried again.
  void forget_failures();

 private:
  struct Library {
    void* handle = nullptr;
    std::string why_not;  ///< If it could not be loaded.
  };
  const Library& library(const std::string& path);

  std::function<void(std::string_view)> step_;
  std::unordered_map<std::string, Library> libraries_;
};

}  // namespace strata::node
