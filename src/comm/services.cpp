#include "comm/services.hpp"

#include <fmt/format.h>

#include <string>

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

/// "the signal at byte 64 of slice 'flags'"
std::string describe_signal(const DomainContext& domain, const Signal* signal) {
  const auto offset =
      static_cast<std::uint64_t>(reinterpret_cast<const std::byte*>(signal) - domain.window());
  for (std::uint32_t i = 0; i < domain.slice_count; ++i) {
    const WindowSlice& slice = domain.slices[i];
    if (offset - slice.offset < slice.bytes)
      return fmt::format("the signal at byte {} of slice '{}'", offset - slice.offset, slice.name);
  }
  return fmt::format("the signal at byte {} of its window", offset);
}

}  // namespace

void wait_for_signal(const DomainContext& domain, const CommWaits& waits, Signal* signal,
                     Compare compare, std::uint32_t value) {
  for (int i = 0; i < kLooks; ++i) {
    if (holds(load(*signal), compare, value)) return;
    os::cpu_relax();
  }
  const CommWaits::End end = waits.wait(waits, signal, compare, value);
  if (end == CommWaits::End::satisfied) return;
  const std::string what =
      fmt::format("rank {} of domain '{}' waits for {}, which is {}: ", domain.rank, domain.name,
                  describe_signal(domain, signal), load(*signal));
  if (end == CommWaits::End::cancelled) throw Cancelled(what + "cancelled");
  throw DeadlineExceeded(what + "its deadline has passed");
}

const detail::CommServices& services() noexcept {
  static constexpr detail::CommServices kServices = {&run_collective, &run_message,
                                                     &wait_for_signal, &throw_misuse};
  return kServices;
}

}  // namespace strata::comm
