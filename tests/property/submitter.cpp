#include "submitter.hpp"

#include "outcome.hpp"

namespace strata::property {
namespace {

std::uint64_t fill_of(int storage) { return fill_byte(storage) * 0x0101010101010101ULL; }

}  // namespace

Tensor Submitter::tensor_of(const View& view, Tracking tracking) const {
  if (view.storage < kFirstAllocated) {
    return Tensor(places_.buffers[static_cast<std::size_t>(view.storage)], view.offset, view.dtype,
                  view.shape, view.strides)
        .tracked(tracking);
  }
  const Tensor& base = tensors_.at(view.storage);
  return Tensor(base.buffer(), base.byte_offset() + view.offset, view.dtype, view.shape,
                view.strides)
      .tracked(tracking);
}

Target Submitter::target_of(const Step& step) const {
  const auto i = static_cast<std::size_t>(step.target);
  return step.exact ? on(places_.lanes[i]) : on(places_.kinds[i]);
}

void Submitter::pack(Pack& pack, const Work& work) {
  for (const Arg& arg : work.args) {
    TensorArg a;
    a.access = arg.access;
    a.tracking = arg.tracking;
    if (arg.allocates) {
      Tensor& tensor = pack.tensors.emplace_back(arg.view.dtype, arg.view.shape);
      const bool filled = arg.filled || !work.has_body;
      pack.fills.push_back(fill_of(arg.view.storage));
      a = filled ? out(tensor, &pack.fills.back()) : out(tensor);
      pack.allocated.emplace_back(arg.view.storage, &tensor);
    } else {
      a.tensor = &pack.tensors.emplace_back(tensor_of(arg.view, arg.tensor_tracking));
    }
    pack.args.push_back(a);
  }
}

TaskId Submitter::submit_in(const Manner& manner, Orchestration& o, const Step& step) {
  std::deque<Pack> packs;
  for (std::size_t m = 0; m < step.works.size(); ++m) {
    Pack& one = packs.emplace_back();
    pack(one, step.works[m]);
    one.scalars = manner.scalars;
    one.scalars.push_back(scalar(step.works[m].salt));
    if (step.works[m].has_body) one.body = manner.body(static_cast<int>(m));
  }
  const std::string_view name = names_.emplace_back(task_name(manner.recording, step.id));
  if (step.op == Op::group) {
    std::vector<GroupMember> members;
    for (std::size_t m = 0; m < step.works.size(); ++m) {
      members.push_back({.lane = places_.lanes[static_cast<std::size_t>(step.works[m].lane)],
                         .body = std::move(packs[m].body),
                         .tensors = packs[m].args,
                         .scalars = packs[m].scalars});
    }
    return o.submit_group({.members = members, .name = name, .after = manner.after});
  }
  Pack& one = packs.front();
  TaskSpec spec;
  spec.body = std::move(one.body);
  spec.name = name;
  spec.target = target_of(step);
  spec.priority = step.priority;
  spec.unordered = step.unordered;
  spec.tensors = one.args;
  spec.scalars = one.scalars;
  spec.after = manner.after;
  const TaskId id = o.submit_task(spec);
  for (const auto& [storage, tensor] : one.allocated) {
    tensors_[storage] = *tensor;
  }
  return id;
}

TaskId Submitter::submit(Orchestration& o, const Step& step, int node,
                         const std::vector<TaskId>& after) {
  const auto body = [this, node](int member) {
    return Body([bodies = &bodies_, node, member](TaskContext& context) {
      bodies->run(context, node, member);
    });
  };
  return submit_in({.body = body, .scalars = {}, .after = after}, o, step);
}

void Submitter::allocate(Orchestration& o, const View& view) {
  const std::uint64_t fill = fill_of(view.storage);
  tensors_[view.storage] = o.allocate(view.dtype, view.shape, &fill);
}

void Submitter::record(Engine& engine, int recording) {
  const RecordingPlan& plan = program_.recordings[static_cast<std::size_t>(recording)];
  RecordingSpec spec;
  for (const View& view : plan.parameters) {
    spec.tensors.push_back(tensor_of(view, Tracking::full));
  }
  spec.scalars = 2;
  recordings_.push_back(engine.record(spec, [&](Orchestration& o, const Parameters& parameters) {
    for (std::size_t p = 0; p < plan.parameters.size(); ++p) {
      tensors_[kFirstParameter + static_cast<int>(p)] = parameters.tensor(p);
    }
    std::vector<Scope> scopes;
    std::map<int, TaskId> ids;
    int index = 0;
    for (const Step& step : plan.steps) {
      if (step.op == Op::open_scope) {
        scopes.push_back(o.scope({.name = "recorded", .manual = step.manual}));
        continue;
      }
      if (step.op == Op::close_scope) {
        scopes.pop_back();
        continue;
      }
      Manner manner{.body = {},
                    .scalars = {parameters.scalar(0), parameters.scalar(1)},
                    .after = {},
                    .recording = recording};
      for (const int other : step.after) {
        manner.after.push_back(ids.at(other));
      }
      manner.body = [this, index](int member) {
        return Body([bodies = &bodies_, index, member](TaskContext& context) {
          // The first scalar says which replay this is: the node of its first task.
          const int first = static_cast<int>(context.scalar<std::uint64_t>(0));
          bodies->run(context, first + index, member);
        });
      };
      ids[step.id] = submit_in(manner, o, step);
      ++index;
    }
    while (!scopes.empty()) {
      scopes.pop_back();
    }
  }));
}

void Submitter::replay(Orchestration& o, const Step& step, int first) {
  std::vector<Tensor> tensors;
  for (const View& view : step.bindings) {
    tensors.push_back(tensor_of(view, Tracking::full));
  }
  const Scalar scalars[] = {scalar(static_cast<std::uint64_t>(first)), scalar(step.salt)};
  o.replay(recordings_[static_cast<std::size_t>(step.other)], tensors, scalars);
}

}  // namespace strata::property
