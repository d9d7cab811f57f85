#include "chip/current_orchestration.hpp"

#include <utility>

#include "chip/cores/core_pool.hpp"
#include "chip/plain_text.hpp"
#include "strata/chip_error.hpp"

namespace strata::chip {

namespace {

thread_local constinit const OrchestrationMark* current_mark = nullptr;

std::int64_t now_ns() noexcept {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::size_t describe_orchestration(char* to, std::size_t bytes) noexcept {
  if (current_mark == nullptr) return 0;
  PlainText text(to, bytes);
  text << "the orchestration of program '" << current_mark->program() << "'";
  if (!current_mark->run().empty()) text << ", in its run '" << current_mark->run() << "'";
  return text.size();
}

}  // namespace

void OrchestrationClock::begin() noexcept { since_ns_.store(now_ns(), std::memory_order_relaxed); }

std::optional<std::chrono::nanoseconds> OrchestrationClock::running_for() const noexcept {
  const std::int64_t since = since_ns_.load(std::memory_order_relaxed);
  if (since == 0) return std::nullopt;
  return std::chrono::nanoseconds(now_ns() - since);
}

OrchestrationMark::OrchestrationMark(std::string_view program, std::string_view run,
                                     OrchestrationClock& clock) noexcept
    : program_(program), run_(run), clock_(clock), outer_(std::exchange(current_mark, this)) {
  clock_.begin();
}

OrchestrationMark::~OrchestrationMark() {
  current_mark = outer_;
  clock_.end();
}

std::size_t describe_current_work(char* to, std::size_t bytes) noexcept {
  // A thread that runs an orchestration acts as a core while that waits.
  const std::size_t size = describe_current_block(to, bytes);
  return size != 0 ? size : describe_orchestration(to, bytes);
}

std::size_t crash_note(char* to, std::size_t bytes) noexcept {
  char none = 0;
  const bool in_kernel = describe_current_block(&none, 1) != 0;
  if (!in_kernel && current_mark == nullptr) return 0;
  PlainText code(to, bytes);
  code << "[" << name_of(in_kernel ? ErrorCode::kernel_crashed : ErrorCode::orchestration_crashed)
       << "] ";
  return code.size() + describe_current_work(to + code.size(), bytes - code.size());
}

}  // namespace strata::chip
