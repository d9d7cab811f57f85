// One line each, the first with the hash of all others:
//
//   strata-index 1 HASH
//   entry RESULT
//   absent PATH
//   file BYTES MODIFIED_NS INODE HASH PATH
#include "chip/program/cache_index.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>

namespace strata::chip {
namespace {

constexpr std::string_view kBegin = "strata-index 1 ";

/// Takes what stands before the next `end`, and the end.
std::string_view take(std::string_view& text, char end) {
  const std::size_t at = text.find(end);
  const std::string_view word = text.substr(0, at);
  text.remove_prefix(at == std::string_view::npos ? text.size() : at + 1);
  return word;
}

template <class Number>
bool take_number(std::string_view& text, Number& number) {
  const std::string_view word = take(text, ' ');
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc() && end == word.data() + word.size();
}

std::optional<CacheDependency> dependency_from(std::string_view line) {
  CacheDependency dependency;
  if (!take_number(line, dependency.stamp.bytes) ||
      !take_number(line, dependency.stamp.modified_ns) ||
      !take_number(line, dependency.stamp.inode)) {
    return std::nullopt;
  }
  const auto digest = Digest::from_hex(take(line, ' '));
  if (!digest) return std::nullopt;
  dependency.digest = *digest;
  dependency.path = line;
  return dependency;
}

}  // namespace

std::vector<CacheEntry> parse_index(std::string_view text) {
  std::string_view first = take(text, '\n');
  if (!first.starts_with(kBegin)) return {};
  first.remove_prefix(kBegin.size());
  if (Digest::from_hex(first) != digest_of(text)) return {};
  std::vector<CacheEntry> entries;
  while (!text.empty()) {
    std::string_view line = take(text, '\n');
    const std::string_view kind = take(line, ' ');
    if (kind == "entry") {
      entries.push_back({.result = std::string(line)});
    } else if (entries.empty()) {
      return {};
    } else if (kind == "absent") {
      entries.back().absent.emplace_back(line);
    } else {
      auto dependency = dependency_from(line);
      if (!dependency) return {};
      entries.back().dependencies.push_back(std::move(*dependency));
    }
  }
  return entries;
}

std::string index_text(const std::vector<CacheEntry>& entries) {
  std::string text;
  const auto out = std::back_inserter(text);
  for (const CacheEntry& entry : entries) {
    fmt::format_to(out, "entry {}\n", entry.result);
    for (const std::string& path : entry.absent)
      fmt::format_to(out, "absent {}\n", path);
    for (const CacheDependency& dependency : entry.dependencies) {
      fmt::format_to(out, "file {} {} {} {} {}\n", dependency.stamp.bytes,
                     dependency.stamp.modified_ns, dependency.stamp.inode, dependency.digest.hex(),
                     dependency.path);
    }
  }
  return fmt::format("{}{}\n{}", kBegin, digest_of(text).hex(), text);
}

bool same_contents(const CacheEntry& a, const CacheEntry& b) {
  return std::equal(a.dependencies.begin(), a.dependencies.end(), b.dependencies.begin(),
                    b.dependencies.end(), [](const CacheDependency& x, const CacheDependency& y) {
                      return x.path == y.path && x.digest == y.digest;
                    });
}

}  // namespace strata::chip
