// DomainContext: a domain as code on one of its ranks sees it: where the windows are, and what is
// in them. Plain memory that can be copied to a kernel.
//
// A domain is a set of ranks, 0 ... size - 1, each with a *window*: memory that all ranks can read
// and write at addresses of their own. All windows are laid out alike: what collectives keep there
// first, then the named slices that the domain was made with.
//
// Thread safety: constant once made. It holds addresses of one process and means nothing in
// another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "strata/dtype.hpp"
#include "strata/kernel.hpp"

namespace strata {

inline constexpr std::uint32_t kMaxRanks = 64;
inline constexpr std::uint32_t kMaxSlices = 16;

/// How a reduction combines elements. See docs/reference/collectives.md for NaN, overflow and
/// rounding.
enum class ReduceOp : std::uint8_t { sum, prod, min, max };

/// How an all_reduce is done.
enum class CollectiveAlgorithm : std::uint8_t {
  automatic,  ///< By the number of bytes and ranks.
  one_phase,  ///< Each rank reads what all have.
  two_phase,  ///< Rank r reduces part r of what all have and hands it to all.
  ring,       ///< Parts go round from neighbour to neighbour, twice.
  bidirectional_ring,
};

/// "sum", "two_phase", ...
[[nodiscard]] std::string_view name_of(ReduceOp op) noexcept;
[[nodiscard]] std::string_view name_of(CollectiveAlgorithm algorithm) noexcept;

/// Named and typed memory at the same place in all windows.
struct WindowSlice {
  char name[32];
  std::uint64_t offset;  ///< From the beginning of the window.
  std::uint64_t bytes;
  DType dtype;
};

struct DomainContext;

namespace detail {

enum class CollectiveKind : std::uint8_t {
  none,
  refused,  ///< A rank has found its own call to be wrong; the others shall know.
  barrier,
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  all_to_all,
  reduce,
};

/// One rank's call of a collective. `count` is the number of elements of the smaller of the two
/// sides; in and out of an all_reduce are equally large.
struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::none;
  ReduceOp op = ReduceOp::sum;
  DType dtype = DType::uint8;
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::automatic;
  std::uint32_t root = 0;
  std::uint32_t channel = 0;
  std::uint64_t count = 0;
  const void* in = nullptr;
  void* out = nullptr;
};

/// A send, a receive, or both at once.
struct MessageCall {
  static constexpr std::uint32_t kNobody = ~std::uint32_t{0};
  std::uint32_t to = kNobody;
  std::uint32_t from = kNobody;
  DType dtype = DType::uint8;
  std::uint32_t channel = 0;
  std::uint64_t out_count = 0;
  std::uint64_t in_count = 0;
  const void* out = nullptr;
  void* in = nullptr;
};

/// How the caller of a collective sleeps and wakes. All of it is off the fast path.
struct CommWaits {
  enum class End : std::uint8_t { satisfied, cancelled, deadline };
  /// Sleeps until the signal fulfils the comparison. Throws, or says that the wait shall end
  /// without.
  End (*wait)(const CommWaits&, Signal* signal, Compare compare, std::uint32_t value) = nullptr;
  /// Changes the signal and wakes whoever sleeps on it.
  void (*notify)(const CommWaits&, Signal* signal, SignalOp op, std::uint32_t value) = nullptr;
  /// Whether to give up now; looked at on entry.
  bool (*cancelled)(const CommWaits&) = nullptr;
  const void* owner = nullptr;
  /// How often a wait gives the CPU away before it sleeps. A core has other blocks to run.
  std::uint32_t yields = 100;
};

/// What the library does for code that is linked against nothing.
struct CommServices {
  void (*collective)(const DomainContext&, const CommWaits&, const CollectiveCall&);
  void (*message)(const DomainContext&, const CommWaits&, const MessageCall&);
  void (*wait)(const DomainContext&, const CommWaits&, Signal*, Compare, std::uint32_t value);
  void (*misuse)(const DomainContext&, std::string_view text);  ///< Throws.
};

}  // namespace detail

struct DomainContext {
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  std::uint32_t channels = 0;
  std::uint32_t slice_count = 0;
  std::uint64_t window_bytes = 0;
  // What of a window each channel has; see comm/window_layout.hpp.
  std::uint64_t small_bytes = 0;
  std::uint64_t message_bytes = 0;
  std::uint64_t staging_bytes = 0;
  std::uint64_t channel_bytes = 0;
  std::uint64_t slices_offset = 0;  ///< Where the slices begin.
  const detail::CommServices* services = nullptr;
  char name[32] = {};
  std::byte* windows[kMaxRanks] = {};  ///< Of all ranks, at this process's addresses.
  WindowSlice slices[kMaxSlices] = {};

  [[nodiscard]] std::byte* window() const noexcept { return windows[rank]; }
};
static_assert(std::is_trivially_copyable_v<DomainContext>);

}  // namespace strata
