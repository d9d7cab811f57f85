#include "chip/chip_engine.hpp"

#include <algorithm>

#include "chip/cores/core_lane.hpp"

namespace strata::chip {

namespace {

/// What has gathered is let go before anybody waits.
class RunProgress : public CoreProgress {
 public:
  RunProgress(CorePool& pool, Gathering& gathering, ipc::SpinnerBudget* budget) noexcept
      : CoreProgress(pool, budget), gathering_(gathering) {}

  bool try_acquire() override {
    gathering_.let_go_for_room();
    return CoreProgress::try_acquire();
  }

 private:
  Gathering& gathering_;
};

}  // namespace

ChipEngine::ChipEngine(CorePool& pool, Gathering& gathering, std::size_t window, std::size_t heap,
                       ipc::SpinnerBudget* budget)
    : lane_(std::make_shared<CoreLane>(pool)), window_(window), heap_(heap) {
  EngineOptions options;
  options.kinds = {{.name = "cores", .external = {lane_}, .depth = static_cast<unsigned>(window)}};
  options.window = window;
  options.heap = heap;
  options.window_setting = "ChipRunOptions::window (or STRATA_CHIP_WINDOW)";
  options.heap_setting = "ChipRunOptions::heap (or STRATA_CHIP_HEAP)";
  options.progress = std::make_shared<RunProgress>(pool, gathering, budget);
  engine_ = std::make_unique<Engine>(std::move(options));
  lane_->set_engine(*engine_);
  empty_ = engine_->add_buffer(nullptr, 0);
}

ChipEngine::~ChipEngine() = default;

void ChipEngine::set_dump(ArgumentDump* dump) noexcept { lane_->set_dump(dump); }

BufferId ChipEngine::buffer(const AddressRange& range, std::uint64_t run) {
  for (KnownBuffer& known : buffers_) {
    if (known.range.begin != range.begin || known.range.end != range.end) continue;
    known.last_run = run;
    return known.id;
  }
  if (buffers_.size() >= kMaxBuffers) drop_buffers(run);
  const BufferId id = engine_->add_buffer(range.data(), range.bytes());
  buffers_.push_back({.range = range, .id = id, .last_run = run});
  return id;
}

/// Drops the older half of those that the run does not use. No task is left that uses them.
void ChipEngine::drop_buffers(std::uint64_t run) {
  std::sort(buffers_.begin(), buffers_.end(),
            [](const KnownBuffer& a, const KnownBuffer& b) { return a.last_run > b.last_run; });
  while (buffers_.size() > kMaxBuffers / 2 && buffers_.back().last_run != run) {
    engine_->remove_buffer_later(buffers_.back().id, [] {});
    buffers_.pop_back();
  }
}

void ChipEngine::forget_buffers() {
  for (const KnownBuffer& known : buffers_)
    engine_->remove_buffer_later(known.id, [] {});
  buffers_.clear();
}

GraphCache& ChipEngine::graphs(const std::shared_ptr<const Program>& program) {
  // Another program may have the address of one that is gone.
  std::erase_if(graphs_, [](const ProgramGraphs& known) { return known.program.expired(); });
  for (const ProgramGraphs& known : graphs_) {
    if (known.address == program.get()) return *known.graphs;
  }
  graphs_.push_back(
      {.program = program, .address = program.get(), .graphs = std::make_unique<GraphCache>()});
  return *graphs_.back().graphs;
}

void ChipEngine::forget(const Program& program) {
  std::erase_if(graphs_, [&](const ProgramGraphs& known) { return known.address == &program; });
}

}  // namespace strata::chip
