// The demo's command line.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

namespace demo {

struct Options {
  std::int64_t size = 1536;
  std::int64_t tile = 128;
  unsigned lanes = 0;  ///< 0: one for each CPU that the process may use.
  int repeat = 3;
  std::uint64_t seed = 1;
  std::optional<double> diagonal;  ///< Added to the diagonal; `size` if not given.
  std::string dot;                 ///< If empty: cholesky.dot beside the program.
  bool help = false;
};

/// Wrong use of the command line.
class UsageError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

[[nodiscard]] Options parse(int argc, char** argv);
[[nodiscard]] const char* help_text() noexcept;

}  // namespace demo
