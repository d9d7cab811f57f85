#include "runner.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include "bodies.hpp"
#include "lanes.hpp"
#include "misuse.hpp"
#include "outcome.hpp"
#include "submitter.hpp"
#include "turns.hpp"

namespace strata::property {
namespace {

class Runner {
 public:
  Runner(const Program& program, const Model& model)
      : program_(program),
        model_(model),
        bodies_(program, model),
        submitter_(program, bodies_, places_),
        turns_(program) {
    trace_.nodes.resize(static_cast<std::size_t>(model.size()));
    trace_.runs.resize(program.runs.size());
    for (std::size_t b = 0; b < program.buffers.size(); ++b) {
      auto& bytes = trace_.buffers.emplace_back(static_cast<std::size_t>(program.buffers[b]));
      for (std::size_t at = 0; at < bytes.size(); ++at) {
        bytes[at] = initial_byte(static_cast<int>(b), static_cast<std::int64_t>(at));
      }
    }
  }

  Trace run() {
    start_engine();
    for (std::size_t r = 0; r < program_.recordings.size(); ++r)
      submitter_.record(*engine_, static_cast<int>(r));
    if (program_.held) hold_.emplace(engine_->hold_lanes());
    turns_.on_last([this] { hold_.reset(); });
    handles_.resize(program_.runs.size());
    if (program_.steps.empty()) hold_.reset();
    if (program_.sequential || program_.direct) turns_.open();
    for (std::size_t r = 0; r < program_.runs.size(); ++r) {
      open_run(static_cast<int>(r));
      if (program_.sequential) handles_[r]->wait();
    }
    turns_.open();
    for (std::size_t r = 0; r < program_.runs.size(); ++r)
      close_run(r);
    for (const auto& lane : external_)
      lane->drain();
    bodies_.collect(trace_, places_.lanes);
    if (program_.keep_graph) export_graphs();
    for (auto& [storage, handle] : kept_) {
      const auto* data = reinterpret_cast<const std::uint8_t*>(handle.data());
      const int instance = model_.instance_of(storage);
      const auto size =
          static_cast<std::size_t>(model_.instances()[static_cast<std::size_t>(instance)].bytes);
      trace_.kept.emplace_back(instance, std::vector<std::uint8_t>(data, data + size));
    }
    kept_.clear();
    stop_engine();
    trace_.errors = bodies_.take_errors();
    return std::move(trace_);
  }

 private:
  struct OpenRun {
    std::vector<Scope> scopes;
  };

  // ---- Engine

  void start_engine() {
    EngineOptions options;
    for (std::size_t k = 0; k < program_.kinds.size(); ++k) {
      const KindPlan& plan = program_.kinds[k];
      KindOptions kind;
      kind.name = "kind" + std::to_string(k);
      for (int e = 0; e < plan.external; ++e) {
        std::shared_ptr<TestLane> lane;
        if (plan.completes_inline) {
          lane = std::make_shared<InlineLane>();
        } else {
          lane = std::make_shared<HelperLane>();
        }
        external_.push_back(lane);
        kind.external.push_back(lane);
      }
      if (plan.external == 0) {
        kind.threads = static_cast<unsigned>(plan.threads);
        kind.callers = static_cast<unsigned>(plan.callers);
      }
      kind.depth = static_cast<unsigned>(plan.depth);
      options.kinds.push_back(std::move(kind));
    }
    const auto all = static_cast<std::size_t>(model_.size()) + 16;
    options.window = program_.window;
    if (program_.held || program_.meet_a >= 0) options.window = all;
    options.heap = static_cast<std::size_t>(program_.tight_heap ? model_.tight_heap()
                                                                : model_.wide_heap() + 4096);
    options.max_open_runs = program_.runs.size() + 1;
    engine_ = std::make_unique<Engine>(std::move(options));
    for (const auto& lane : external_)
      lane->attach(*engine_);
    for (std::size_t k = 0; k < program_.kinds.size(); ++k) {
      places_.kinds.push_back(engine_->kind("kind" + std::to_string(k)));
      for (const LaneId lane : engine_->lanes(places_.kinds.back())) {
        places_.lanes.push_back(lane);
      }
    }
    std::vector<std::byte*> addresses;
    for (auto& bytes : trace_.buffers) {
      addresses.push_back(reinterpret_cast<std::byte*>(bytes.data()));
      places_.buffers.push_back(engine_->add_buffer(bytes.data(), bytes.size()));
    }
    bodies_.set_buffers(std::move(addresses));
  }

