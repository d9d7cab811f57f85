#include "node/exception_fault.hpp"

#include <cxxabi.h>

#include <typeinfo>

#include "base/exception_text.hpp"
#include "strata/chip_error.hpp"
#include "strata/error.hpp"

namespace strata::node {
namespace {

/// What exceptions nested in this one say, one line each.
void add_nested(const std::exception& exception, std::string& text) {
  try {
    std::rethrow_if_nested(exception);
  } catch (const std::exception& nested) {
    text += "\ncaused by " + base::type_text(typeid(nested)) + ": " + nested.what();
    add_nested(nested, text);
  } catch (...) {
    text += "\ncaused by something that is not a std::exception";
  }
}

/// The type of the exception that is being handled.
std::string current_type_text() {
  const std::type_info* const type = abi::__cxa_current_exception_type();
  return type == nullptr ? "an exception of another language" : base::type_text(*type);
}

/// Of the worker process that `exception` is about, if it is about one.
const WorkerFault* deepest_fault(const std::exception& exception,
                                 std::exception_ptr& keeps_it_alive) {
  if (const auto* error = dynamic_cast<const WorkerError*>(&exception)) return &error->fault();
  const auto* const failed = dynamic_cast<const RunFailed*>(&exception);
  if (failed == nullptr || failed->failed().empty()) return nullptr;
  keeps_it_alive = failed->failed().front().exception;
  if (!keeps_it_alive) return nullptr;
  try {
    std::rethrow_exception(keeps_it_alive);
  } catch (const WorkerError& error) {
    return &error.fault();
  } catch (...) {
    return nullptr;
  }
}

}  // namespace

WorkerFault fault_of(const std::exception_ptr& exception, WorkerFault fault) {
  try {
    std::rethrow_exception(exception);
  } catch (const std::exception& error) {
    std::exception_ptr keeps_it_alive;
    if (const WorkerFault* const deepest = deepest_fault(error, keeps_it_alive)) {
      return *deepest;
    }
    fault.type = base::type_text(typeid(error));
    fault.cause = error.what();
    if (const auto* const of_chip = dynamic_cast<const ChipError*>(&error)) {
      fault.code = std::string(name_of(of_chip->code()));
    }
    add_nested(error, fault.cause);
  } catch (...) {
    fault.type = current_type_text();
    fault.cause = "it threw something that is not a std::exception";
    // Many such are texts.
    try {
      throw;
    } catch (const std::string& text) {
      fault.cause += ": " + text;
    } catch (const char* text) {
      fault.cause += std::string(": ") + (text == nullptr ? "null" : text);
    } catch (int number) {
      fault.cause += ": " + std::to_string(number);
    } catch (...) {
    }
  }
  return fault;
}

}  // namespace strata::node
