#include "cli/jobs/pattern.hpp"

#include <fmt/format.h>

#include <array>

#include "strata/error.hpp"

namespace strata::cli::jobs {
namespace {

/// Braces, which are ordinary characters for CMake, as ordinary characters for POSIX.
std::string without_braces(const std::string& text) {
  std::string result;
  std::size_t bracket = std::string::npos;  // Where a bracket expression began.
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (bracket != std::string::npos) {
      const bool first = i == bracket + 1 || (i == bracket + 2 && text[i - 1] == '^');
      if (c == ']' && !first) bracket = std::string::npos;
    } else if (c == '\\' && i + 1 < text.size()) {
      result += c;
      result += text[++i];
      continue;
    } else if (c == '[') {
      bracket = i;
    } else if (c == '{' || c == '}') {
      result += '\\';
    }
    result += c;
  }
  return result;
}

}  // namespace

void Pattern::Free::operator()(regex_t* regex) const noexcept {
  ::regfree(regex);
  delete regex;
}

Pattern::Pattern(const std::string& text) {
  auto regex = std::make_unique<regex_t>();
  const int error = ::regcomp(regex.get(), without_braces(text).c_str(), REG_EXTENDED | REG_NOSUB);
  if (error != 0) {
    std::array<char, 200> why{};
    (void)::regerror(error, regex.get(), why.data(), why.size());
    throw InvalidArgument(fmt::format("'{}' is no regular expression: {}", text, why.data()));
  }
  regex_.reset(regex.release());
}

bool Pattern::matches(std::string_view text) const {
  regmatch_t range{};
  range.rm_so = 0;
  range.rm_eo = static_cast<regoff_t>(text.size());
  // Bounds instead of a zero byte at the end, so that zero bytes are text like any other.
  return ::regexec(regex_.get(), text.empty() ? "" : text.data(), 1, &range, REG_STARTEND) == 0;
}

}  // namespace strata::cli::jobs
