// Case: one collective as a task, with tensors in any memory, and what must be in them afterwards;
// Draw: which one, drawn from a seed or written down.
//
// Thread safety: belongs to one thread.
#pragma once

#include <algorithm>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/call.hpp"
#include "ranks.hpp"
#include "support/random.hpp"

namespace strata::test {

using Algorithm = CollectiveAlgorithm;
using Kind = detail::CollectiveKind;

/// All but windows.
inline constexpr std::array kOwnPlaces = {Place::buffer, Place::heap, Place::chip};

/// One collective, as it was drawn.
struct Draw {
  Kind kind = Kind::all_reduce;
  DType dtype = DType::float32;
  ReduceOp op = ReduceOp::sum;
  Algorithm algorithm = Algorithm::automatic;
  std::uint64_t count = 1;  ///< As in CollectiveCall.
  std::uint32_t root = 0;
  std::uint32_t channel = 0;
  bool in_place = false;
};

inline std::uint64_t draw_count(Random& random) {
  switch (random.below(8)) {
    case 0:
      return random.below(3);  // Nothing, one, two.
    case 1:
      return random.below(kWindowElements);
    case 2:
      return 60000 + random.below(70000);
    default:
      return random.below(300);
  }
}

inline Draw draw(Random& random, const Domain& domain, std::uint32_t channels) {
  Draw d;
  d.kind = random.pick(comm::kKinds);
  d.dtype = random.pick(comm::kReducible);
  d.op = random.pick(comm::kOps);
  if (d.kind == Kind::all_reduce) d.algorithm = random.pick(comm::kAlgorithms);
  d.count = draw_count(random);
  d.root = static_cast<std::uint32_t>(random.below(domain.size()));
  d.channel = static_cast<std::uint32_t>(random.below(channels));
  d.in_place = random.chance(30);
  return d;
}

inline std::string text_of(const Draw& d, std::uint32_t ranks) {
  return std::string(comm::name_of(d.kind)) + " of " + std::to_string(d.count) + " x " +
         std::string(name_of(d.dtype)) + ", " + std::string(name_of(d.op)) + ", " +
         std::string(name_of(d.algorithm)) + ", root " + std::to_string(d.root) + ", channel " +
         std::to_string(d.channel) + (d.in_place ? ", in place" : "") + ", " +
         std::to_string(ranks) + " ranks";
}

/// A collective that was submitted: its tensors, and what must be in them afterwards.
class Case {
 public:
  /// `places`: where its tensors may be. Cases of one run must not share slices of windows.
  Case(Worker& worker, const Domain& domain, const Draw& d, Random& random, Orchestration& run,
       std::span<const Place> places = kPlaces)
      : domain_(domain), draw_(d), places_(places) {
    const std::uint32_t n = domain.size();
    in_count_ = d.count * comm::in_parts(d.kind, n);
    out_count_ = d.count * comm::out_parts(d.kind, n);
    // In place, one tensor is both: the larger.
    const std::uint64_t first = d.in_place ? std::max(in_count_, out_count_) : in_count_;
    for (std::uint32_t rank = 0; rank < n; ++rank) {
      in_.emplace_back(worker, domain, place(random, first, "in"), rank, d.dtype, first, "in", run);
      if (separate_output(rank)) {
        out_.emplace_back(worker, domain, place(random, out_count_, "out"), rank, d.dtype,
                          out_count_, "out", run);
      }
      fill(rank);
    }
  }

  TaskId submit(Orchestration& run) const {
    const std::vector<Tensor> in = inputs();
    const std::vector<Tensor> out = outputs();
    const CollectiveOptions options{draw_.channel, draw_.algorithm};
    switch (draw_.kind) {
      case Kind::all_reduce:
        return all_reduce(run, domain_, in, out, draw_.op, options);
      case Kind::reduce_scatter:
        return reduce_scatter(run, domain_, in, out, draw_.op, options);
      case Kind::all_gather:
        return all_gather(run, domain_, in, out, options);
      case Kind::broadcast:
        return broadcast(run, domain_, in, draw_.root, options);
      case Kind::all_to_all:
        return all_to_all(run, domain_, in, out, options);
      default:
        return reduce(run, domain_, in, out[draw_.root], draw_.op, draw_.root, options);
    }
  }