  void stop_engine() {
    // The last of the book keeping may end a moment after the run.
    while (engine_->stats().window_used != 0 || engine_->stats().heap_used != 0)
      delay(100);
    for (const BufferId buffer : places_.buffers)
      engine_->remove_buffer(buffer);
    while (engine_->stats().live_buffers != 0 || engine_->stats().live_regions != 0)
      delay(100);
    engine_.reset();
  }

  void open_run(int r) {
    RunOptions options;
    options.name = "run" + std::to_string(r);
    options.read_after_write_only = program_.runs[static_cast<std::size_t>(r)].raw_only;
    options.keep_graph = program_.keep_graph;
    const auto orchestration = [this, r](Orchestration& o) {
      if (program_.direct) handles_[0] = o.run();
      orchestrate(o, r);
    };
    auto& handle = handles_[static_cast<std::size_t>(r)];
    if (!program_.direct) {
      handle = engine_->submit(orchestration, options);
      return;
    }
    try {
      handle = engine_->run(orchestration, options);
    } catch (const std::exception&) {
      // close_run asks the handle for the same again.
    }
  }

  void close_run(std::size_t r) {
    RunTrace& trace = trace_.runs[r];
    const Run& run = *handles_[r];
    run.wait();
    try {
      run.result();
    } catch (const RunFailed& failure) {
      trace.result_failed = true;
      trace.failed = failure.failed();
      trace.skipped = failure.skipped();
    } catch (const Cancelled&) {
      trace.result_cancelled = true;
    } catch (const std::exception& e) {
      bodies_.error("run " + std::to_string(r) + " ended with " + e.what());
    }
    trace.stats = run.stats();
  }

  void export_graphs() {
    for (std::size_t r = 0; r < program_.runs.size(); ++r) {
      trace_.runs[r].graph = handles_[r]->graph();
    }
    for (int n = 0; n < model_.size(); ++n) {
      NodeTrace& node = trace_.nodes[static_cast<std::size_t>(n)];
      const auto run = static_cast<std::size_t>(model_.node(n).run);
      if (model_.node(n).submitted() && node.id) node.why = handles_[run]->why(node.id);
    }
  }

  // ---- Orchestrations

  void orchestrate(Orchestration& o, int r) {
    OpenRun open;
    try {
      for (std::size_t s = 0; s < program_.steps.size(); ++s) {
        const Step& step = program_.steps[s];
        if (step.run != r) continue;
        turns_.await(s);
        delay(step.pause);
        act(o, open, step);
        turns_.done(s);
      }
    } catch (const std::exception& e) {
      bodies_.error("orchestration of run " + std::to_string(r) + ": " + e.what());
      turns_.abandon(r);
    }
    while (!open.scopes.empty())
      open.scopes.pop_back();
  }

  void act(Orchestration& o, OpenRun& open, const Step& step) {
    const int n = model_.first_node(step.id);
    NodeTrace* node = n < 0 ? nullptr : &trace_.nodes[static_cast<std::size_t>(n)];
    if (node != nullptr) node->submit_begin = bodies_.now();
    switch (step.op) {
      case Op::task:
      case Op::group:
        node->id = submitter_.submit(o, step, n, after_of(step));
        break;
      case Op::replay:
        submitter_.replay(o, step, n);
        break;
      case Op::open_scope:
        open.scopes.push_back(o.scope({.name = "s", .manual = step.manual}));
        break;
      case Op::close_scope:
        open.scopes.pop_back();
        break;
      case Op::allocate:
        submitter_.allocate(o, step.view);
        break;
      case Op::keep:
        kept_.emplace(step.view.storage, o.keep(submitter_.storage(step.view.storage)));
        break;
      case Op::cancel:
        cancel(o, step);
        break;
      case Op::misuse:
        expect_refusal(o, *engine_, step.other, places_.buffers, places_.lanes, bodies_);
        break;
      default:
        act_as_host(o, step, *node);
        break;
    }
    if (node != nullptr) node->submit_end = bodies_.now();
    if (step.op == Op::replay) share_submit_times(n);
  }

