// BringUpBoard: what the ranks of a communicator and their parent show each other while the ranks
// come up, in shared memory: which step each rank is in, who failed, why, and who is there.
//
// It can be read whatever becomes of a rank: one that hangs, or is dead, has left its step here.
//
// Thread safety: a rank writes its own cell; the parent and the ranks read all. reset() requires
// that no rank is at work.
//
// Invariants
//   (1) A rank's step is stored before the rank begins it.
//   (2) The first failure of a rank stays. Failures are numbered in the order in which they were
//       noted.
//   (3) Once a failure is noted nobody waits in meet() any more.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "strata/comm_error.hpp"
#include "strata/domain_context.hpp"

namespace strata::comm {

inline constexpr std::size_t kMaxBackendText = 4096;
inline constexpr std::size_t kMaxRootInfo = 8192;
inline constexpr std::size_t kMaxFailureText = 8000;

/// Where a rank is.
struct RankProgress {
  std::optional<BringUpFailed::Step> step = {};  ///< The last that it began.
  bool through = false;                          ///< It has done all that its last task was to do.
  std::uint32_t failed = 0;                      ///< Number of its failure; 0 for none.
  std::string text = {};                         ///< What it said then.
};

class BringUpBoard {
 public:
  [[nodiscard]] static std::size_t bytes(std::uint32_t ranks) noexcept;
  /// A view of memory of that size, zeroed when it was new and aligned to 64.
  explicit BringUpBoard(std::byte* memory) noexcept : shared_(*reinterpret_cast<Shared*>(memory)) {}

  // --- The parent's ---
  void reset(std::uint32_t ranks, std::string_view backend) noexcept;
  /// Throws Error if it is longer than kMaxRootInfo.
  void set_root_info(std::string_view root_info);
  [[nodiscard]] RankProgress progress(std::uint32_t rank) const;
  /// How long ago the first rank began its first step; 0 if none has.
  [[nodiscard]] std::chrono::nanoseconds since_first_step() const noexcept;

  // --- The ranks' ---
  [[nodiscard]] std::uint32_t ranks() const noexcept { return shared_.ranks; }
  [[nodiscard]] std::string backend() const;
  [[nodiscard]] std::string_view root_info() const noexcept;
  void begin(std::uint32_t rank, BringUpFailed::Step step) noexcept;
  void set_through(std::uint32_t rank) noexcept;
  /// Waits for all ranks. False if one has failed, or `cancelled`, which is looked at every few
  /// milliseconds, says that nobody wants it any more.
  [[nodiscard]] bool meet(bool (*cancelled)(const void*), const void* token) noexcept;

  // --- Both ---
  /// Notes why a rank has failed, and wakes those who wait.
  void fail(std::uint32_t rank, std::string_view text) noexcept;
  /// The rank that failed first; nothing if none has.
  [[nodiscard]] std::optional<std::uint32_t> first_failed() const noexcept;

 private:
  struct alignas(64) Cell {
    std::atomic<std::uint32_t> step;  ///< 0 for none, then 1 + Step.
    std::atomic<std::uint32_t> through;
    std::atomic<std::uint32_t> failed;  ///< kNoting while it is being noted.
    std::uint32_t text_bytes;
    char text[kMaxFailureText];
  };
  struct alignas(64) Shared {
    Signal gate;                          ///< How many are there; kFailed: some rank has failed.
    std::atomic<std::int64_t> began_ns;   ///< CLOCK_MONOTONIC of the first step; 0 before.
    std::atomic<std::uint32_t> failures;  ///< Noted so far.
    std::uint32_t ranks;
    std::uint32_t backend_bytes;
    std::uint32_t root_bytes;
    char backend[kMaxBackendText];
    char root[kMaxRootInfo];
  };
  [[nodiscard]] Cell& cell(std::uint32_t rank) const noexcept {
    return reinterpret_cast<Cell*>(&shared_ + 1)[rank];
  }

  Shared& shared_;
};

}  // namespace strata::comm
