// What collectives keep in the windows, and where: one channel of a domain.
//
// Each channel has, in every window, an area of this shape:
//
//   ChannelControl            flags and the record of the call under way
//   MessageLines x size       flags of messages to and from each rank
//   small data x 2            inputs that travel with the call, for even and odd calls
//   message slots x size      a ring of kMessageSlots for each receiver
//   staging                   pieces of private memory
//
// Zero is the right first state of all of it, so a fresh window needs no set-up.
//
// Invariants
//   (1) A rank writes only to its own window's areas, and the others read there. (What the user's
//       tensors hold is another matter, and Signal::waiters, which whoever sleeps changes.)
//   (2) All words that ranks wait for (sequence, progress, sent, taken) only ever grow, in 31 bits
//       that wrap round; bit 31, once set, stays: the rank that writes this word has given up.
//
// Memory order. A word is stored after what it announces and loaded before that is read: release
// and acquire. See signal.hpp for sleeping.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "strata/communicator.hpp"
#include "strata/domain_context.hpp"

namespace strata::comm {

inline constexpr std::uint32_t kGoneBit = 0x80000000U;
inline constexpr std::uint32_t kCountMask = 0x7fffffffU;

/// Whether a word that grows and wraps has come to `target`. They are never 2^30 apart.
[[nodiscard]] constexpr bool reached(std::uint32_t value, std::uint32_t target) noexcept {
  return ((value - target) & kCountMask) < 0x40000000U;
}

/// In a record: the memory is not in the window.
inline constexpr std::uint64_t kPrivate = ~std::uint64_t{0};

/// What one rank calls; the others compare it with their own. The first 16 bytes must agree.
struct CallRecord {
  detail::CollectiveKind kind;
  ReduceOp op;
  DType dtype;
  CollectiveAlgorithm algorithm;
  std::uint32_t root;
  std::uint64_t count;
  std::uint64_t in;  ///< Offset in the rank's window, or kPrivate.
  std::uint64_t out;
};

/// Bytes that fit beside the record: one cache line brings flag, record and data.
inline constexpr std::size_t kInlineBytes = 24;

struct alignas(64) Post {
  Signal sequence;  ///< Number of the call that this is.
  CallRecord call;
  std::byte data[kInlineBytes];
};
static_assert(sizeof(Post) == 64);

/// What a rank waits for, for reports from anywhere. All relaxed: it is a description, and torn
/// values only make it a wrong one.
struct alignas(64) WaitNote {
  std::atomic<std::uint32_t> waiting;  ///< 1 while the rest is true.
  std::atomic<std::uint32_t> sequence;
  std::atomic<std::uint32_t> peer;
  std::atomic<std::uint32_t> kind;
};

struct ChannelControl {
  Post posts[2];  ///< Of even and odd calls.
  struct alignas(64) {
    Signal count;
  } progress;  ///< How many steps within collectives the rank has done, ever.
  std::byte pad[64];
  /// Read and written by the rank itself only.
  struct alignas(64) {
    std::uint32_t sequence;
    std::uint32_t steps;
    std::atomic<std::uint32_t> busy;
  } own;
  WaitNote note;
  std::byte pad2[128];
};
static_assert(sizeof(ChannelControl) == 512 && alignof(ChannelControl) == 64);

/// Of one rank towards one other.
struct MessageLines {
  struct alignas(64) {
    Signal count;
  } sent, taken;  ///< Slots filled for that rank; slots of that rank's ring that were emptied.
};

struct alignas(64) MessageSlot {
  std::uint64_t count;   ///< Elements of the whole message.
  std::uint64_t window;  ///< Where the whole message lies in the sender's window, or kPrivate.
  DType dtype;
  bool first;  ///< The message begins here.
  // Then message_bytes of data.
};
inline constexpr std::uint32_t kMessageSlots = 4;

/// At the beginning of each window.
struct WindowHeader {
  /// Why the rank gave up: 0 nothing yet, 1 being written, 2 there. The first reason stays.
  std::atomic<std::uint32_t> fault_state;
  std::uint32_t fault_bytes;
  char fault_text[1976];
  /// For reports, all relaxed: notifications that the rank has sent, and which signal one of its
  /// waits is for, as long as there are any.
  struct alignas(64) {
    std::atomic<std::uint64_t> notified;
    std::atomic<std::uint64_t> signal;  ///< Its offset in the window.
    std::atomic<std::uint32_t> operand;
    std::atomic<Compare> compare;
    std::atomic<std::uint32_t> waits;
  } signals;
};
static_assert(offsetof(WindowHeader, signals) == detail::kNotifiedOffset);
inline constexpr std::size_t kHeaderBytes = 2048;
static_assert(sizeof(WindowHeader) <= kHeaderBytes);

/// Where things are in one channel's area.
struct ChannelLayout {
  std::uint32_t size;
  std::uint64_t small_bytes;
  std::uint64_t message_bytes;
  std::uint64_t staging_bytes;

  [[nodiscard]] constexpr std::uint64_t lines() const noexcept { return sizeof(ChannelControl); }
  [[nodiscard]] constexpr std::uint64_t small() const noexcept {
    return lines() + size * sizeof(MessageLines);
  }
  [[nodiscard]] constexpr std::uint64_t slots() const noexcept { return small() + 2 * small_bytes; }
  [[nodiscard]] constexpr std::uint64_t slot_bytes() const noexcept {
    return sizeof(MessageSlot) + message_bytes;
  }
  [[nodiscard]] constexpr std::uint64_t staging() const noexcept {
    return slots() + size * kMessageSlots * slot_bytes();
  }
  [[nodiscard]] constexpr std::uint64_t total() const noexcept { return staging() + staging_bytes; }
};

/// One channel of a domain, in all windows.
class Channel {
 public:
  Channel(const DomainContext& domain, std::uint32_t index) noexcept
      : domain_(&domain),
        layout_{domain.size, domain.small_bytes, domain.message_bytes, domain.staging_bytes},
        offset_(kHeaderBytes + index * domain.channel_bytes) {}

  [[nodiscard]] ChannelControl& control(std::uint32_t rank) const noexcept {
    return *reinterpret_cast<ChannelControl*>(area(rank));
  }
  [[nodiscard]] MessageLines& lines(std::uint32_t of, std::uint32_t towards) const noexcept {
    return reinterpret_cast<MessageLines*>(area(of) + layout_.lines())[towards];
  }
  [[nodiscard]] std::byte* small(std::uint32_t rank, std::uint32_t parity) const noexcept {
    return area(rank) + layout_.small() + parity * layout_.small_bytes;
  }
  [[nodiscard]] MessageSlot& slot(std::uint32_t from, std::uint32_t to,
                                  std::uint32_t number) const noexcept {
    const std::uint64_t index = to * kMessageSlots + number % kMessageSlots;
    return *reinterpret_cast<MessageSlot*>(area(from) + layout_.slots() +
                                           index * layout_.slot_bytes());
  }
  [[nodiscard]] std::byte* staging(std::uint32_t rank) const noexcept {
    return area(rank) + layout_.staging();
  }

 private:
  [[nodiscard]] std::byte* area(std::uint32_t rank) const noexcept {
    return domain_->windows[rank] + offset_;
  }
  const DomainContext* domain_;
  ChannelLayout layout_;
  std::uint64_t offset_;
};

[[nodiscard]] inline WindowHeader& header_of(const DomainContext& domain,
                                             std::uint32_t rank) noexcept {
  return *reinterpret_cast<WindowHeader*>(domain.windows[rank]);
}

}  // namespace strata::comm
