#include "chip/cores/kernel_waits.hpp"

#include <fmt/format.h>

#include "chip/cores/core_text.hpp"
#include "chip/cores/kernel_services.hpp"
#include "strata/error.hpp"

namespace strata::chip {

[[noreturn]] void fail_misuse(const Place& place, std::string_view text) {
  throw KernelMisuse(fmt::format("{}: {}", block_text(place), text));
}

/// Why what the lane waits for is of no use any more; null if it is of use.
const char* why_unwanted(const Place& place) noexcept {
  place.pool->look_for_cancellation();
  if (place.job->failed.load(std::memory_order_acquire)) return "another lane of the task failed";
  return place.job->context->cancelled() ? "the run was cancelled" : nullptr;
}

void check_wanted(const Place& place) {
  if (const char* const why = why_unwanted(place)) {
    throw Cancelled(fmt::format("{} waited, and gave up: {}", block_text(place), why));
  }
}

}  // namespace strata::chip
