// Pattern: a regular expression as CMake has them, which is POSIX's without braces.
//
// Not std::regex, which calls itself for each byte of the text and so dies of a long one.
//
// Thread safety: a value; matches() may be called from any thread.
#pragma once

#include <regex.h>

#include <memory>
#include <string>
#include <string_view>

namespace strata::cli::jobs {

class Pattern {
 public:
  /// Throws InvalidArgument.
  explicit Pattern(const std::string& text);
  /// Whether it is found anywhere in the text, which may have any bytes.
  [[nodiscard]] bool matches(std::string_view text) const;

 private:
  struct Free {
    void operator()(regex_t* regex) const noexcept;
  };
  std::unique_ptr<regex_t, Free> regex_;
};

}  // namespace strata::cli::jobs
