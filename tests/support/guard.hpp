// Guard: ends the test program with a message when a test hangs, rather than leave that to the
// limit of whatever runs the tests, which can't say what hung.
//
// The limit is generous: it is there for deadlocks, not for slow machines. STRATA_GUARD_SECONDS
// sets another (the mutants' run does, since it meets many deadlocks).
//
// Thread safety: all members may be called from any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace strata::test {

class Guard {
 public:
  /// `what` says what is being done, with the seed if there is one.
  explicit Guard(std::string what, std::chrono::seconds limit = default_limit());
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  /// The next thing begins, with the whole limit before it.
  void restart(std::string what);
  /// Called, once, before the program is ended; to print what helps.
  void on_hang(std::function<void()> report);

  /// STRATA_GUARD_SECONDS, or two minutes.
  [[nodiscard]] static std::chrono::seconds default_limit();

 private:
  void watch();
  const std::chrono::seconds limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string what_;
  std::function<void()> report_;
  std::chrono::steady_clock::time_point deadline_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace strata::test
