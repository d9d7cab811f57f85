// External lanes for tests: what processes and devices are to the engine, played by this process.
//
// Thread safety: dispatch() as the engine calls it; the rest belongs to the test's thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "strata/strata.hpp"

namespace strata::property {

/// Runs a body as a lane does and returns what it threw.
inline std::exception_ptr run_body(TaskContext& context, Body& body) noexcept {
  try {
    if (body) body(context);
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

/// An external lane that a test can wait for.
class TestLane : public ExternalLane {
 public:
  /// To be called before anything is submitted.
  void attach(Engine& engine) { engine_ = &engine; }
  /// Returns once every complete() has returned and none is to come.
  virtual void drain() {}

 protected:
  Engine* engine_ = nullptr;
};

/// Completes within dispatch().
class InlineLane : public TestLane {
 public:
  void dispatch(DispatchId id, TaskContext& context, Body& body) override {
    engine_->complete(id, run_body(context, body));
  }
};

/// Runs bodies in dispatch order on a thread of its own, which also reports the completions.
class HelperLane : public TestLane {
 public:
  HelperLane() : thread_([this] { serve(); }) {}
  ~HelperLane() override {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void dispatch(DispatchId id, TaskContext& context, Body& body) override {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back({id, &context, &body});
      most_ = std::max(most_, queue_.size() + (busy_ ? 1 : 0));
    }
    changed_.notify_all();
  }
  void drain() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return queue_.empty() && !busy_; });
  }
  /// How many tasks were here at once, at most.
  [[nodiscard]] std::size_t most() {
    const std::lock_guard lock(mutex_);
    return most_;
  }

 private:
  struct Dispatch {
    DispatchId id;
    TaskContext* context;
    Body* body;
  };

  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return over_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const Dispatch next = queue_.front();
      busy_ = true;
      lock.unlock();
      std::exception_ptr error = run_body(*next.context, *next.body);
      lock.lock();
      // From here on the engine may send the next one, even before complete() returns.
      queue_.pop_front();
      lock.unlock();
      engine_->complete(next.id, std::move(error));
      lock.lock();
      busy_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Dispatch> queue_;
  std::size_t most_ = 0;
  bool busy_ = false;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace strata::property
