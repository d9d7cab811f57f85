#include "support/guard.hpp"

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace strata::test {

std::chrono::seconds Guard::default_limit() {
  if (const char* text = std::getenv("STRATA_GUARD_SECONDS"); text != nullptr) {
    if (const long seconds = std::strtol(text, nullptr, 10); seconds > 0) {
      return std::chrono::seconds(seconds);
    }
  }
  return std::chrono::minutes(2);
}

Guard::Guard(std::string what, std::chrono::seconds limit)
    : limit_(limit),
      what_(std::move(what)),
      deadline_(std::chrono::steady_clock::now() + limit),
      thread_([this] { watch(); }) {}

Guard::~Guard() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Guard::restart(std::string what) {
  // The watcher finds the later deadline when it wakes at the earlier one; no need to wake it now.
  const std::lock_guard lock(mutex_);
  what_ = std::move(what);
  deadline_ = std::chrono::steady_clock::now() + limit_;
}

void Guard::on_hang(std::function<void()> report) {
  const std::lock_guard lock(mutex_);
  report_ = std::move(report);
}

void Guard::watch() {
  std::unique_lock lock(mutex_);
  while (!over_) {
    const auto deadline = deadline_;
    if (std::chrono::steady_clock::now() < deadline) {
      // By the system's clock: the thread sanitizer of g++ 12 does not know the wait by the steady
      // one. The deadline itself is looked at again after each wake.
      changed_.wait_until(
          lock, std::chrono::system_clock::now() + (deadline - std::chrono::steady_clock::now()));
      continue;
    }
    std::fprintf(stderr, "\nguard: no end after %lld s: %s\n",
                 static_cast<long long>(limit_.count()), what_.c_str());
    std::fflush(stderr);
    if (report_) report_();
    std::fflush(nullptr);
    std::abort();
  }
}

}  // namespace strata::test
