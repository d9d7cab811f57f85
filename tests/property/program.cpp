#include "program.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace strata::property {

std::int64_t bytes_of(const View& view) {
  std::int64_t bytes = static_cast<std::int64_t>(size_of(view.dtype));
  for (const std::int64_t extent : view.shape)
    bytes *= extent;
  return bytes;
}

Span span_of(const View& view) {
  const auto element = static_cast<std::int64_t>(size_of(view.dtype));
  Span span{view.offset, view.offset + element};
  for (std::size_t d = 0; d < view.shape.size(); ++d) {
    if (view.shape[d] == 0) return {};
    const std::int64_t reach = (view.shape[d] - 1) * view.strides[d] * element;
    (reach < 0 ? span.begin : span.end) += reach;
  }
  return span;
}

View whole(int storage, DType dtype, std::vector<std::int64_t> shape) {
  View view{
      .storage = storage, .dtype = dtype, .offset = 0, .shape = std::move(shape), .strides = {}};
  view.strides.resize(view.shape.size());
  std::int64_t stride = 1;
  for (std::size_t d = view.shape.size(); d-- > 0;) {
    view.strides[d] = stride;
    stride *= view.shape[d];
  }
  return view;
}

int kind_of_lane(const Program& program, int lane) {
  for (std::size_t k = 0; k < program.kinds.size(); ++k) {
    if (lane < program.kinds[k].lanes()) return static_cast<int>(k);
    lane -= program.kinds[k].lanes();
  }
  return 0;
}

int lane_count(const Program& program) {
  int count = 0;
  for (const KindPlan& kind : program.kinds)
    count += kind.lanes();
  return count;
}

std::string task_name(int recording, int step) {
  std::string name = "t" + std::to_string(step);
  return recording < 0 ? name : "r" + std::to_string(recording) + "." + name;
}

namespace {

/// Walks one list of steps in order and drops what does not stand on what came before.
class Normalizer {
 public:
  Normalizer(const Program& program, std::map<int, std::int64_t> sizes, bool recording)
      : program_(program), sizes_(std::move(sizes)), recording_(recording) {}

  /// True if the step stays.
  bool keep(Step& step) {
    if (gone_.contains(step.run) && !recording_) return false;
    std::erase_if(step.after, [&](int id) { return !submitted_.contains(id); });
    if (!keep_op(step)) return false;
    if (step.op == Op::task || step.op == Op::group) submitted_.insert(step.id);
    return true;
  }

 private:
  bool keep_op(Step& step) {
    switch (step.op) {
      case Op::task:
        if (step.works.size() != 1) return false;
        fix_target(step);
        fix_args(step);
        return true;
      case Op::group:
        return keep_group(step);
      case Op::open_scope:
        scopes_[step.run].push_back({step.manual, {}});
        return true;
      case Op::close_scope:
        return close_scope(step.run);
      case Op::allocate:
        if (sizes_.contains(step.view.storage) || bytes_of(step.view) == 0) return false;
        allocated(step.run, step.view);
        return true;
      case Op::keep:
        if (!usable(step.run, step.view) || step.view.storage < kFirstAllocated) return false;
        return kept_.insert(step.view.storage).second;
      case Op::wait_tensor:
      case Op::read:
      case Op::write:
        return usable(step.run, step.view) && !in_manual(step.run);
      case Op::overwrite:
        // The host has no address of the heap's memory.
        return step.view.storage < kFirstAllocated && usable(step.run, step.view) &&
               !in_manual(step.run);
      case Op::wait_task:
        return submitted_.contains(step.other);
      case Op::replay:
        return keep_replay(step);
      case Op::cancel:
        if (step.other < 0 || step.other >= static_cast<int>(program_.runs.size())) return false;
        if (!gone_.insert(step.other).second) return false;
        return true;
      case Op::misuse:
        return true;
    }
    return false;
  }

  void fix_target(Step& step) {
    const int count = step.exact ? lane_count(program_) : static_cast<int>(program_.kinds.size());
    step.target %= count;
    if (!step.exact) step.unordered = false;
  }

  bool keep_group(Step& step) {
    std::set<int> lanes;
    std::erase_if(step.works, [&](const Work& member) {
      // A lane that runs bodies within dispatch() can't take part in what waits for each other.
      return member.lane >= lane_count(program_) || !member.has_body ||
             program_.kinds[static_cast<std::size_t>(kind_of_lane(program_, member.lane))]
                 .completes_inline ||
             !lanes.insert(member.lane).second;
    });
    if (step.works.empty()) return false;
    fix_args(step);
    return true;
  }

  void fix_args(Step& step) {
    for (Work& work : step.works) {
      std::erase_if(work.args, [&](Arg& arg) {
        if (!arg.allocates) return !usable(step.run, arg.view);
        // Only plain tasks allocate; each storage once.
        return step.op != Op::task || in_manual(step.run) || sizes_.contains(arg.view.storage) ||
               bytes_of(arg.view) == 0 || duplicate(work, arg);
      });
    }
    for (const Work& work : step.works) {
      for (const Arg& arg : work.args) {
        if (arg.allocates) allocated(step.run, arg.view);
      }
    }
  }
  static bool duplicate(const Work& work, const Arg& arg) {
    return std::any_of(work.args.data(), &arg, [&](const Arg& earlier) {
      return earlier.view.storage == arg.view.storage;
    });
  }

