#include "cli/jobs/device_pool.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <string_view>

#include "strata/error.hpp"

namespace strata::cli::jobs {
namespace {

constexpr int kLargestId = 1'000'000;

std::optional<int> number_of(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool good = error == std::errc() && end == text.data() + text.size();
  return good && value >= 0 && value <= kLargestId ? std::optional(value) : std::nullopt;
}

}  // namespace

DevicePool::DevicePool(const std::string& list) {
  const auto refuse = [&](std::string_view part, const char* why) {
    throw InvalidArgument(fmt::format(
        "devices '{}': '{}' {}; a list of ids is wanted, as 0-7 or 0,2,5-6", list, part, why));
  };
  std::string_view rest = list;
  for (;;) {
    const std::size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    const std::size_t dash = part.find('-');
    const std::optional<int> first = number_of(part.substr(0, dash));
    const std::optional<int> last =
        dash == std::string_view::npos ? first : number_of(part.substr(dash + 1));
    if (!first || !last) {
      refuse(part, "is no id and no range of ids");
    } else if (*first > *last) {
      refuse(part, "ends before it begins");
    } else {
      for (int id = *first; id <= *last; ++id) {
        if (!free_.insert(id).second) refuse(part, "names a device for the second time");
      }
    }
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  size_ = free_.size();
}

std::optional<std::vector<int>> DevicePool::take(std::size_t count) {
  if (free_.size() < count) return std::nullopt;
  std::vector<int> ids;
  ids.reserve(count);
  while (ids.size() < count)
    ids.push_back(free_.extract(free_.begin()).value());
  return ids;
}

void DevicePool::give_back(const std::vector<int>& ids) { free_.insert(ids.begin(), ids.end()); }

std::string ids_text(const std::vector<int>& ids) { return fmt::format("{}", fmt::join(ids, ",")); }

}  // namespace strata::cli::jobs
