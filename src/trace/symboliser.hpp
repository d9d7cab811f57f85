// Turns the addresses of a crash into functions, files and lines.
//
// The process is dead by now; what is left is its record and the files that it had loaded. Uses
// libdw, loaded when it is first needed; where that is not installed a frame is module, build id
// and offset, from which it can be looked up elsewhere. A file that has been deleted or replaced
// since is not asked: its frames say so.
//
// Thread safety: any thread; one symbolises at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/process_record_reader.hpp"

namespace strata::trace {

/// A line of a source; 0 if it is not known.
struct SourceLine {
  std::string file = {};
  int line = 0;
};

struct StackFrame {
  std::uint64_t address = 0;
  std::string module;        ///< Path of the file; "" if the address is in none.
  std::string build_id;      ///< In hexadecimal; "" if it has none.
  std::uint64_t offset = 0;  ///< From where the module is loaded: what addr2line takes.
  std::string function;      ///< Demangled; "" if not known.
  /// Functions that were inlined into it at this place, innermost first; `file` and `line` are of
  /// the innermost.
  std::vector<std::string> inlined;
  std::vector<SourceLine> called_at;  ///< Where each of those is called.
  std::string file;
  int line = 0;
  std::string note;  ///< Why nothing more is known.
};

/// One per address of the report. Never throws for what it does not find.
[[nodiscard]] std::vector<StackFrame> symbolise(const CrashReport& report);

/// "#3 strata_test_crash() at crash.cpp:12 in libfoo.so+0x1234 (build id ab12...)"
[[nodiscard]] std::string to_text(const StackFrame& frame, std::size_t number);

/// All that is known, in lines: the headline, the text, the stack.
[[nodiscard]] std::string describe(const CrashReport& report);

}  // namespace strata::trace
