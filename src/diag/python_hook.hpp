// How Python programs are made to tell the Python stacks of their threads: a `sitecustomize` module
// that registers faulthandler, put on PYTHONPATH by whoever starts them.
//
// The module writes into a file in memory that each process makes for itself as it starts, before
// anything can put a pipe or a file in the place of stderr; so what captures a program's output
// does not see it. The file says which signal asks for the stacks (python_stack.hpp reads both). It
// is closed on exec and made anew after a fork. A `sitecustomize` that the program has itself is
// imported as if ours were not there.
//
// Nothing is written to a disk: the module lies in a zip file in memory, which Python opens by the
// path that a PythonHook gives, for as long as the PythonHook lives.
//
// Thread safety: a value; one thread at a time.
#pragma once

#include <string>
#include <vector>

#include "os/unique_fd.hpp"

namespace strata::diag {

/// The beginning of the name of the file in memory, by which it is found among the descriptors.
inline constexpr char kPythonReportName[] = "strata-python-report";

class PythonHook {
 public:
  /// Throws SystemError.
  PythonHook();
  /// Another module, found in the same way: "name.py". Throws SystemError.
  PythonHook(const std::string& name, const std::string& content);
  /// "/proc/PID/fd/N" of this process.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Puts it first on PYTHONPATH.
  void add_to(std::vector<std::string>& environment) const;

 private:
  os::UniqueFd fd_;
  std::string path_;
};

/// An archive with one file in it that is not compressed.
[[nodiscard]] std::string zip_of(const std::string& name, const std::string& content);

}  // namespace strata::diag
