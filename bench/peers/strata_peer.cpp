// Strata itself, measured like any other peer.
//
// With one thread, the calling thread is the only lane; with N, it is one of N. Regions are views
// of one tensor, as a program would have them, so that dependencies are found by overlap.
#include <memory>
#include <optional>
#include <strata/strata.hpp>

#include "peer.hpp"
#include "timing.hpp"

namespace strata::bench {

const std::vector<EnvironmentSetting> kEnvironment = {};

namespace {

constexpr std::int64_t kSlice = 16;  // elements of a region that is a slice: a cache line
constexpr std::int64_t kTile = 4;    // rows and columns of one that is a tile

/// Everything that is measured with the lanes held must fit into the window.
constexpr std::size_t kHeldWindow = std::size_t{1} << 17;

/// The tensor that the regions of a workload are views of.
std::vector<std::int64_t> shape_of_whole(const Workload& workload) {
  if (workload.grid == 0) return {workload.regions * kSlice};
  return {workload.grid * kTile, workload.grid * kTile};
}

Tensor region_of(const Tensor& whole, const Workload& workload, std::uint32_t region) {
  if (workload.grid == 0) return whole.slice(0, region * kSlice, (region + 1) * kSlice);
  const std::int64_t grid = workload.grid;
  if (region < grid * grid) {
    return whole.tile({region / grid * kTile, region % grid * kTile}, {kTile, kTile});
  }
  const std::int64_t shifted = region - grid * grid;
  const std::int64_t row = shifted / (grid - 1) * kTile + kTile / 2;
  const std::int64_t column = shifted % (grid - 1) * kTile + kTile / 2;
  return whole.tile({row, column}, {kTile, kTile});
}

/// The arguments of a workload's tasks, made in advance as the other peers' are.
class Arguments {
 public:
  Arguments(const Tensor& whole, const Workload& workload) : workload_(&workload) {
    for (std::uint32_t r = 0; r < workload.regions; ++r) {
      regions_.push_back(region_of(whole, workload, r));
    }
    for (const WorkAccess access : workload.accesses) {
      const Tensor& region = regions_[access.region];
      arguments_.push_back(access.mode == Mode::read    ? in(region)
                           : access.mode == Mode::write ? out(region)
                                                        : inout(region));
    }
  }

  void submit(Orchestration& orchestration, std::uint32_t task) const {
    const std::uint32_t first = workload_->first[task];
    const std::uint32_t count = workload_->first[task + 1] - first;
    const auto body = [task](TaskContext&) { execute(task); };
    if (count == 2) {  // as a program with a fixed number of arguments does it
      orchestration.submit(body, arguments_[first], arguments_[first + 1]);
      return;
    }
    TaskSpec spec{.body = body, .tensors = std::span(arguments_).subspan(first, count)};
    orchestration.submit_task(spec);
  }
  void submit_all(Orchestration& orchestration) const {
    const auto count = static_cast<std::uint32_t>(workload_->tasks());
    for (std::uint32_t i = 0; i < count; ++i)
      submit(orchestration, i);
  }

 private:
  const Workload* workload_;
  std::vector<Tensor> regions_;
  std::vector<TensorArg> arguments_;
};

EngineOptions options_for(unsigned threads) {
  KindOptions lanes;
  lanes.name = "cpu";
  lanes.threads = threads - 1;
  lanes.callers = 1;
  EngineOptions options;
  options.kinds.push_back(lanes);
  return options;
}

class StrataAdapter final : public Adapter {
 public:
  explicit StrataAdapter(unsigned threads) : options_(options_for(threads)) {
    engine_.emplace(options_);
  }

  void prepare(const Workload& workload) override {
    arguments_.reset();
    if (whole_.has_storage()) engine_->remove_buffer(whole_.buffer());
    const std::vector<std::int64_t> shape = shape_of_whole(workload);
    std::int64_t elements = 1;
    for (const std::int64_t extent : shape)
      elements *= extent;
    memory_.assign(static_cast<std::size_t>(elements), 0.0f);
    const BufferId buffer = engine_->add_buffer(memory_.data(), memory_.size() * sizeof(float));
    whole_ = Tensor(buffer, 0, DType::float32, shape);
    arguments_.emplace(whole_, workload);
    workload_ = &workload;
  }
  void run() override {
    engine_->run([this](Orchestration& orchestration) { arguments_->submit_all(orchestration); });
  }

  bool prepare_replay(const Workload& workload) override {
    prepare(workload);
    const RecordingSpec spec{.tensors = {whole_}};
    recording_ = engine_->record(spec, [&](Orchestration& orchestration, const Parameters& given) {
      const Arguments arguments(given.tensor(0), workload);
      arguments.submit_all(orchestration);
    });
    return true;
  }
  void replay() override {
    engine_->run(
        [this](Orchestration& orchestration) { orchestration.replay(recording_, {whole_}); });
  }

  bool prepare_held(const Workload& workload) override {
    restart_with_window(kHeldWindow);
    prepare(workload);
    return true;
  }
  Tenths submit_held() override {
    Tenths tenths{};
    engine_->run([&](Orchestration& orchestration) {
      const LaneHold hold = engine_->hold_lanes();  // to the end of the orchestration
      const auto count = static_cast<std::uint32_t>(workload_->tasks());
      TenthsTimer timer(workload_->timed_from, count);
      for (std::uint32_t i = 0; i < count; ++i) {
        timer.lap(i);
        arguments_->submit(orchestration, i);
      }
      tenths = timer.finish();
    });
    return tenths;
  }

  bool prepare_replay_held(const Workload& workload) override {
    restart_with_window(kHeldWindow);
    return prepare_replay(workload);
  }
  double replay_held() override {
    double elapsed = 0;
    engine_->run([&](Orchestration& orchestration) {
      const LaneHold hold = engine_->hold_lanes();
      const double begin = now_ns();
      orchestration.replay(recording_, {whole_});
      elapsed = now_ns() - begin;
    });
    return elapsed;
  }

 private:
  void restart_with_window(std::size_t window) {
    options_.window = window;
    engine_.reset();
    whole_ = Tensor();
    engine_.emplace(options_);
  }

  EngineOptions options_;
  const Workload* workload_ = nullptr;
  std::vector<float> memory_;  // outlives the engine that knows it
  std::optional<Engine> engine_;
  Tensor whole_;
  std::optional<Arguments> arguments_;
  Recording recording_;
};

}  // namespace

std::unique_ptr<Adapter> make_adapter(unsigned threads) {
  return std::make_unique<StrataAdapter>(threads);
}

}  // namespace strata::bench