  void check() const {
    Bytes wanted = all_get_the_same() ? expected(0) : Bytes();
    for (std::uint32_t rank = 0; rank < domain_.size(); ++rank) {
      if (draw_.kind == Kind::reduce && rank != draw_.root) continue;
      const bool separate = separate_output(rank);
      Bytes got = separate ? out_of(rank).read() : in_[rank].read();
      if (!separate && draw_.kind == Kind::reduce_scatter)
        got = {got.begin() + part(rank), got.begin() + part(rank + 1)};
      if (!all_get_the_same()) wanted = expected(rank);
      EXPECT_TRUE(got == wanted) << "rank " << rank << " of " << text_of(draw_, domain_.size());
      if (separate && draw_.kind != Kind::broadcast) {
        EXPECT_TRUE(in_[rank].read() == input(rank))
            << "the input of rank " << rank << " of " << text_of(draw_, domain_.size());
      }
    }
  }

 private:
  [[nodiscard]] std::ptrdiff_t part(std::uint32_t rank) const {
    return static_cast<std::ptrdiff_t>(rank * draw_.count * size_of(draw_.dtype));
  }
  [[nodiscard]] Place place(Random& random, std::uint64_t count, std::string_view side) const {
    const Place drawn = random.pick(places_);
    if (drawn != Place::window) return drawn;
    return count > window_elements(domain_, draw_.dtype, side) ? Place::buffer : drawn;
  }
  /// expected() is the same for all ranks.
  [[nodiscard]] bool all_get_the_same() const {
    return draw_.kind != Kind::reduce_scatter && draw_.kind != Kind::all_to_all;
  }
  [[nodiscard]] bool separate_output(std::uint32_t rank) const {
    if (draw_.kind == Kind::broadcast) return false;
    if (draw_.kind == Kind::reduce && rank != draw_.root) return false;
    return !draw_.in_place;
  }
  [[nodiscard]] const Array& out_of(std::uint32_t rank) const {
    return draw_.kind == Kind::reduce ? out_.front() : out_[rank];
  }
  [[nodiscard]] Bytes input(std::uint32_t rank) const {
    const std::uint32_t from = draw_.kind == Kind::broadcast ? draw_.root : rank;
    return comm::input(draw_.dtype, draw_.op, from, in_count_);
  }
  void fill(std::uint32_t rank) {
    if (draw_.kind == Kind::broadcast && rank != draw_.root) return;
    const Bytes own = input(rank);
    if (!draw_.in_place || draw_.kind != Kind::all_gather) {
      in_[rank].write(own);
      return;
    }
    Bytes all(own.size() * domain_.size(), std::byte{0x55});
    std::copy(own.begin(), own.end(), all.begin() + part(rank));
    in_[rank].write(all);
  }
  [[nodiscard]] std::vector<Tensor> inputs() const {
    std::vector<Tensor> tensors;
    for (std::uint32_t rank = 0; rank < domain_.size(); ++rank) {
      const bool of_output = draw_.in_place && draw_.kind == Kind::all_gather;
      tensors.push_back(of_output ? own_part(rank) : in_[rank].tensor());
    }
    return tensors;
  }
  [[nodiscard]] std::vector<Tensor> outputs() const {
    std::vector<Tensor> tensors;
    for (std::uint32_t rank = 0; rank < domain_.size(); ++rank) {
      const bool of_input = draw_.in_place && draw_.kind == Kind::reduce_scatter;
      tensors.push_back(separate_output(rank) ? out_of(rank).tensor()
                        : of_input            ? own_part(rank)
                                              : in_[rank].tensor());
    }
    return tensors;
  }
  [[nodiscard]] Tensor own_part(std::uint32_t rank) const {
    const auto count = static_cast<std::int64_t>(draw_.count);
    return in_[rank].tensor().slice(0, rank * count, (rank + 1) * count);
  }
  [[nodiscard]] Bytes expected(std::uint32_t rank) const {
    return comm::expected({draw_.kind, draw_.dtype, draw_.op, draw_.root, draw_.count},
                          domain_.size(), rank);
  }

  const Domain& domain_;
  const Draw draw_;
  const std::span<const Place> places_;
  std::uint64_t in_count_ = 0;
  std::uint64_t out_count_ = 0;
  std::deque<Array> in_;
  std::deque<Array> out_;
};

}  // namespace strata::test
