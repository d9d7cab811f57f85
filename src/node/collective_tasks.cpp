// Collectives as tasks (strata/collectives.hpp): what can be seen to be wrong is refused here, by
// name; the rest is a group with one member on the chip of each rank.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "comm/collective_task.hpp"
#include "comm/reduce_kernels.hpp"
#include "node/builtin.hpp"
#include "node/domain_state.hpp"
#include "node/worker_state.hpp"
#include "strata/collectives.hpp"
#include "strata/error.hpp"

namespace strata {
namespace {

using comm::CollectiveOrder;
using detail::CollectiveKind;
using node::DomainAccess;
using node::DomainState;
using node::WorkerState;

/// Where a tensor's elements are: a contiguous one's.
struct Bytes {
  BufferId buffer;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  [[nodiscard]] bool overlaps(const Bytes& other) const noexcept {
    return buffer == other.buffer && begin < other.end && other.begin < end;
  }
  friend bool operator==(const Bytes&, const Bytes&) = default;
};

Bytes bytes_of(const Tensor& tensor) noexcept {
  return {tensor.buffer(), tensor.byte_offset(), tensor.byte_offset() + tensor.bytes()};
}

/// One call of a collective on its way to become a group.
class Submission {
 public:
  /// Throws if the domain can't be used in this run.
  Submission(const Orchestration& run, const Domain& domain, const CollectiveOrder& order,
             std::string_view name);

  [[nodiscard]] std::uint32_t size() const noexcept { return domain_.size(); }
  CollectiveOrder& order() noexcept { return order_; }

  [[noreturn]] void refuse(const std::string& why) const {
    throw InvalidArgument(fmt::format("{} on domain '{}': {}", name_, domain_.name(), why));
  }
  /// A rank that the caller has named.
  void require_rank(std::string_view what, std::uint32_t rank) const;
  /// One tensor for each rank.
  void require_all(std::string_view side, std::span<const Tensor> tensors) const;
  /// Adds a tensor of a rank; its text for messages is "in[1]".
  void add(std::string_view side, std::uint32_t rank, const Tensor& tensor, Access access);
  /// The dtype of all tensors; the number of elements of each, which differs by side.
  void require_elements(std::string_view side, std::uint64_t elements) const;
  [[nodiscard]] std::uint64_t elements(std::string_view side) const;

  /// Checks what is left to check, and submits the members for these ranks; all if there are none.
  TaskId submit(Orchestration& run, std::span<const std::uint32_t> ranks = {});

 private:
  struct Argument {
    std::string_view side;
    std::uint32_t rank = 0;
    const Tensor* tensor = nullptr;
    Access access = Access::in;
    Bytes bytes = {};
  };
  [[nodiscard]] std::string text_of(const Argument& argument) const {
    return fmt::format("{}[{}] ({})", argument.side, argument.rank, argument.tensor->to_string());
  }
  [[nodiscard]] bool in_place(const Argument& a, const Argument& b) const noexcept;
  void require_apart() const;
  void fill(GroupMember& member, std::vector<TensorArg>& arguments, std::uint32_t rank,
            const Tensor& context) const;

