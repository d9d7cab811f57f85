#include "chip/run_watch.hpp"

namespace strata::chip {

RunWatch::~RunWatch() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void RunWatch::begin(const Run& run, IsCancelled cancelled, const void* token) {
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    run_ = run;
    cancelled_ = cancelled;
    token_ = token;
    wake = asleep_;
  }
  if (!thread_.joinable()) {
    thread_ = std::thread([this] { main(); });
  } else if (wake) {
    changed_.notify_all();
  }
}

void RunWatch::end() {
  const std::lock_guard lock(mutex_);
  if (cancelled_ == nullptr) return;
  cancelled_ = nullptr;
  run_ = {};
  last_end_ = std::chrono::steady_clock::now();
}

void RunWatch::main() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (cancelled_ != nullptr) {
      // Under the lock, so that neither the token nor the run goes away meanwhile.
      if (cancelled_(token_)) {
        run_.cancel();
        cancelled_ = nullptr;  // It is told once.
      }
    } else if (std::chrono::steady_clock::now() - last_end_ >= kLinger) {
      asleep_ = true;
      changed_.wait(lock, [this] { return stopping_ || cancelled_ != nullptr; });
      asleep_ = false;
      continue;
    }
    (void)changed_.wait_for(lock, kInterval, [this] { return stopping_; });
  }
}

}  // namespace strata::chip
