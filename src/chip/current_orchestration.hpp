// Which orchestration the calling thread runs, and for how long: for the record of a crash, and for
// the report of a run that is late.
//
// Thread safety: an OrchestrationMark belongs to the thread that made it; OrchestrationClock may be
// looked at by any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string_view>

namespace strata::chip {

/// Says for how long an orchestration has been running, if one does.
class OrchestrationClock {
 public:
  void begin() noexcept;
  void end() noexcept { since_ns_.store(0, std::memory_order_relaxed); }
  [[nodiscard]] std::optional<std::chrono::nanoseconds> running_for() const noexcept;

 private:
  std::atomic<std::int64_t> since_ns_{0};  ///< Steady clock; 0: none runs. Relaxed: only a time.
};

/// While it lives the calling thread runs this orchestration. The texts and the clock outlive it.
class OrchestrationMark {
 public:
  OrchestrationMark(std::string_view program, std::string_view run,
                    OrchestrationClock& clock) noexcept;
  ~OrchestrationMark();
  OrchestrationMark(const OrchestrationMark&) = delete;
  OrchestrationMark& operator=(const OrchestrationMark&) = delete;

  [[nodiscard]] std::string_view program() const noexcept { return program_; }
  [[nodiscard]] std::string_view run() const noexcept { return run_; }

 private:
  const std::string_view program_;
  const std::string_view run_;
  OrchestrationClock& clock_;
  const OrchestrationMark* const outer_;
};

/// What the calling thread is doing, async-signal-safe: the block of a kernel that it runs, or else
/// its orchestration. Writes at most `bytes` and returns how many; 0 if it does neither.
std::size_t describe_current_work(char* to, std::size_t bytes) noexcept;
/// The same, behind the code of a crash there in brackets: a trace::CrashNote.
std::size_t crash_note(char* to, std::size_t bytes) noexcept;

}  // namespace strata::chip
