#include "chip/run_thread.hpp"

#include <pthread.h>

#include <utility>

#include "trace/crash_handler.hpp"

namespace strata::chip {

RunThread::~RunThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void RunThread::start(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    job_ = std::move(job);
    cancelled_ = false;
    has_run_ = false;
  }
  if (thread_.joinable()) {
    changed_.notify_all();
  } else {
    thread_ = std::thread([this] { main(); });
  }
}

bool RunThread::wait_until(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline, [this] { return job_ == nullptr; });
}

void RunThread::began(const Run& run) {
  bool cancelled = false;
  {
    const std::lock_guard lock(mutex_);
    run_ = run;
    has_run_ = true;
    cancelled = cancelled_;
  }
  if (cancelled) run.cancel();
}

void RunThread::cancel() {
  Run run;
  {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    if (!has_run_) return;
    run = run_;
  }
  run.cancel();
}

void RunThread::main() {
  (void)pthread_setname_np(pthread_self(), "chip run");
  const trace::AlternateStack stack;  // It may act as a core: a kernel's stack may overflow.
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || job_ != nullptr; });
    if (job_ == nullptr) return;
    lock.unlock();
    job_();  // Nobody changes it while it is under way.
    lock.lock();
    job_ = nullptr;
    run_ = {};
    has_run_ = false;
    changed_.notify_all();
  }
}

}  // namespace strata::chip
