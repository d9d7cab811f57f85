#include "comm/services.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "comm/channel.hpp"
#include "comm/signal.hpp"
#include "os/cpu.hpp"
#include "strata/comm_error.hpp"

namespace strata::comm {
namespace {

using detail::CommWaits;

/// Looks before a wait for a signal of the user's goes to sleep: some 2 us.
constexpr int kLooks = 100;

[[noreturn]] void throw_misuse(const DomainContext& domain, std::string_view text) {
  throw CommError(CommError::Cause::misuse,
                  fmt::format("domain '{}', rank {}: {}", domain.name, domain.rank, text));
}

std::uint64_t offset_of(const DomainContext& domain, const Signal* signal) noexcept {
  return static_cast<std::uint64_t>(reinterpret_cast<const std::byte*>(signal) - domain.window());
}

/// "the signal at byte 64 of slice 'flags'"
std::string describe_signal(const DomainContext& domain, std::uint64_t offset) {
  for (std::uint32_t i = 0; i < domain.slice_count; ++i) {
    const WindowSlice& slice = domain.slices[i];
    if (offset - slice.offset < slice.bytes)
      return fmt::format("the signal at byte {} of slice '{}'", offset - slice.offset, slice.name);
  }
  return fmt::format("the signal at byte {} of its window", offset);
}

/// "rank 1 of domain 'tp' waits for the signal at byte 64 of slice 'flags' to be >= 1, and it is 0"
std::string describe_signal_wait(const DomainContext& domain, std::uint64_t offset, Compare compare,
                                 std::uint32_t value) {
  auto& signal = *reinterpret_cast<Signal*>(domain.window() + offset);
  return fmt::format("rank {} of domain '{}' waits for {} to be {} {}, and it is {}", domain.rank,
                     domain.name, describe_signal(domain, offset), sign_of(compare), value,
                     load(signal));
}

/// Shows in the window that a rank waits for a signal of its own, as long as this lives. One of
/// several waits of a rank is shown.
class ShownSignalWait {
 public:
  ShownSignalWait(const DomainContext& domain, const Signal* signal, Compare compare,
                  std::uint32_t value) noexcept
      : note_(header_of(domain, domain.rank).signals) {
    note_.signal.store(offset_of(domain, signal), std::memory_order_relaxed);
    note_.operand.store(value, std::memory_order_relaxed);
    note_.compare.store(compare, std::memory_order_relaxed);
    note_.waits.fetch_add(1, std::memory_order_relaxed);
  }
  ~ShownSignalWait() { note_.waits.fetch_sub(1, std::memory_order_relaxed); }
  ShownSignalWait(const ShownSignalWait&) = delete;
  ShownSignalWait& operator=(const ShownSignalWait&) = delete;

 private:
  decltype(WindowHeader::signals)& note_;
};

}  // namespace

void wait_for_signal(const DomainContext& domain, const CommWaits& waits, Signal* signal,
                     Compare compare, std::uint32_t value) {
  for (int i = 0; i < kLooks; ++i) {
    if (holds(load(*signal), compare, value)) return;
    os::cpu_relax();
  }
  const ShownSignalWait shown(domain, signal, compare, value);
  const CommWaits::End end = waits.wait(waits, signal, compare, value);
  if (end == CommWaits::End::satisfied) return;
  const std::string what =
      describe_signal_wait(domain, offset_of(domain, signal), compare, value) + ": ";
  if (end == CommWaits::End::cancelled) throw Cancelled(what + "cancelled");
  throw DeadlineExceeded(what + "its deadline has passed");
}

std::string describe_signal_wait(const DomainContext& domain) {
  const auto& note = header_of(domain, domain.rank).signals;
  if (note.waits.load(std::memory_order_relaxed) == 0) return "";
  const std::uint64_t offset = note.signal.load(std::memory_order_relaxed);
  if (offset > domain.window_bytes - sizeof(Signal) || offset % alignof(Signal) != 0) return "";
  return describe_signal_wait(domain, offset, note.compare.load(std::memory_order_relaxed),
                              note.operand.load(std::memory_order_relaxed));
}

std::string describe_notifications(const DomainContext& domain) {
  std::vector<std::uint64_t> counts;
  counts.reserve(domain.size);
  for (std::uint32_t rank = 0; rank < domain.size; ++rank)
    counts.push_back(header_of(domain, rank).signals.notified.load(std::memory_order_relaxed));
  const auto [least, most] = std::ranges::minmax(counts);
  if (least == most) return "";
  const auto of_most = std::ranges::count(counts, most);
  if (of_most + 1 == std::ssize(counts)) {
    return fmt::format("rank {} of domain '{}' has sent {} notifications, and each other rank {}",
                       std::ranges::find(counts, least) - counts.begin(), domain.name, least, most);
  }
  return fmt::format("the ranks of domain '{}', from 0, have sent {} notifications", domain.name,
                     fmt::join(counts, ", "));
}

const detail::CommServices& services() noexcept {
  static constexpr detail::CommServices kServices = {&run_collective, &run_message,
                                                     &wait_for_signal, &throw_misuse};
  return kServices;
}

}  // namespace strata::comm