  std::vector<TaskId> after_of(const Step& step) const {
    std::vector<TaskId> ids;
    for (const int other : step.after) {
      const TaskId id = trace_.nodes[static_cast<std::size_t>(model_.first_node(other))].id;
      if (id) ids.push_back(id);
    }
    return ids;
  }

  /// The tasks of a replay were submitted at some moment during it.
  void share_submit_times(int first) {
    const NodeTrace& one = trace_.nodes[static_cast<std::size_t>(first)];
    for (int n = first; n < model_.size() && model_.node(n).replay == first; ++n) {
      trace_.nodes[static_cast<std::size_t>(n)].submit_begin = one.submit_begin;
      trace_.nodes[static_cast<std::size_t>(n)].submit_end = one.submit_end;
    }
  }

  void cancel(Orchestration& o, const Step& step) {
    const auto victim = static_cast<std::size_t>(step.other);
    (step.other == step.run ? o.run() : *handles_[victim]).cancel();
    trace_.runs[victim].cancelled_at = bodies_.now();
  }

  void act_as_host(Orchestration& o, const Step& step, NodeTrace& node) {
    try {
      if (step.op == Op::wait_task) {
        o.wait(trace_.nodes[static_cast<std::size_t>(model_.first_node(step.other))].id);
        return;
      }
      const Tensor tensor = submitter_.tensor_of(step.view, Tracking::full);
      if (step.op == Op::wait_tensor) o.wait(tensor);
      if (step.op == Op::read) read_or_write(o, step, tensor, node);
      if (step.op == Op::write) read_or_write(o, step, tensor, node);
      if (step.op == Op::overwrite) {
        o.overwrite(tensor);
        std::uint8_t* data = trace_.buffers[static_cast<std::size_t>(step.view.storage)].data();
        std::uint64_t k = 0;
        for_each_byte(step.view, [&](std::int64_t at) {
          data[step.view.offset + at] = written_byte(step.salt, 0, k++);
        });
      }
    } catch (const RunFailed&) {
      node.threw = true;
    }
  }

  void read_or_write(Orchestration& o, const Step& step, const Tensor& tensor, NodeTrace& node) {
    switch (size_of(step.view.dtype)) {
      case 1:
        element<std::uint8_t>(o, step, tensor, node);
        return;
      case 2:
        element<std::uint16_t>(o, step, tensor, node);
        return;
      case 4:
        element<std::uint32_t>(o, step, tensor, node);
        return;
      default:
        element<std::uint64_t>(o, step, tensor, node);
        return;
    }
  }

  template <class T>
  void element(Orchestration& o, const Step& step, const Tensor& tensor, NodeTrace& node) {
    T value{};
    if (step.op == Op::read) {
      value = o.read<T>(tensor, {0});
      node.seen.resize(sizeof value);
      std::memcpy(node.seen.data(), &value, sizeof value);
      return;
    }
    std::uint8_t bytes[sizeof(T)];
    for (std::size_t k = 0; k < sizeof(T); ++k)
      bytes[k] = written_byte(step.salt, 0, k);
    std::memcpy(&value, bytes, sizeof value);
    o.write<T>(tensor, {0}, value);
  }

  const Program& program_;
  const Model& model_;
  Bodies bodies_;
  Places places_;
  Submitter submitter_;
  Turns turns_;
  Trace trace_;
  std::vector<std::shared_ptr<TestLane>> external_;
  std::unique_ptr<Engine> engine_;
  std::map<int, TensorHandle> kept_;
  std::vector<std::optional<Run>> handles_;
  std::optional<LaneHold> hold_;
};

}  // namespace

Trace run_program(const Program& program, const Model& model) {
  return Runner(program, model).run();
}

}  // namespace strata::property