  bool close_scope(int run) {
    auto& scopes = scopes_[run];
    if (scopes.empty()) return false;
    for (const int storage : scopes.back().storages) {
      if (!kept_.contains(storage)) sizes_.erase(storage), dead_.insert(storage);
    }
    scopes.pop_back();
    return true;
  }

  bool keep_replay(Step& step) {
    if (step.other < 0 || step.other >= static_cast<int>(program_.recordings.size())) return false;
    const RecordingPlan& recording = program_.recordings[static_cast<std::size_t>(step.other)];
    const bool submits = std::any_of(
        recording.steps.begin(), recording.steps.end(),
        [](const Step& inner) { return inner.op == Op::task || inner.op == Op::group; });
    if (!submits || in_manual(step.run)) return false;
    if (step.bindings.size() != recording.parameters.size()) return false;
    return std::all_of(step.bindings.begin(), step.bindings.end(),
                       [&](const View& view) { return usable(step.run, view); });
  }

  void allocated(int run, const View& view) {
    if (dead_.contains(view.storage)) return;
    sizes_[view.storage] = bytes_of(view);
    owner_[view.storage] = run;
    if (!scopes_[run].empty()) scopes_[run].back().storages.push_back(view.storage);
  }

  /// The storage is there, for this run, and the view stays inside.
  bool usable(int run, const View& view) const {
    const auto size = sizes_.find(view.storage);
    if (size == sizes_.end()) return false;
    if (const auto owner = owner_.find(view.storage); owner != owner_.end()) {
      if (owner->second != run && !kept_.contains(view.storage)) return false;
    }
    if (view.storage >= kFirstParameter && view.storage < kFirstLocal) return true;
    const Span span = span_of(view);
    return span.begin >= 0 && span.end <= size->second;
  }

  bool in_manual(int run) const {
    const auto scopes = scopes_.find(run);
    return scopes != scopes_.end() &&
           std::any_of(scopes->second.begin(), scopes->second.end(),
                       [](const OpenScope& scope) { return scope.manual; });
  }

  struct OpenScope {
    bool manual;
    std::vector<int> storages;
  };
  const Program& program_;
  std::map<int, std::int64_t> sizes_;
  bool recording_;
  std::map<int, int> owner_;
  std::map<int, std::vector<OpenScope>> scopes_;
  std::set<int> kept_, dead_, submitted_, gone_;
};

void normalize_recording(const Program& program, RecordingPlan& recording) {
  std::map<int, std::int64_t> sizes;
  for (std::size_t p = 0; p < recording.parameters.size(); ++p) {
    sizes[kFirstParameter + static_cast<int>(p)] = 0;
  }
  Normalizer normalizer(program, sizes, true);
  std::erase_if(recording.steps, [&](Step& step) {
    const bool allowed = step.op == Op::task || step.op == Op::group || step.op == Op::open_scope ||
                         step.op == Op::close_scope;
    return !allowed || !normalizer.keep(step);
  });
}

}  // namespace

void normalize(Program& program) {
  if (program.kinds.empty()) program.kinds.emplace_back();
  if (program.runs.empty()) program.runs.emplace_back();
  for (RecordingPlan& recording : program.recordings)
    normalize_recording(program, recording);

  std::map<int, std::int64_t> sizes;
  for (std::size_t b = 0; b < program.buffers.size(); ++b) {
    sizes[static_cast<int>(b)] = program.buffers[b];
  }
  if (program.runs.size() > 1) program.direct = false;
  for (Step& step : program.steps) {
    if (step.run >= static_cast<int>(program.runs.size())) step.run = 0;
  }
  if (program.sequential) {
    std::stable_sort(program.steps.begin(), program.steps.end(),
                     [](const Step& a, const Step& b) { return a.run < b.run; });
  }
  Normalizer normalizer(program, sizes, false);
  std::erase_if(program.steps, [&](Step& step) {
    // While lanes are held nothing ends, so nothing may be waited for.
    const bool waits = step.op == Op::wait_tensor || step.op == Op::wait_task ||
                       step.op == Op::read || step.op == Op::write || step.op == Op::overwrite;
    if (program.held && waits) return true;
    if (program.sequential && step.op == Op::cancel && step.other != step.run) return true;
    return !normalizer.keep(step);
  });
  const auto there = [&](int id) {
    return std::any_of(program.steps.begin(), program.steps.end(),
                       [&](const Step& step) { return step.id == id; });
  };
  if (!there(program.meet_a) || !there(program.meet_b)) program.meet_a = program.meet_b = -1;
  const bool cancels = std::any_of(program.steps.begin(), program.steps.end(),
                                   [](const Step& step) { return step.op == Op::cancel; });
  if (cancels) {
    // Whether a task without a body was dropped can't be seen.
    for (Step& step : program.steps) {
      for (Work& work : step.works)
        work.has_body = true;
    }
    for (RecordingPlan& recording : program.recordings) {
      for (Step& step : recording.steps) {
        for (Work& work : step.works)
          work.has_body = true;
      }
    }
  }
  if (program.held) {
    program.sequential = false;
    program.tight_heap = false;
    program.window = 1 << 14;
  }
}

}  // namespace strata::property
