// The index files of the cache of chip programs, as text.
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "chip/program/program_cache.hpp"

namespace strata::chip {

/// The entries of an index file; none if it is damaged.
[[nodiscard]] std::vector<CacheEntry> parse_index(std::string_view text);
[[nodiscard]] std::string index_text(const std::vector<CacheEntry>& entries);
/// Whether both belong to the same contents of the same files.
[[nodiscard]] bool same_contents(const CacheEntry& a, const CacheEntry& b);

}  // namespace strata::chip
