// CoreLane, CoreProgress: the cores of a chip as a lane of the graph engine.
//
// All cores are one external lane: the engine gives it every task that is ready, and the pool says
// what runs where.
//
//   auto lane = std::make_shared<CoreLane>(pool);
//   Engine engine({.kinds = {{.name = "cores", .external = {lane}, .depth = window}},
//                  .progress = std::make_shared<CoreProgress>(pool, budget)});
//   lane->set_engine(engine);
//
// Thread safety: as ExternalLane and ProgressSource ask; set_engine() before the first run.
#pragma once

#include <atomic>
#include <string>

#include "chip/argument_dump.hpp"
#include "chip/cores/core_pool.hpp"
#include "ipc/spinner_budget.hpp"
#include "os/cpu.hpp"
#include "strata/engine.hpp"
#include "strata/external_lane.hpp"

namespace strata::chip {

class CoreLane : public ExternalLane, private TaskSink {
 public:
  explicit CoreLane(CorePool& pool) noexcept : pool_(pool) {}
  void set_engine(Engine& engine) noexcept { engine_ = &engine; }

  void dispatch(DispatchId id, TaskContext& context, Body& body) override {
    const Launch* const launch = body.target<Launch>();
    if (launch == nullptr) {
      throw InvalidArgument("task " + std::to_string(context.task().number()) + " '" +
                            std::string(context.name()) +
                            "' is not a launch of kernels; a chip runs nothing else");
    }
    ArgumentDump* const dump = dump_.load(std::memory_order_acquire);
    if (dump != nullptr) [[unlikely]]
      dump->begin(id, context, *launch);
    pool_.start(id, context, *launch, *this);
  }
  void cancellation() override { pool_.wake_waits(); }
  /// Tells of each task that begins and ends; between runs. Null: of none.
  void set_dump(ArgumentDump* dump) noexcept { dump_.store(dump, std::memory_order_release); }

 private:
  void ended(DispatchId dispatch, const std::exception_ptr& error) override {
    ArgumentDump* const dump = dump_.load(std::memory_order_acquire);
    if (dump != nullptr) [[unlikely]]
      dump->end(dispatch, error == nullptr);
    engine_->complete(dispatch, error);
  }
  CorePool& pool_;
  Engine* engine_ = nullptr;
  std::atomic<ArgumentDump*> dump_{nullptr};  ///< Acquire: a core sees what it points to.
};

/// Whoever waits in the engine acts as a core meanwhile.
class CoreProgress : public ProgressSource {
 public:
  CoreProgress(CorePool& pool, ipc::SpinnerBudget* budget) noexcept
      : pool_(pool), budget_(budget) {}
  bool try_acquire() override { return pool_.try_become_helper(); }
  bool poll() override { return pool_.run_one(); }
  void release() override { pool_.stop_helping(); }
  bool begin_spin() override {
    if (budget_ == nullptr) return os::spinning_pays();
    place_ = budget_->try_begin();
    return static_cast<bool>(place_);
  }
  void end_spin() override {
    if (budget_ != nullptr) budget_->end(place_);
  }

 private:
  CorePool& pool_;
  ipc::SpinnerBudget* const budget_;
  ipc::SpinnerBudget::Place place_ = {};  ///< Of the thread that acquired.
};

}  // namespace strata::chip
