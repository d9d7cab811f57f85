// all_reduce, reduce and reduce_scatter in one and in two phases.
#include <array>
#include <cstring>
#include <span>

#include "comm/algorithms.hpp"
#include "comm/reduce_kernels.hpp"

namespace strata::comm {
namespace {

/// From here on a call's data is larger than what caches will hold until it is read again.
constexpr std::uint64_t kPastCachesBytes = std::uint64_t{48} << 20;

/// Addresses of one array on each rank.
class Arrays {
 public:
  void add(const std::byte* array) noexcept { all_[count_++] = array; }
  [[nodiscard]] std::span<const std::byte* const> all() const noexcept {
    return {all_.data(), count_};
  }

 private:
  std::array<const std::byte*, kMaxRanks> all_;
  std::size_t count_ = 0;
};
class Outputs {
 public:
  void add(std::byte* array) noexcept { all_[count_++] = array; }
  [[nodiscard]] std::span<std::byte* const> all() const noexcept { return {all_.data(), count_}; }

 private:
  std::array<std::byte*, kMaxRanks> all_;
  std::size_t count_ = 0;
};

Stores stores_for(std::uint64_t bytes) noexcept {
  return bytes >= kPastCachesBytes ? Stores::past_caches : Stores::at_once;
}

/// The same place in the windows' inputs of all ranks, in the order of the ranks.
Arrays inputs_at(const Call& call, std::uint64_t byte_offset) noexcept {
  Arrays inputs;
  for (std::uint32_t r = 0; r < call.size(); ++r)
    inputs.add(input_of(call, r) + byte_offset);
  return inputs;
}

/// Each rank reads what all have and writes its own output.
void one_phase_direct(Call& call) {
  const detail::CollectiveCall& what = call.what();
  std::byte* const out = own_output(call);
  reduce_arrays(what.dtype, what.op, inputs_at(call, 0).all(), {&out, 1}, what.count,
                stores_for(call.size() * what.count * size_of(what.dtype)));
  call.meet_at_step();
}

/// The same with inputs that are copied into the windows piece by piece.
void one_phase_staged(Call& call) {
  const detail::CollectiveCall& what = call.what();
  const std::size_t element = size_of(what.dtype);
  const std::uint64_t half = call.domain().staging_bytes / 2 / 64 * 64;
  const std::uint64_t each = half / element;
  for (std::uint64_t k = 0; k * each < what.count; ++k) {
    const Part now = piece(what.count, each, k);
    const std::uint64_t place = (k & 1U) * half;
    std::memcpy(call.staging(call.rank()) + place, own_input(call) + now.begin * element,
                now.count * element);
    call.meet_at_step();
    Arrays inputs;
    for (std::uint32_t r = 0; r < call.size(); ++r)
      inputs.add(call.staging(r) + place);
    std::byte* const out = own_output(call) + now.begin * element;
    reduce_arrays(what.dtype, what.op, inputs.all(), {&out, 1}, now.count, Stores::in_turn);
  }
}

/// Rank r combines part r of all inputs and writes it straight into every output: one pass over the
/// data. Nobody else reads or writes part r of anything, so outputs may be inputs.
void two_phase_direct(Call& call) {
  const detail::CollectiveCall& what = call.what();
  const std::size_t element = size_of(what.dtype);
  const Part mine = part(what.count, element, call.rank(), call.size());
  Outputs outputs;
  for (std::uint32_t i = 0; i < call.size(); ++i) {
    const std::uint32_t r = (call.rank() + i) % call.size();
    outputs.add(output_of(call, r) + mine.begin * element);
  }
  if (mine.count != 0) {
    reduce_arrays(what.dtype, what.op, inputs_at(call, mine.begin * element).all(), outputs.all(),
                  mine.count, stores_for(2 * call.size() * what.count * element));
  }
  call.meet_at_step();
}

/// The same by way of staging memory, for all_reduce and reduce. Three things are under way between
/// two steps: the result of the piece before is copied out, a piece is combined, and the next one
/// is copied in; so each piece costs one step. Inputs and results have two places each.
class StagedReduce {
 public:
  StagedReduce(Call& call, bool wants_result, bool others_want) noexcept
      : call_(call),
        wants_result_(wants_result),
        others_want_(others_want),
        element_(size_of(call.what().dtype)),
        piece_bytes_((call.domain().staging_bytes - 256) / 3 / 64 * 64),
        each_(piece_bytes_ / element_),
        pieces_((call.what().count + each_ - 1) / each_) {}

  void run() {
    copy_in(0);
    call_.meet_at_step();
    for (std::uint64_t k = 0; k < pieces_; ++k) {
      if (k != 0) copy_out(k - 1);
      combine(k);
      if (k + 1 < pieces_) copy_in(k + 1);
      call_.meet_at_step();
    }
    if (pieces_ != 0) copy_out(pieces_ - 1);
  }

 private:
  [[nodiscard]] Part now(std::uint64_t k) const noexcept {
    return piece(call_.what().count, each_, k);
  }
  [[nodiscard]] Part part_of(std::uint64_t k, std::uint32_t rank) const noexcept {
    return part(now(k).count, element_, rank, call_.size());
  }
  [[nodiscard]] std::byte* staged(std::uint32_t rank, std::uint64_t k) const noexcept {
    return call_.staging(rank) + (k & 1U) * piece_bytes_;
  }
  [[nodiscard]] std::byte* result(std::uint32_t rank, std::uint64_t k) const noexcept {
    const std::uint64_t room = part(each_, element_, 0, call_.size()).count * element_;
    return call_.staging(rank) + 2 * piece_bytes_ + (k & 1U) * room;
  }

