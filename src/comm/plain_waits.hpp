// PlainWaits: how code that is no kernel waits in collectives: asleep on the signal's futex, with a
// deadline and a look at a cancellation token every few milliseconds.
//
// Thread safety: one thread at a time.
#pragma once

#include "os/deadline.hpp"
#include "strata/domain_context.hpp"

namespace strata::comm {

class PlainWaits : public detail::CommWaits {
 public:
  struct Options {
    os::Deadline deadline = os::Deadline::never();
    bool (*is_cancelled)(const void* token) = nullptr;
    const void* token = nullptr;
  };
  PlainWaits() noexcept : PlainWaits(Options{}) {}
  explicit PlainWaits(const Options& options) noexcept;

 private:
  static End wait_on(const CommWaits& self, Signal* signal, Compare compare, std::uint32_t value);
  [[nodiscard]] bool is_cancelled() const {
    return options_.is_cancelled != nullptr && options_.is_cancelled(options_.token);
  }
  Options options_;
};

}  // namespace strata::comm
