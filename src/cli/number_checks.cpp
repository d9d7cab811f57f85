#include "cli/number_checks.hpp"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <string>
#include <system_error>

namespace strata::cli {
namespace {

template <class T>
std::optional<T> number(const std::string& text) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || rest != end || text.empty()) return std::nullopt;
  return value;
}

}  // namespace

CLI::Validator whole_number(std::uint64_t low, std::uint64_t high) {
  return {[low, high](std::string& text) {
            const auto value = number<std::uint64_t>(text);
            if (value && *value >= low && *value <= high) return std::string();
            return fmt::format("'{}' is no whole number from {} to {}", text, low, high);
          },
          ""};
}

CLI::Validator finite_number(double low, double high) {
  return {[low, high](std::string& text) {
            const auto value = number<double>(text);
            // Written so that what is not a number is not in the range.
            if (value && *value >= low && *value <= high) return std::string();
            return fmt::format("'{}' is no number from {} to {}", text, low, high);
          },
          ""};
}

}  // namespace strata::cli
