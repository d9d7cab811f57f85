// Memory of this process that may not be there: reads it without a fault. For signal handlers.
//
// Thread safety: any thread; safe in a signal handler.
#pragma once

#include <cstddef>
#include <cstdint>

namespace strata::trace {

/// Copies `bytes` from `address`; false if not all of it can be read.
[[nodiscard]] bool read_memory(std::uint64_t address, void* to, std::size_t bytes) noexcept;

/// Copies what there is from `address` on without a gap, `bytes` at most. Returns how many.
[[nodiscard]] std::size_t read_memory_up_to(std::uint64_t address, void* to,
                                            std::size_t bytes) noexcept;

template <class T>
[[nodiscard]] bool read_memory(std::uint64_t address, T& to) noexcept {
  return read_memory(address, &to, sizeof(T));
}

}  // namespace strata::trace
