// Staging: copies of the argument tensors in memory of the chip's own, for platforms that do not
// share the host's.
//
// What tasks may read is copied in before the run, what they may have written is copied out after
// a run that went well: element by element, so that nothing outside of the views is touched.
// Arguments that overlap lie in one range and so in one copy of it.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "chip/argument_ranges.hpp"
#include "os/mapping.hpp"
#include "strata/task_context.hpp"

namespace strata::chip {

class Staging {
 public:
  /// `capacity`: bytes of chip memory.
  explicit Staging(std::size_t capacity) : capacity_(capacity) {}

  /// Places a copy of each range and fills in what is read. Ranges that lie in `on_chip` are chip
  /// memory already and used in place. Throws ChipError (out_of_chip_memory).
  void copy_in(const detail::ArgumentBlock& arguments, const ArgumentRanges& ranges,
               std::span<const AddressRange> on_chip, std::string_view program);
  /// Brings back what the arguments of mode out and inout hold now.
  void copy_out(const detail::ArgumentBlock& arguments, const ArgumentRanges& ranges) const;

  /// Where range i begins on the chip.
  [[nodiscard]] std::byte* place(std::size_t range) const noexcept { return places_[range]; }

 private:
  const std::size_t capacity_;
  os::Mapping memory_ = {};  ///< Kept from run to run.
  std::vector<std::byte*> places_ = {};
};

}  // namespace strata::chip