  const Domain& domain_;
  const DomainState& state_;
  const std::shared_ptr<WorkerState> worker_;
  const std::string_view name_;
  CollectiveOrder order_;
  std::vector<Argument> arguments_;  ///< Of one rank one behind the other, the input first.
};

const DomainState& state_of(const Domain& domain, std::string_view name) {
  const DomainState* const state = DomainAccess::state(domain).get();
  if (state != nullptr) return *state;
  throw InvalidArgument(
      fmt::format("{}: the domain has no ranks: it was released, moved from, or never made (use "
                  "Worker::create_domain)",
                  name));
}

Submission::Submission(const Orchestration& run, const Domain& domain, const CollectiveOrder& order,
                       std::string_view name)
    : domain_(domain),
      state_(state_of(domain, name)),
      worker_(state_.owner.lock()),
      name_(name),
      order_(order) {
  if (worker_ == nullptr) {
    throw InvalidState(fmt::format("{} on domain '{}': its Worker is gone", name_, domain_.name()));
  }
  if (!worker_->engine().runs(run)) {
    refuse("it belongs to another Worker than the one whose run this is");
  }
  node::require_whole(state_, std::string(name_));
  if (order_.channel >= state_.view.channels) {
    refuse(
        fmt::format("there is no channel {}; the domain has {}, from 0 (DomainOptions::channels)",
                    order_.channel, state_.view.channels));
  }
  arguments_.reserve(std::size_t{2} * size());
}

void Submission::require_rank(std::string_view what, std::uint32_t rank) const {
  if (rank < size()) return;
  refuse(fmt::format("{} is {}, but ranks are 0 to {}", what, rank, size() - 1));
}

void Submission::require_all(std::string_view side, std::span<const Tensor> tensors) const {
  if (tensors.size() == size()) return;
  refuse(fmt::format("`{}` has {} tensors, but one for each of the {} ranks is due", side,
                     tensors.size(), size()));
}

void Submission::add(std::string_view side, std::uint32_t rank, const Tensor& tensor,
                     Access access) {
  Argument argument{.side = side, .rank = rank, .tensor = &tensor, .access = access};
  if (!tensor.has_storage() && tensor.elements() != 0) {
    refuse(text_of(argument) +
           " has no storage: give it some first, with Orchestration::allocate for instance");
  }
  if (!tensor.contiguous()) {
    refuse(text_of(argument) + " is not contiguous: its elements must lie one behind the other");
  }
  if (!arguments_.empty() && tensor.dtype() != arguments_[0].tensor->dtype()) {
    refuse(
        fmt::format("{} and {} are of different types", text_of(arguments_[0]), text_of(argument)));
  }
  argument.bytes = bytes_of(tensor);
  order_.dtype = tensor.dtype();
  arguments_.push_back(argument);
}

void Submission::require_elements(std::string_view side, std::uint64_t elements) const {
  for (const Argument& argument : arguments_) {
    if (argument.side != side) continue;
    const auto found = static_cast<std::uint64_t>(argument.tensor->elements());
    if (found == elements) continue;
    refuse(fmt::format("{} has {} elements, but {} are due", text_of(argument), found, elements));
  }
}

std::uint64_t Submission::elements(std::string_view side) const {
  const auto found = std::find_if(arguments_.begin(), arguments_.end(),
                                  [&](const Argument& argument) { return argument.side == side; });
  return static_cast<std::uint64_t>(found->tensor->elements());
}

/// `a` is input and `b` output of one rank, and the output is where an in-place call has it.
bool Submission::in_place(const Argument& a, const Argument& b) const noexcept {
  const std::int64_t one = static_cast<std::int64_t>(order_.count * size_of(order_.dtype));
  const std::int64_t part = a.rank * one;
  switch (order_.kind) {
    case CollectiveKind::reduce_scatter:
      return b.bytes.begin == a.bytes.begin + part;
    case CollectiveKind::all_gather:
      return a.bytes.begin == b.bytes.begin + part;
    default:
      return a.bytes == b.bytes;
  }
}

/// What is written is nobody else's.
void Submission::require_apart() const {
  for (std::size_t i = 0; i < arguments_.size(); ++i) {
    for (std::size_t j = i + 1; j < arguments_.size(); ++j) {
      const Argument& a = arguments_[i];
      const Argument& b = arguments_[j];
      if (a.access == Access::in && b.access == Access::in) continue;
      if (!a.bytes.overlaps(b.bytes)) continue;
      if (a.rank == b.rank && a.access == Access::in && in_place(a, b)) continue;
      refuse(fmt::format("{} and {} overlap, and one of them is written", text_of(a), text_of(b)));
    }
  }
}

/// Tensors as run_collective_task() takes them.
void Submission::fill(GroupMember& member, std::vector<TensorArg>& arguments, std::uint32_t rank,
                      const Tensor& context) const {
  const std::size_t first = arguments.size();
  arguments.push_back(in(context));
  const Argument* input = nullptr;
  for (const Argument& argument : arguments_) {
    if (argument.rank != rank || order_.count == 0) continue;
    if (input != nullptr && input->bytes == argument.bytes) {
      arguments.back() = inout(*argument.tensor);
      continue;
    }
    arguments.push_back({.tensor = argument.tensor, .access = argument.access});
    input = &argument;
  }
  member.lane = domain_.chip(rank);
  member.tensors = std::span(arguments).subspan(first);
}

TaskId Submission::submit(Orchestration& run, std::span<const std::uint32_t> ranks) {
  const bool reduces = order_.kind == CollectiveKind::all_reduce ||
                       order_.kind == CollectiveKind::reduce_scatter ||
                       order_.kind == CollectiveKind::reduce;
  if (reduces && !comm::is_reducible(order_.dtype)) {
    refuse(
        fmt::format("elements of {} can't be combined; float32, float16, bfloat16, int32, int64 "
                    "and uint8 can",
                    strata::name_of(order_.dtype)));
  }
  if (order_.algorithm != CollectiveAlgorithm::automatic &&
      order_.kind != CollectiveKind::all_reduce) {
    refuse("only all_reduce has a choice of algorithms");
  }
  require_apart();
  const std::size_t count = ranks.empty() ? size() : ranks.size();
  const CollectiveOrder::Scalars scalars = order_.scalars();
  const Call call(worker_->builtin(node::Builtin::collective));
  std::vector<Tensor> contexts;
  std::vector<TensorArg> arguments;
  std::vector<GroupMember> members(count);
  contexts.reserve(count);
  arguments.reserve(3 * count);  // Members point into it.
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t rank = ranks.empty() ? i : ranks[i];
    contexts.push_back(domain_.context(rank));
    members[i].body = call;
    members[i].scalars = scalars;
    fill(members[i], arguments, rank, contexts.back());
  }
  return run.submit_group({.members = members, .name = name_});
}

CollectiveOrder order_of(CollectiveKind kind, ReduceOp op, const CollectiveOptions& options) {
  return {.kind = kind, .op = op, .algorithm = options.algorithm, .channel = options.channel};
}

/// A collective in which every rank has an input and an output, `in_parts` and `out_parts` times as
/// large as what is counted.
TaskId submit_both(Orchestration& run, Submission& submission, std::span<const Tensor> in,
                   std::span<const Tensor> out, std::uint64_t in_parts, std::uint64_t out_parts) {
  submission.require_all("in", in);
  submission.require_all("out", out);
  for (std::uint32_t rank = 0; rank < submission.size(); ++rank) {
    submission.add("in", rank, in[rank], Access::in);
    submission.add("out", rank, out[rank], Access::out);
  }
  const std::uint64_t elements = submission.elements("in");
  if (elements % in_parts != 0) {
    submission.refuse(
        fmt::format("in[0] has {} elements, which is no multiple of {}, the number of "
                    "ranks",
                    elements, in_parts));
  }
  submission.order().count = elements / in_parts;
  submission.require_elements("in", elements);
  submission.require_elements("out", elements / in_parts * out_parts);
  return submission.submit(run);
}

}  // namespace

