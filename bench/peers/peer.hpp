// Peer: one task runtime behind one interface, as a program of its own.
//
// Two OpenMP runtimes can't live in one process, and one runtime's spinning threads would spoil the
// figures of the next; so each runtime, Strata included, is a small program that measures one thing
// per call and prints the figures as one line of JSON. peer.cpp has main(); a peer defines an
// Adapter, make_adapter() and kEnvironment.
//
//   NAME MEASURE THREADS [BUDGET_MS]
//
//   run:WORKLOAD     build and run: ns per task, all of it submitted and finished
//   replay:WORKLOAD  the same for a graph that was built (recorded) before
//   submit:WORKLOAD  submission alone, while nothing may start: ns per task
//   growth:WORKLOAD  the same, and for the first and the last tenth of the tasks
//   replay-submit:WORKLOAD  submission alone of a graph that was recorded before
//   metg             METG(50 %) of the stencil, in us
//   engine           start-up time and memory
//
// Thread safety: an adapter is used by the main thread only.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "task_body.hpp"
#include "workload.hpp"

namespace strata::bench {

/// Nanoseconds per task of a submission, in tenths: how it changes as more tasks are pending.
using Tenths = std::array<double, 10>;

/// Times the tenths of a submission: lap(i) goes before task i, finish() after the last. So few
/// tasks that reading the clock would count are timed as a whole; their tenths are all the same.
class TenthsTimer {
 public:
  /// Requires first < last.
  TenthsTimer(std::size_t first, std::size_t last) noexcept;
  void lap(std::size_t task) noexcept {
    if (task == next_) take();
  }
  [[nodiscard]] Tenths finish() noexcept;

 private:
  void take() noexcept;
  /// Index of the task that lap `i` begins with.
  [[nodiscard]] std::size_t begin_of(std::size_t i) const noexcept {
    return first_ + (last_ - first_) * i / laps_;
  }
  std::size_t first_, last_, laps_, next_;
  std::size_t taken_ = 0;
  std::array<double, 11> at_{};  // ns, at the beginning of each lap and at the end
};

class Adapter {
 public:
  virtual ~Adapter() = default;
  /// Whether dependencies come from the accesses, rather than from edges found in advance.
  [[nodiscard]] virtual bool infers() { return true; }
  /// What a reader of the figures should know.
  [[nodiscard]] virtual std::string note() { return {}; }

  /// Not timed. The workload lives until the next call or the end of the adapter.
  virtual void prepare(const Workload& workload) = 0;
  /// Submits all tasks of the workload and waits for them.
  virtual void run() = 0;

  /// Not timed: builds or records the workload once. False if the runtime can't.
  virtual bool prepare_replay(const Workload&) { return false; }
  virtual void replay() {}

  /// Not timed: readies the workload for submit_held(). False if the runtime can't.
  virtual bool prepare_held(const Workload&) { return false; }
  /// Submits all tasks while none may start, then lets them go and waits for them.
  virtual Tenths submit_held() { return {}; }
  /// The same for replay; returns ns per task.
  virtual bool prepare_replay_held(const Workload&) { return false; }
  virtual double replay_held() { return 0; }
};

/// Starts the runtime so that `threads` threads execute tasks.
std::unique_ptr<Adapter> make_adapter(unsigned threads);

/// Variables that the runtime reads as it is loaded; the program starts itself anew with them set
/// where the caller has set nothing else.
struct EnvironmentSetting {
  const char* name;
  const char* value;
};
extern const std::vector<EnvironmentSetting> kEnvironment;

}  // namespace strata::bench
