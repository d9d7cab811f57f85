// all_reduce round a ring (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for
// clusters of workstations", 2009). Each rank takes from its neighbour only: n - 1 steps in which
// partial results go round and grow, and n - 1 in which finished parts do. Where all memory is
// equally near this moves more data than two phases do; it is for machines whose links form a ring.
//
// In step s of the first half rank r takes part (r - s) from rank r - 1, where it is that rank's
// own input (s = 1) or what it made in step s - 1, combines it with its own input and keeps it in
// its output. In step t of the second half it takes part (r + 1 - t), finished, and keeps that.
//
// Why nothing is overwritten too early, also in place. In the second half rank r overwrites part
// (r + 1 - t) of its output, which its successor has read in step t of the first half. That rank
// has done that step: r has done n - 2 + t steps, so its predecessor at least n - 3 + t or more,
// and so on round the ring to its successor, the (n - 1)-th predecessor, which has done at least t.
#include <array>
#include <cstring>

#include "comm/algorithms.hpp"
#include "comm/reduce_kernels.hpp"

namespace strata::comm {
namespace {

/// The arrays of one run round the ring: whole tensors in the windows, or a piece in the staging
/// memory, where input and output are the same.
struct RingArrays {
  std::array<const std::byte*, kMaxRanks> in;
  std::array<std::byte*, kMaxRanks> out;
};

/// One direction, over the elements `range`.
class RingRun {
 public:
  RingRun(const Call& call, const RingArrays& arrays, Part range, bool backwards) noexcept
      : call_(call), arrays_(arrays), range_(range), backwards_(backwards) {}

  /// The rank that this one takes from.
  [[nodiscard]] std::uint32_t source() const noexcept {
    return place_to_rank(place() + size() - 1);
  }

  void combine_step(std::uint32_t s) const {
    const Part p = part_at(place() + size() - s);
    if (p.count == 0) return;
    const std::uint32_t from = source();
    const std::uint64_t offset = p.begin * element();
    const std::array<const std::byte*, 2> inputs = {
        (s == 1 ? arrays_.in[from] : arrays_.out[from]) + offset,
        arrays_.in[call_.rank()] + offset};
    std::byte* const out = arrays_.out[call_.rank()] + offset;
    reduce_arrays(call_.what().dtype, call_.what().op, inputs, {&out, 1}, p.count, Stores::in_turn);
  }
  void gather_step(std::uint32_t t) const {
    const Part p = part_at(place() + size() + 1 - t);
    const std::uint64_t offset = p.begin * element();
    std::memcpy(arrays_.out[call_.rank()] + offset, arrays_.out[source()] + offset,
                p.count * element());
  }

 private:
  [[nodiscard]] std::uint32_t size() const noexcept { return call_.size(); }
  [[nodiscard]] std::size_t element() const noexcept { return size_of(call_.what().dtype); }
  /// Place on the ring, counted in the direction in which data moves.
  [[nodiscard]] std::uint32_t place() const noexcept { return rank_to_place(call_.rank()); }
  [[nodiscard]] std::uint32_t rank_to_place(std::uint32_t rank) const noexcept {
    return backwards_ ? size() - 1 - rank : rank;
  }
  [[nodiscard]] std::uint32_t place_to_rank(std::uint32_t place) const noexcept {
    return rank_to_place(place % size());
  }
  [[nodiscard]] Part part_at(std::uint32_t index) const noexcept {
    const Part p = part(range_.count, element(), index % size(), size());
    return {range_.begin + p.begin, p.count};
  }

  const Call& call_;
  const RingArrays& arrays_;
  Part range_;
  bool backwards_;
};

void run_ring(Call& call, const RingArrays& arrays, std::uint64_t count, Ring ring) {
  const std::size_t element = size_of(call.what().dtype);
  const bool both = ring == Ring::both_ways;
  const Part first = both ? part(count, element, 0, 2) : Part{0, count};
  const Part second = {first.count, count - first.count};
  const RingRun forwards(call, arrays, first, false);
  const RingRun backwards(call, arrays, second, true);
  const auto wait = [&] {
    call.wait_for(forwards.source());
    if (both) call.wait_for(backwards.source());
  };
  for (std::uint32_t s = 1; s < call.size(); ++s) {
    wait();
    forwards.combine_step(s);
    if (both) backwards.combine_step(s);
    call.step();
  }
  for (std::uint32_t t = 1; t < call.size(); ++t) {
    wait();
    forwards.gather_step(t);
    if (both) backwards.gather_step(t);
    call.step();
  }
}

}  // namespace

void all_reduce_ring(Call& call, Ring ring) {
  const detail::CollectiveCall& what = call.what();
  RingArrays arrays;
  if (all_inputs_in_windows(call) && all_outputs_in_windows(call)) {
    for (std::uint32_t r = 0; r < call.size(); ++r) {
      arrays.in[r] = input_of(call, r);
      arrays.out[r] = output_of(call, r);
    }
    run_ring(call, arrays, what.count, ring);
    // The successor still reads this rank's output.
    for (std::uint32_t r = 0; r < call.size(); ++r)
      call.wait_for(r);
    return;
  }
  const std::size_t element = size_of(what.dtype);
  const std::uint64_t half = call.domain().staging_bytes / 2 / 64 * 64;
  const std::uint64_t each = half / element;
  for (std::uint64_t k = 0; k * each < what.count; ++k) {
    const Part now = piece(what.count, each, k);
    for (std::uint32_t r = 0; r < call.size(); ++r) {
      arrays.out[r] = call.staging(r) + (k & 1U) * half;
      arrays.in[r] = arrays.out[r];
    }
    std::memcpy(arrays.out[call.rank()], own_input(call) + now.begin * element,
                now.count * element);
    call.step();
    run_ring(call, arrays, now.count, ring);
    std::memcpy(own_output(call) + now.begin * element, arrays.out[call.rank()],
                now.count * element);
  }
}

}  // namespace strata::comm
