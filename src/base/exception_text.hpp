// What exceptions and the names of their types say, for messages.
//
// Thread safety: pure functions.
#pragma once

#include <exception>
#include <string>
#include <typeinfo>

namespace strata::base {

/// A mangled name as it is written in sources; the name itself if it is none.
[[nodiscard]] std::string demangled(const char* name);
/// "std::out_of_range" for its type_info.
[[nodiscard]] std::string type_text(const std::type_info& type);
/// The whole text of an exception, with that of the exceptions nested in it.
[[nodiscard]] std::string message_of(const std::exception_ptr& error);

}  // namespace strata::base
