// What the tests of the engine share: engines of a few lanes, waiting with a bound, and a probe
// that says exactly whether one task waits for another.
//
// No test takes elapsed time for a proof. Bounds such as kPatience only end a test that has failed.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "strata/strata.hpp"

namespace strata::test {

/// Far beyond what any step takes, on a loaded machine and under sanitizers too.
inline constexpr std::chrono::seconds kPatience{20};

inline EngineOptions thread_lanes(unsigned lanes) {
  return {.kinds = {{.name = "cpu", .threads = lanes}}};
}
inline EngineOptions caller_lane() { return {.kinds = {{.name = "cpu", .callers = 1}}}; }

/// Waits until `condition()` holds. False if it did not for a very long time.
template <class Condition>
[[nodiscard]] bool eventually(Condition&& condition) {
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  for (int round = 0; !condition(); ++round) {
    if (std::chrono::steady_clock::now() > give_up) return false;
    if (round < 100) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  return true;
}

/// Closed until somebody opens it.
class Gate {
 public:
  void open() noexcept { open_.store(true, std::memory_order_release); }
  [[nodiscard]] bool is_open() const noexcept { return open_.load(std::memory_order_acquire); }
  /// Fails, and returns false, if nobody opened it for a very long time.
  bool wait() const {
    const bool opened = eventually([this] { return is_open(); });
    EXPECT_TRUE(opened) << "a gate was never opened: what should have opened it did not run";
    return opened;
  }

 private:
  std::atomic<bool> open_{false};
};

/// A place where `count` tasks meet: succeeds only if all are there at the same time.
class Meeting {
 public:
  explicit Meeting(int count) : count_(count) {}
  bool arrive() {
    arrived_.fetch_add(1);
    return eventually([this] { return arrived_.load() >= count_; });
  }

 private:
  const int count_;
  std::atomic<int> arrived_{0};
};

/// Waits for the end of a run. One that does not end is cancelled, so that the test can go on (and
/// fail).
[[nodiscard]] inline bool ends(const strata::Run& run) {
  if (run.wait_for(kPatience)) return true;
  run.cancel();
  run.wait();
  return false;
}

inline void nothing(TaskContext& /*context*/) {}

/// One task of a probe: its arguments, and what it is submitted with.
using Args = std::vector<TensorArg>;

inline TaskId submit_with(Orchestration& o, Body body, const Args& args,
                          std::vector<TaskId> after = {}) {
  TaskSpec spec;
  spec.body = std::move(body);
  spec.tensors = args;
  spec.after = after;
  return o.submit_task(spec);
}

/// Finds out whether a task with arguments `second` waits for an unfinished one with `first`.
///
/// There are two lanes. The first task occupies one until a third task, which depends on nothing
/// and is submitted last, has run on the other. Lanes take ready tasks first in, first out: so the
/// second task has run before the third exactly if it did not wait for the first.
struct Probe {
  RunOptions options = {};
  ScopeOptions scope = {};
  /// Submitted between the two, while the first runs.
  std::function<void(Orchestration&)> between = {};

  [[nodiscard]] bool waits(Engine& engine, const Args& first, const Args& second) const {
    std::atomic<bool> second_ran{false};
    Gate third_ran;
    std::atomic<bool> waited{false};
    engine.run(
        [&](Orchestration& o) {
          const Scope inner = o.scope(scope);
          submit_with(
              o,
              [&](TaskContext&) {
                if (!third_ran.wait()) throw std::runtime_error("the third task never ran");
                waited = !second_ran;
              },
              first);
          if (between) between(o);
          submit_with(
              o, [&](TaskContext&) { second_ran = true; }, second);
          o.submit([&](TaskContext&) { third_ran.open(); });
        },
        options);
    EXPECT_TRUE(second_ran);
    return waited;
  }
};

[[nodiscard]] inline bool waits(Engine& engine, const Args& first, const Args& second) {
  return Probe{}.waits(engine, first, second);
}

/// Calls `f` and returns what the exception of type E says; a failure if there is none.
template <class E, class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

/// Bytes of vector `data` as a tensor of floats, for engines of a test.
struct Floats {
  Floats(Engine& engine, std::initializer_list<std::int64_t> shape) {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape)
      count *= extent;
    data.assign(static_cast<std::size_t>(count), 0.0F);
    tensor = engine.tensor(data, shape);
  }
  std::vector<float> data;
  Tensor tensor;
};

}  // namespace strata::test
