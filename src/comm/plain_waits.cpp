#include "comm/plain_waits.hpp"

#include <chrono>

#include "comm/signal.hpp"

namespace strata::comm {
namespace {
/// How long a cancellation may go unnoticed.
constexpr std::chrono::milliseconds kLook{10};

/// Two milliseconds of CPU time on a machine that is otherwise idle, hardly any on a busy one.
constexpr std::uint32_t kYields = 2000;

const PlainWaits& plain(const detail::CommWaits& waits) noexcept {
  return static_cast<const PlainWaits&>(waits);
}
}  // namespace

PlainWaits::PlainWaits(const Options& options) noexcept : options_(options) {
  wait = &PlainWaits::wait_on;
  yields = kYields;
  notify = [](const CommWaits&, Signal* signal, SignalOp op, std::uint32_t value) {
    if (change(*signal, op, value)) wake(*signal);
  };
  cancelled = [](const CommWaits& self) { return plain(self).is_cancelled(); };
}

PlainWaits::End PlainWaits::wait_on(const CommWaits& self, Signal* signal, Compare compare,
                                    std::uint32_t value) {
  const PlainWaits& waits = plain(self);
  while (true) {
    const std::uint32_t seen = load(*signal);
    if (holds(seen, compare, value)) return End::satisfied;
    if (waits.is_cancelled()) return End::cancelled;
    if (waits.options_.deadline.passed()) return End::deadline;
    os::Deadline until = waits.options_.deadline;
    if (waits.options_.is_cancelled != nullptr)
      until = os::earlier(until, os::Deadline::after(kLook));
    sleep_while(*signal, seen, until);
  }
}

}  // namespace strata::comm
