// How errors name a task, and that of a task that was cancelled.
//
// Thread safety: pure functions.
#pragma once

#include <exception>
#include <string>

#include "strata/engine.hpp"
#include "strata/error.hpp"

namespace strata::node {

/// "task 7 'name'"
[[nodiscard]] inline std::string text_of(const TaskContext& context) {
  std::string text = "task " + std::to_string(context.task().number());
  if (!context.name().empty()) text += " '" + std::string(context.name()) + "'";
  return text;
}

[[nodiscard]] inline std::exception_ptr cancelled_error(const std::string& what) {
  return std::make_exception_ptr(Cancelled(what));
}

}  // namespace strata::node
