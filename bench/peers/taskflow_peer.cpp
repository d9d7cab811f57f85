// Taskflow: a graph of nodes and edges is built, then run; or run again.
//
// Taskflow infers nothing; the edges are found before the clock starts.
#include <memory>
#include <optional>
#include <taskflow/taskflow.hpp>

#include "peer.hpp"
#include "timing.hpp"

namespace strata::bench {

const std::vector<EnvironmentSetting> kEnvironment = {};

namespace {

class TaskflowAdapter final : public Adapter {
 public:
  explicit TaskflowAdapter(unsigned threads) : executor_(threads) {}
  bool infers() override { return false; }
  std::string note() override { return "does not infer: edges are given"; }

  void prepare(const Workload& workload) override {
    edges_ = dependencies(workload);
    nodes_.resize(workload.tasks());
  }
  void run() override {
    tf::Taskflow flow;
    build(flow);
    executor_.run(flow).wait();
  }

  bool prepare_replay(const Workload& workload) override {
    prepare(workload);
    built_.emplace();
    build(*built_);
    return true;
  }
  void replay() override { executor_.run(*built_).wait(); }

  bool prepare_held(const Workload& workload) override {
    prepare(workload);
    return workload.timed_from == 0;
  }
  Tenths submit_held() override {
    tf::Taskflow flow;
    const double begin = now_ns();
    build(flow);
    Tenths tenths;
    tenths.fill((now_ns() - begin) / static_cast<double>(nodes_.size()));
    executor_.run(flow).wait();
    return tenths;
  }

 private:
  void build(tf::Taskflow& flow) {
    const auto count = static_cast<std::uint32_t>(nodes_.size());
    for (std::uint32_t i = 0; i < count; ++i)
      nodes_[i] = flow.emplace([i] { execute(i); });
    for (std::uint32_t i = 0; i < count; ++i) {
      for (const std::uint32_t next : edges_.successors_of(i))
        nodes_[i].precede(nodes_[next]);
    }
  }

  tf::Executor executor_;
  Dependencies edges_;
  std::vector<tf::Task> nodes_;
  std::optional<tf::Taskflow> built_;
};

}  // namespace

std::unique_ptr<Adapter> make_adapter(unsigned threads) {
  return std::make_unique<TaskflowAdapter>(threads);
}

}  // namespace strata::bench
