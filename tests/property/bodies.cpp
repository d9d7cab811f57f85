#include "bodies.hpp"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "outcome.hpp"

namespace strata::property {

void delay(int how_long) {
  if (how_long >= 100) {
    std::this_thread::sleep_for(std::chrono::microseconds(how_long));
    return;
  }
  for (int i = 0; i < how_long; ++i)
    std::this_thread::yield();
}

Bodies::Bodies(const Program& program, const Model& model) : program_(program), model_(model) {
  for (const Node& node : model.nodes()) {
    NodeNotes& notes = notes_.emplace_back();
    for (std::size_t m = 0; node.submitted() && m < node.step->works.size(); ++m) {
      notes.members.emplace_back();
    }
  }
}

void Bodies::error(std::string message) {
  const std::lock_guard lock(mutex_);
  if (errors_.size() < 20) errors_.push_back(std::move(message));
}

void Bodies::collect(Trace& trace, const std::vector<LaneId>& lanes) {
  for (std::size_t n = 0; n < notes_.size(); ++n) {
    NodeTrace& node = trace.nodes[n];
    for (const Note& note : notes_[n].members) {
      const auto lane = std::find(lanes.begin(), lanes.end(), note.lane) - lanes.begin();
      node.members.push_back({note.start, note.end, static_cast<int>(lane), note.runs.load()});
      if (note.runs.load() == 0) continue;
      if (!node.id) node.id = note.id;
      if (node.id != note.id) {
        error(model_.name(static_cast<int>(n)) + " ran as task " + std::to_string(note.id.value) +
              " but was submitted as " + std::to_string(node.id.value));
      }
    }
  }
}

std::vector<std::string> Bodies::take_errors() {
  const std::lock_guard lock(mutex_);
  return std::exchange(errors_, {});
}

void Bodies::wait_for(const std::atomic<int>& arrived, int count) {
  // Two who meet are mostly there within microseconds; more than that is sleep, not spin.
  for (int spins = 0; arrived.load() < count; ++spins) {
    if (spins < 50) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

void Bodies::meet(const Node& node, NodeNotes& notes) {
  if (node.type == NodeType::group) {
    // Members start together or not at all: each waits for the others.
    notes.arrived.fetch_add(1);
    wait_for(notes.arrived, static_cast<int>(node.step->works.size()));
  }
  if (program_.meet_a >= 0 && node.replay < 0 &&
      (node.step->id == program_.meet_a || node.step->id == program_.meet_b)) {
    met_.fetch_add(1);
    wait_for(met_, 2);
  }
}

bool Bodies::check_arguments(TaskContext& context, const Node& node, int index, int member) {
  std::size_t count = 0;
  for (const Use& use : node.uses) {
    if (use.member != member) continue;
    ++count;
    const auto i = static_cast<std::size_t>(use.argument);
    if (i >= context.tensor_count()) break;
    const TensorView view = context.tensor(i);
    const bool same = view.dtype() == use.view.dtype && view.access() == use.access &&
                      std::equal(view.shape().begin(), view.shape().end(), use.view.shape.begin(),
                                 use.view.shape.end()) &&
                      std::equal(view.strides().begin(), view.strides().end(),
                                 use.view.strides.begin(), use.view.strides.end());
    if (!same) error(model_.name(index) + " was given another tensor " + std::to_string(i));
    const auto instance = static_cast<std::size_t>(use.instance);
    if (instance < buffers_.size() && view.data() != buffers_[instance] + use.view.offset) {
      error(model_.name(index) + " was given another address for tensor " + std::to_string(i));
    }
  }
  if (count != context.tensor_count()) {
    error(model_.name(index) + " was given " + std::to_string(context.tensor_count()) +
          " tensors and not " + std::to_string(count));
    return false;
  }
  const auto wanted = static_cast<std::uint32_t>(node.step->works.size());
  if (context.members() != wanted || context.member() != static_cast<std::uint32_t>(member)) {
    error(model_.name(index) + " was told a wrong place in its group");
  }
  return true;
}

void Bodies::run(TaskContext& context, int index, int member) {
  const std::uint64_t start = now();
  if (index < 0 || index >= model_.size() ||
      static_cast<std::size_t>(member) >= notes_[static_cast<std::size_t>(index)].members.size()) {
    error("a body was given scalars of no task: " + std::to_string(index));
    return;
  }
  const Node& node = model_.node(index);
  NodeNotes& notes = notes_[static_cast<std::size_t>(index)];
  Note& note = notes.members[static_cast<std::size_t>(member)];
  if (note.runs.fetch_add(1) != 0) {
    error(model_.name(index) + " ran twice");
    return;
  }
  note.start = start;
  note.id = context.task();
  note.lane = context.lane();
  const bool usable = check_arguments(context, node, index, member);
  meet(node, notes);

  const Work& work = node.step->works[static_cast<std::size_t>(member)];
  delay(work.delay);
  const auto give_up = [&] {
    note.end = now();
    throw std::runtime_error("planned failure of " + model_.name(index));
  };
  if (work.fault == Fault::before_writing || !usable) give_up();

  std::vector<std::uint64_t> scalars(context.scalar_count());
  for (std::size_t i = 0; i < scalars.size(); ++i)
    scalars[i] = context.scalar<std::uint64_t>(i);
  std::uint64_t hash = begin_hash(scalars.data(), scalars.size());
  const auto each_byte = [&](const Use& use, auto&& visit) {
    const TensorView view = context.tensor(static_cast<std::size_t>(use.argument));
    auto* data = reinterpret_cast<std::uint8_t*>(view.data());
    for_each_byte(view.shape().data(), view.strides().data(), view.shape().size(),
                  static_cast<std::int64_t>(size_of(view.dtype())),
                  [&](std::int64_t at) { visit(data[at]); });
  };
  for (const Use& use : node.uses) {
    if (use.member != member || !use.reads || !use.touched) continue;
    each_byte(use, [&](const std::uint8_t& byte) { hash = add_byte(hash, byte); });
  }
  for (const Use& use : node.uses) {
    if (use.member != member || !use.writes || !use.touched) continue;
    std::uint64_t k = 0;
    each_byte(use, [&](std::uint8_t& byte) { byte = written_byte(hash, use.argument, k++); });
  }
  if (work.fault == Fault::after_writing) give_up();
  note.end = now();
}

}  // namespace strata::property
