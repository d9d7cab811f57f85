// WindowLayout: what is where in the windows of a domain.
//
// Thread safety: constant once made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "strata/domain_context.hpp"

namespace strata::comm {

struct SliceSpec {
  std::string name;
  DType dtype = DType::uint8;
  std::uint64_t count = 0;  ///< Elements.
};

struct DomainSpec {
  std::string name = "domain";  ///< For messages.
  std::uint32_t size = 0;       ///< Ranks.
  std::vector<SliceSpec> slices = {};
  std::uint32_t channels = 4;
  /// Inputs up to this size travel with the call.
  std::uint64_t small_bytes = std::uint64_t{8} << 10;
  /// A send up to this size returns at once.
  std::uint64_t message_bytes = std::uint64_t{8} << 10;
  /// For pieces of private memory; per channel and rank.
  std::uint64_t staging_bytes = std::uint64_t{768} << 10;
};

class WindowLayout {
 public:
  /// Throws InvalidArgument for what can't be.
  explicit WindowLayout(const DomainSpec& spec);

  /// Size of each window, a multiple of the page size.
  [[nodiscard]] std::size_t window_bytes() const noexcept { return shape_.window_bytes; }
  [[nodiscard]] std::uint32_t size() const noexcept { return shape_.size; }
  /// Where slices begin; all before it is the collectives'.
  [[nodiscard]] std::size_t slices_offset() const noexcept { return shape_.slices_offset; }

  /// What rank `rank` sees, in the process in which the windows are at these addresses. They must
  /// be zeroed before the first rank uses them.
  [[nodiscard]] DomainContext context(std::uint32_t rank,
                                      std::span<std::byte* const> windows) const;

 private:
  DomainContext shape_;  ///< Without rank and windows.
};

/// "rank 1 of domain 'tp' waits for the signal at byte 64 of slice 'flags' ...", a line for each
/// rank that does, and if there are any which rank has sent fewer notifications than the others;
/// then "rank 2 of domain 'tp' waits in all_reduce #3 on channel 0 for rank 0 (its last call there
/// is #2)", a line for each channel of each rank that waits there. For reports; may be called by
/// any process that has the windows, at any time.
[[nodiscard]] std::vector<std::string> describe_waits(const DomainContext& domain);

/// Marks a rank as gone on its behalf, since its process has ended: whoever waits for it, now or
/// later, gets an error with this text.
void mark_gone(const DomainContext& domain, std::uint32_t rank, std::string_view why);

}  // namespace strata::comm
