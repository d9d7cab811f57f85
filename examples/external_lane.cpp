// A lane of our own: tasks that run elsewhere and report back later.
//
// The engine hands a ready task to ExternalLane::dispatch(), which must not block. Here "elsewhere"
// is a thread with a queue; it could be another process or a device. When the work is done,
// Engine::complete() says so, from whichever thread knows it, and the tasks that waited go on.
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <strata/strata.hpp>
#include <thread>
#include <vector>

namespace {

class QueueLane : public strata::ExternalLane {
 public:
  void start(strata::Engine& engine) {
    thread_ = std::thread([this, &engine] { serve(engine); });
  }
  /// To be called when no run uses the lane any more and before the engine is destroyed: the thread
  /// may be on its way out of complete() when the run has already ended.
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  void dispatch(strata::DispatchId id, strata::TaskContext& context, strata::Body& body) override {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back({id, &context, &body});  // Both are valid until complete().
    }
    changed_.notify_one();
  }

 private:
  struct Item {
    strata::DispatchId id;
    strata::TaskContext* context;
    strata::Body* body;
  };

  void serve(strata::Engine& engine) {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const Item item = queue_.front();
      queue_.pop_front();
      lock.unlock();
      std::exception_ptr error;
      try {
        (*item.body)(*item.context);
      } catch (...) {
        error = std::current_exception();
      }
      engine.complete(item.id, error);  // The engine may call dispatch() from in here.
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> queue_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace

int main() {
  const auto lane = std::make_shared<QueueLane>();
  strata::Engine engine({.kinds = {{.name = "cpu", .callers = 1},
                                   {.name = "device", .external = {lane}, .depth = 2}}});
  lane->start(engine);
  const strata::KindId cpu = engine.kind("cpu");
  const strata::KindId device = engine.kind("device");

  std::vector<int> value(1, 0);
  const strata::Tensor t = engine.tensor(value);
  const auto add_one = [](strata::TaskContext& task) { *task.data<int>(0) += 1; };
  const auto twice = [](strata::TaskContext& task) { *task.data<int>(0) *= 2; };
  engine.run([&](strata::Orchestration& run) {
    for (int i = 0; i < 5; ++i) {
      run.submit(add_one, inout(t), on(device));  // Elsewhere,
      run.submit(twice, inout(t), on(cpu));       // then on the thread that waits in run().
    }
  });
  std::printf("value %d\n", value[0]);

  // An error that is reported with complete() is a failed task like any other.
  bool failed = false;
  try {
    engine.run([&](strata::Orchestration& run) {
      run.submit([](strata::TaskContext&) { throw std::runtime_error("device lost"); }, on(device),
                 strata::named("broken"));
    });
  } catch (const strata::RunFailed& error) {
    std::printf("%s\n", error.what());
    failed = true;
  }
  lane->stop();
  return value[0] == 62 && failed ? 0 : 1;
}
