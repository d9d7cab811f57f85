// What libdw says of an address in a file that is open in a session of it: the function, the file
// and line, and what the compiler has inlined there. Shared by those who name the frames of a crash
// (symboliser.hpp) and of a live process (diag/native_stack.hpp).
//
// Thread safety: one thread at a time may be in libdw: whoever uses it holds libdw_mutex().
#pragma once

#include <cstdint>
#include <mutex>

#include "trace/libdw.hpp"
#include "trace/symboliser.hpp"

namespace strata::trace {

[[nodiscard]] std::mutex& libdw_mutex();

enum class AddressKind : std::uint8_t {
  instruction,  ///< What is executed there.
  returns_to,   ///< The call is the instruction before it.
};

/// How much is looked up: debug information can be large, and take long to read.
enum class Detail : std::uint8_t { function, all };

/// Fills in function and, for Detail::all, inlined, file and line of `frame`, whose address lies in
/// `module`; what is not known stays as it is. Requires libdw_mutex().
void add_names(const Libdw& libdw, Dwfl_Module* module, AddressKind kind, Detail detail,
               StackFrame& frame);

/// The build id of a module in hexadecimal; "" if it has none. Requires libdw_mutex().
[[nodiscard]] std::string build_id_of(const Libdw& libdw, Dwfl_Module* module);

}  // namespace strata::trace
