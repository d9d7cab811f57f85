// oneTBB: a task_group, with a counter per task that its predecessors count down.
//
// oneTBB infers nothing; the edges are found before the clock starts. What is timed is what a
// program that knows its edges would do: set the counters, spawn what is ready.
#include <tbb/global_control.h>
#include <tbb/task_arena.h>
#include <tbb/task_group.h>

#include <atomic>
#include <memory>

#include "peer.hpp"

namespace strata::bench {

const std::vector<EnvironmentSetting> kEnvironment = {};

namespace {

class OneTbbAdapter final : public Adapter {
 public:
  explicit OneTbbAdapter(unsigned threads)
      : control_(tbb::global_control::max_allowed_parallelism, threads),
        arena_(static_cast<int>(threads)) {}
  bool infers() override { return false; }
  std::string note() override { return "does not infer: edges are given"; }

  void prepare(const Workload& workload) override {
    edges_ = dependencies(workload);
    waiting_ = std::make_unique<std::atomic<std::uint32_t>[]>(workload.tasks());
  }

  void run() override {
    arena_.execute([this] {
      tbb::task_group group;
      const auto count = static_cast<std::uint32_t>(edges_.predecessors.size());
      for (std::uint32_t i = 0; i < count; ++i) {
        waiting_[i].store(edges_.predecessors[i], std::memory_order_relaxed);
      }
      for (std::uint32_t i = 0; i < count; ++i) {
        if (edges_.predecessors[i] == 0) spawn(group, i);
      }
      group.wait();
    });
  }

 private:
  void spawn(tbb::task_group& group, std::uint32_t task) {
    group.run([this, &group, task] {
      execute(task);
      for (const std::uint32_t next : edges_.successors_of(task)) {
        if (waiting_[next].fetch_sub(1, std::memory_order_acq_rel) == 1) spawn(group, next);
      }
    });
  }

  tbb::global_control control_;
  tbb::task_arena arena_;
  Dependencies edges_;
  std::unique_ptr<std::atomic<std::uint32_t>[]> waiting_;
};

}  // namespace

std::unique_ptr<Adapter> make_adapter(unsigned threads) {
  return std::make_unique<OneTbbAdapter>(threads);
}

}  // namespace strata::bench
