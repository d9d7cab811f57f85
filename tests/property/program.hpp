// Program: a random task-graph program as plain data. The generator makes it, the model says what
// it means, the runner runs it through an engine, the shrinker takes parts away, and print() shows
// it.
//
// All references inside a program (to steps, storages, recordings) are by id, so that any part may
// be taken away; normalize() then removes what refers to nothing. Every normalized program is a
// legal one.
//
// A program is one list of steps in one order, each done by one run. The runner lets the runs take
// turns, so that this order is the order of submission over all runs.
//
// Thread safety: plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "strata/strata.hpp"

namespace strata::property {

/// Storages: user buffers have the ids 0, 1, ...; then come the ranges below.
inline constexpr int kFirstAllocated = 1000;  ///< Allocated by a step of a run.
inline constexpr int kFirstParameter = 5000;  ///< Parameter i of the recording around it.
inline constexpr int kFirstLocal = 6000;      ///< Allocated by a step of a recording.

/// A strided view: `offset` is in bytes from the storage's first byte (of a parameter: from its
/// element (0, 0, ...)) to the view's element (0, 0, ...).
struct View {
  int storage = 0;
  DType dtype = DType::uint8;
  std::int64_t offset = 0;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  ///< In elements.
  friend bool operator==(const View&, const View&) = default;
};

struct Arg {
  View view;
  Access access = Access::in;
  Tracking tracking = Tracking::full;         ///< Of the argument.
  Tracking tensor_tracking = Tracking::full;  ///< Of the tensor.
  bool allocates = false;  ///< The view is a whole new storage, given memory by this task.
  bool filled = false;     ///< The new storage has an initial value.
  [[nodiscard]] Tracking effective() const noexcept { return std::max(tracking, tensor_tracking); }
};

enum class Fault : std::uint8_t { none, before_writing, after_writing };

/// What one body does with its arguments.
struct Work {
  std::vector<Arg> args;
  Fault fault = Fault::none;
  bool has_body = true;
  int delay = 0;           ///< 0 none; 1-99 yields that often; from 100 sleeps that many us.
  std::uint64_t salt = 0;  ///< Scalar argument, mixed into what is written.
  int lane = 0;            ///< Of a group's member.
};

enum class Op : std::uint8_t {
  task,
  group,
  open_scope,
  close_scope,
  allocate,  ///< Orchestration::allocate
  keep,      ///< A handle on `view.storage`, held to the end of the program.
  wait_tensor,
  wait_task,
  read,       ///< Of the one element that is `view`.
  write,      ///< The same.
  overwrite,  ///< Orchestration::overwrite, and the host then writes the bytes itself.
  replay,
  cancel,  ///< Cancels run `victim`.
  misuse,  ///< A call that must be refused with InvalidArgument and change nothing.
};

struct Step {
  int id = 0;
  int run = 0;
  Op op = Op::task;
  std::vector<Work> works;  ///< One for a task, one per member for a group.
  std::vector<int> after;   ///< Ids of tasks and groups.
  bool exact = false;       ///< `target` is a lane and not a kind.
  int target = 0;
  bool unordered = false;
  int priority = 0;
  bool manual = false;  ///< open_scope.
  View view;            ///< allocate, keep, wait_tensor, read, write, overwrite.
  int other = -1;       ///< wait_task: step; replay: recording; cancel: victim; misuse: which.
  std::vector<View> bindings;  ///< replay: one per parameter.
  std::uint64_t salt = 0;      ///< replay: scalar parameter; write, overwrite: what is written.
  int pause = 0;               ///< What the orchestration does before the step, as Work::delay.
};

struct RecordingPlan {
  std::vector<View> parameters;  ///< Examples, over user buffers.
  std::vector<Step> steps;       ///< task, group, open_scope, close_scope.
};

struct RunPlan {
  bool raw_only = false;  ///< read_after_write_only
};

/// Lanes of one kind; lanes are numbered through all kinds in order.
struct KindPlan {
  int threads = 1;
  int callers = 0;
  int external = 0;               ///< Then there are no others.
  bool completes_inline = false;  ///< External lanes that run bodies within dispatch().
  int depth = 1;
  [[nodiscard]] int lanes() const noexcept { return external > 0 ? external : threads + callers; }
};

struct Program {
  std::uint64_t seed = 0;
  std::vector<int> buffers;  ///< Sizes in bytes.
  std::vector<KindPlan> kinds;
  std::vector<RunPlan> runs;
  std::vector<RecordingPlan> recordings;
  std::vector<Step> steps;
  int window = 4096;
  bool tight_heap = false;  ///< As small as it may be for every allocation to succeed at last.
  bool held = false;        ///< Lanes are held until all is submitted.
  bool sequential = false;  ///< Each run has ended before the next begins.
  bool direct = false;      ///< The only run is done on the calling thread (Engine::run).
  bool keep_graph = false;
  /// Steps whose bodies wait for each other, or -1: the test that they can overlap.
  int meet_a = -1;
  int meet_b = -1;
};

/// Removes what refers to nothing and repairs the rest, so that the program is legal.
void normalize(Program& program);

/// The program as text for people.
[[nodiscard]] std::string print(const Program& program);
[[nodiscard]] std::string print(const View& view);

/// Index of the kind that a lane belongs to.
[[nodiscard]] int kind_of_lane(const Program& program, int lane);
[[nodiscard]] int lane_count(const Program& program);
/// Name of the step's task, as the runner gives it and failures show it.
[[nodiscard]] std::string task_name(int recording, int step);

/// Lowest and one-past-highest byte that a view reaches, relative to its storage; both zero if it
/// covers nothing.
struct Span {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
[[nodiscard]] Span span_of(const View& view);
/// Product of the extents times the element size.
[[nodiscard]] std::int64_t bytes_of(const View& view);
/// The row-major view of a whole storage.
[[nodiscard]] View whole(int storage, DType dtype, std::vector<std::int64_t> shape);

/// Calls visit(byte offset relative to element (0, 0, ...)) for each byte of each element in
/// row-major order: the order in which bodies, and the model, read and write.
template <class Visit>
void for_each_byte(const std::int64_t* shape, const std::int64_t* strides, std::size_t rank,
                   std::int64_t element_bytes, Visit&& visit) {
  std::int64_t index[kMaxRank] = {};
  for (std::size_t d = 0; d < rank; ++d) {
    if (shape[d] == 0) return;
  }
  for (;;) {
    std::int64_t at = 0;
    for (std::size_t d = 0; d < rank; ++d)
      at += index[d] * strides[d];
    for (std::int64_t b = 0; b < element_bytes; ++b)
      visit(at * element_bytes + b);
    std::size_t d = rank;
    while (d > 0 && ++index[d - 1] == shape[d - 1])
      index[--d] = 0;
    if (d == 0) return;
  }
}
template <class Visit>
void for_each_byte(const View& view, Visit&& visit) {
  for_each_byte(view.shape.data(), view.strides.data(), view.shape.size(),
                static_cast<std::int64_t>(size_of(view.dtype)), visit);
}

}  // namespace strata::property
