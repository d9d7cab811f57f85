// PoolRig: a CorePool with tasks made by hand, for tests without an engine.
//
// Kernels are plain functions; what they work on comes as scalars, pointers mostly.
//
// Thread safety: start() and what reads results, one thread; ends come from any.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "chip/cores/core_pool.hpp"
#include "strata/chip.hpp"
#include "strata/chip_error.hpp"

namespace strata::test {

class PoolRig : private chip::TaskSink {
 public:
  /// "a2a3sim:clusters=2" with so many threads.
  explicit PoolRig(std::string_view platform, unsigned threads = 0)
      : PoolRig(chip::CorePoolOptions{.platform = Platform::parse(platform), .threads = threads}) {}
  explicit PoolRig(const chip::CorePoolOptions& options) : pool_(options) {
    set_.program = "tests";
    set_.kernels.reserve(1024);  // Launches keep no pointers into it, but the pool does.
  }
  ~PoolRig() override { wait_all(); }
  PoolRig(const PoolRig&) = delete;
  PoolRig& operator=(const PoolRig&) = delete;

  [[nodiscard]] chip::CorePool& pool() noexcept { return pool_; }

  /// A launch of the function on an AIC or an AIV.
  [[nodiscard]] Launch aic(chip::KernelFunction f) {
    return Launch(set_, {id_of(f), KernelId::kNone, KernelId::kNone});
  }
  [[nodiscard]] Launch aiv(chip::KernelFunction f) {
    return Launch(set_, {KernelId::kNone, id_of(f), KernelId::kNone});
  }
  /// Null: the lane is not used.
  [[nodiscard]] Launch mixed(chip::KernelFunction a, chip::KernelFunction b,
                             chip::KernelFunction c = nullptr) {
    return Launch(set_, {id_of(a), id_of(b), id_of(c)});
  }

  struct Task {
    std::vector<std::uint64_t> scalars = {};
    std::vector<detail::TensorRecord> tensors = {};
    std::string name = "task";
    std::atomic<bool> cancelled{false};
    std::optional<TaskContext> context = {};
    std::atomic<bool> ended{false};
    std::exception_ptr error = {};
    std::function<void()> then = {};  ///< From within the sink.
  };
  /// Scalars are values of eight bytes at most.
  template <class... Scalars>
  Task& make(Scalars... scalars) {
    Task& task = tasks_.emplace_back();
    (task.scalars.push_back(Scalar::of(scalars).bits), ...);
    return task;
  }
  void start(Task& task, const Launch& launch) {
    const auto index = static_cast<std::uint64_t>(started_);
    by_dispatch_[index] = &task;
    task.context.emplace(
        detail::ArgumentBlock{.tensors = task.tensors.data(),
                              .scalars = task.scalars.data(),
                              .tensor_count = static_cast<std::uint32_t>(task.tensors.size()),
                              .scalar_count = static_cast<std::uint32_t>(task.scalars.size())},
        TaskContext::Place{.task = TaskId{(index + 1) << 22}, .name = task.name, .lane = {}},
        [](const void* token) { return static_cast<const std::atomic<bool>*>(token)->load(); },
        &task.cancelled);
    ++started_;
    try {
      pool_.start(DispatchId{index}, *task.context, launch, *this);
    } catch (...) {
      ++ended_;
      throw;
    }
  }
  template <class... Scalars>
  Task& run(const Launch& launch, Scalars... scalars) {
    Task& task = make(scalars...);
    start(task, launch);
    return task;
  }

  static void wait(const Task& task) { task.ended.wait(false); }
  void wait_all() {
    for (std::uint64_t now = ended_; now != started_; now = ended_)
      ended_.wait(now);
  }
  [[nodiscard]] std::uint64_t ended() const noexcept { return ended_; }
  /// What the task failed with; empty if it went well.
  [[nodiscard]] static std::string error_of(const Task& task) {
    wait(task);
    if (task.error == nullptr) return {};
    try {
      std::rethrow_exception(task.error);
    } catch (const std::exception& error) {
      return error.what();
    }
  }
  [[nodiscard]] static ErrorCode code_of(const Task& task) {
    wait(task);
    try {
      if (task.error != nullptr) std::rethrow_exception(task.error);
    } catch (const ChipError& error) {
      return error.code();
    } catch (...) {
      return ErrorCode::none;
    }
    return ErrorCode::none;
  }

 private:
  static constexpr std::size_t kMostTasks = 200'000;

  std::uint16_t id_of(chip::KernelFunction f) {
    if (f == nullptr) return KernelId::kNone;
    for (std::size_t i = 0; i < set_.kernels.size(); ++i) {
      if (set_.kernels[i].function == f) return static_cast<std::uint16_t>(i);
    }
    set_.kernels.push_back({.name = "kernel" + std::to_string(set_.kernels.size()), .function = f});
    return static_cast<std::uint16_t>(set_.kernels.size() - 1);
  }
  void ended(DispatchId dispatch, const std::exception_ptr& error) override {
    Task& task = *by_dispatch_[dispatch.value];
    EXPECT_FALSE(task.ended.load()) << "the end of a task was told twice";
    task.error = error;
    if (task.then) task.then();
    task.ended.store(true);
    task.ended.notify_all();
    // Last: the rig may go away with it. (Its members may not: the pool's threads are joined
    // first.)
    ++ended_;
    ended_.notify_all();
  }

  chip::KernelSet set_;
  std::deque<Task> tasks_;
  std::vector<Task*> by_dispatch_ = std::vector<Task*>(kMostTasks);
  std::atomic<std::uint64_t> started_{0};
  std::atomic<std::uint64_t> ended_{0};
  chip::CorePool pool_;  ///< Last: its threads use what is above.
};

}  // namespace strata::test
