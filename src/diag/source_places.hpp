// The functions that a frame of a stack stands for: the one whose code it is, and those that the
// compiler has put into it, each with the line it is at.
//
// Thread safety: a free function; any thread.
#pragma once

#include <string>
#include <vector>

#include "trace/symboliser.hpp"

namespace strata::diag {

struct SourcePlace {
  std::string function;
  std::string file;  ///< "" if not known.
  int line = 0;
};

/// Innermost first; the last is the function that was not inlined. Never empty.
[[nodiscard]] std::vector<SourcePlace> places_of(const trace::StackFrame& frame);

/// "f() at a.cpp:3"; "f()" where the line is not known.
[[nodiscard]] std::string to_text(const SourcePlace& place);

}  // namespace strata::diag