TaskId all_reduce(Orchestration& run, const Domain& domain, std::span<const Tensor> in,
                  std::span<const Tensor> out, ReduceOp op, CollectiveOptions options) {
  Submission submission(run, domain, order_of(CollectiveKind::all_reduce, op, options),
                        "all_reduce");
  return submit_both(run, submission, in, out, 1, 1);
}

TaskId reduce_scatter(Orchestration& run, const Domain& domain, std::span<const Tensor> in,
                      std::span<const Tensor> out, ReduceOp op, CollectiveOptions options) {
  Submission submission(run, domain, order_of(CollectiveKind::reduce_scatter, op, options),
                        "reduce_scatter");
  return submit_both(run, submission, in, out, submission.size(), 1);
}

TaskId all_gather(Orchestration& run, const Domain& domain, std::span<const Tensor> in,
                  std::span<const Tensor> out, CollectiveOptions options) {
  Submission submission(run, domain, order_of(CollectiveKind::all_gather, {}, options),
                        "all_gather");
  return submit_both(run, submission, in, out, 1, submission.size());
}

TaskId all_to_all(Orchestration& run, const Domain& domain, std::span<const Tensor> in,
                  std::span<const Tensor> out, CollectiveOptions options) {
  Submission submission(run, domain, order_of(CollectiveKind::all_to_all, {}, options),
                        "all_to_all");
  return submit_both(run, submission, in, out, submission.size(), submission.size());
}

TaskId broadcast(Orchestration& run, const Domain& domain, std::span<const Tensor> data,
                 std::uint32_t root, CollectiveOptions options) {
  Submission submission(run, domain, order_of(CollectiveKind::broadcast, {}, options), "broadcast");
  submission.require_all("data", data);
  submission.require_rank("the root", root);
  for (std::uint32_t rank = 0; rank < submission.size(); ++rank)
    submission.add("data", rank, data[rank], rank == root ? Access::in : Access::out);
  submission.order().root = root;
  submission.order().count = submission.elements("data");
  submission.require_elements("data", submission.order().count);
  return submission.submit(run);
}

TaskId reduce(Orchestration& run, const Domain& domain, std::span<const Tensor> in,
              const Tensor& out, ReduceOp op, std::uint32_t root, CollectiveOptions options) {
  Submission submission(run, domain, order_of(CollectiveKind::reduce, op, options), "reduce");
  submission.require_all("in", in);
  submission.require_rank("the root", root);
  for (std::uint32_t rank = 0; rank < submission.size(); ++rank) {
    submission.add("in", rank, in[rank], Access::in);
    if (rank == root) submission.add("out", rank, out, Access::out);
  }
  submission.order().root = root;
  submission.order().count = submission.elements("in");
  submission.require_elements("in", submission.order().count);
  submission.require_elements("out", submission.order().count);
  return submission.submit(run);
}

TaskId barrier(Orchestration& run, const Domain& domain, std::uint32_t channel) {
  Submission submission(run, domain, {.kind = CollectiveKind::barrier, .channel = channel},
                        "barrier");
  return submission.submit(run);
}

TaskId send_recv(Orchestration& run, const Domain& domain, std::uint32_t from_rank,
                 const Tensor& from, std::uint32_t to_rank, const Tensor& to,
                 std::uint32_t channel) {
  Submission submission(run, domain, {.channel = channel}, "send_recv");
  submission.require_rank("the sender", from_rank);
  submission.require_rank("the receiver", to_rank);
  if (from_rank == to_rank) {
    submission.refuse(fmt::format("rank {} would send to itself", from_rank));
  }
  submission.add("from", from_rank, from, Access::in);
  submission.add("to", to_rank, to, Access::out);
  submission.order().root = from_rank;
  submission.order().to = to_rank;
  submission.order().count = submission.elements("from");
  submission.require_elements("to", submission.order().count);
  const std::array<std::uint32_t, 2> ranks = {from_rank, to_rank};
  return submission.submit(run, ranks);
}

}  // namespace strata
