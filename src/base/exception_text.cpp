#include "base/exception_text.hpp"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>

namespace strata::base {

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), std::free);
  return status == 0 && text ? text.get() : name;
}

std::string type_text(const std::type_info& type) { return demangled(type.name()); }

std::string message_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    std::string text = e.what();
    try {
      std::rethrow_if_nested(e);
    } catch (...) {
      text += ": " + message_of(std::current_exception());
    }
    return text;
  } catch (...) {
    return "an exception that is not a std::exception";
  }
}

}  // namespace strata::base