  /// All but the part that this rank combines itself.
  void copy_in(std::uint64_t k) {
    const Part mine = part_of(k, call_.rank());
    const std::byte* const from = own_input(call_) + now(k).begin * element_;
    std::byte* const to = staged(call_.rank(), k);
    std::memcpy(to, from, mine.begin * element_);
    const std::uint64_t behind = (mine.begin + mine.count) * element_;
    std::memcpy(to + behind, from + behind, now(k).count * element_ - behind);
  }

  void combine(std::uint64_t k) {
    const Part mine = part_of(k, call_.rank());
    if (mine.count == 0) return;
    const std::uint64_t own_offset = (now(k).begin + mine.begin) * element_;
    Arrays inputs;
    for (std::uint32_t r = 0; r < call_.size(); ++r)
      inputs.add(r == call_.rank() ? own_input(call_) + own_offset
                                   : staged(r, k) + mine.begin * element_);
    Outputs outputs;
    if (wants_result_) outputs.add(own_output(call_) + own_offset);
    if (others_want_) outputs.add(result(call_.rank(), k));
    reduce_arrays(call_.what().dtype, call_.what().op, inputs.all(), outputs.all(), mine.count,
                  Stores::in_turn);
  }

  void copy_out(std::uint64_t k) {
    if (!wants_result_) return;
    for (std::uint32_t i = 1; i < call_.size(); ++i) {
      const std::uint32_t r = (call_.rank() + i) % call_.size();
      const Part theirs = part_of(k, r);
      std::memcpy(own_output(call_) + (now(k).begin + theirs.begin) * element_, result(r, k),
                  theirs.count * element_);
    }
  }

  Call& call_;
  bool wants_result_;
  bool others_want_;
  std::size_t element_;
  std::uint64_t piece_bytes_;
  std::uint64_t each_;  ///< Elements of a piece.
  std::uint64_t pieces_;
};

}  // namespace

void all_reduce(Call& call, CollectiveAlgorithm algorithm) {
  if (call.size() == 1) {
    const std::size_t bytes = call.what().count * size_of(call.what().dtype);
    return copy(own_output(call), own_input(call), bytes);
  }
  const bool inputs_there = all_inputs_in_windows(call);
  const bool outputs_there = all_outputs_in_windows(call);
  switch (algorithm) {
    case CollectiveAlgorithm::one_phase:
      return inputs_there && !any_in_place(call) ? one_phase_direct(call) : one_phase_staged(call);
    case CollectiveAlgorithm::ring:
      return all_reduce_ring(call, Ring::one_way);
    case CollectiveAlgorithm::bidirectional_ring:
      return all_reduce_ring(call, Ring::both_ways);
    case CollectiveAlgorithm::automatic:
    case CollectiveAlgorithm::two_phase:
      break;
  }
  if (inputs_there && outputs_there) return two_phase_direct(call);
  StagedReduce(call, true, true).run();
}

void reduce(Call& call) {
  const detail::CollectiveCall& what = call.what();
  const bool root_has_window = call.record(what.root).out != kPrivate;
  if (!all_inputs_in_windows(call) || !root_has_window) {
    const bool is_root = call.rank() == what.root;
    return StagedReduce(call, is_root, !is_root).run();
  }
  // As two_phase_direct, with one output.
  const std::size_t element = size_of(what.dtype);
  const Part mine = part(what.count, element, call.rank(), call.size());
  std::byte* const out = output_of(call, what.root) + mine.begin * element;
  if (mine.count != 0) {
    reduce_arrays(what.dtype, what.op, inputs_at(call, mine.begin * element).all(), {&out, 1},
                  mine.count, stores_for((call.size() + 1) * what.count * element));
  }
  call.meet_at_step();
}

void reduce_scatter(Call& call) {
  const detail::CollectiveCall& what = call.what();
  const std::size_t element = size_of(what.dtype);
  const std::uint64_t part_bytes = what.count * element;
  if (all_inputs_in_windows(call)) {
    // Nobody else reads the part that this rank's output may be.
    std::byte* const out = own_output(call);
    reduce_arrays(what.dtype, what.op, inputs_at(call, call.rank() * part_bytes).all(), {&out, 1},
                  what.count, stores_for((call.size() + 1) * call.size() * part_bytes));
    return call.meet_at_step();
  }
  // A piece of every part at once; places take turns.
  const std::uint64_t half = call.domain().staging_bytes / 2 / 64 * 64;
  const std::uint64_t room = half / call.size() / 64 * 64;
  const std::uint64_t each = room / element;
  for (std::uint64_t k = 0; k * each < what.count; ++k) {
    const Part now = piece(what.count, each, k);
    const std::uint64_t place = (k & 1U) * half;
    for (std::uint32_t r = 0; r < call.size(); ++r) {
      if (r == call.rank()) continue;
      std::memcpy(call.staging(call.rank()) + place + r * room,
                  own_input(call) + r * part_bytes + now.begin * element, now.count * element);
    }
    call.meet_at_step();
    Arrays inputs;
    for (std::uint32_t r = 0; r < call.size(); ++r)
      inputs.add(r == call.rank() ? own_input(call) + r * part_bytes + now.begin * element
                                  : call.staging(r) + place + call.rank() * room);
    std::byte* const out = own_output(call) + now.begin * element;
    reduce_arrays(what.dtype, what.op, inputs.all(), {&out, 1}, now.count, Stores::in_turn);
  }
}

}  // namespace strata::comm
