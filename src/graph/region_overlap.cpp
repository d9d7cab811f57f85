// Do two regions share a byte?
//
// Both regions are sums begin + sum(stride * index), each index running over 0 .. extent - 1. They
// share a byte if and only if
//
//     sum over all strides s of  s * u_s  =  b.begin - a.begin
//
// where u_s, the difference of the two indices of that stride, may be any integer from
// -(b's extent - 1) to a's extent - 1. So the question is one linear equation with bounded
// unknowns.
//
//   (1) Bounds decide most pairs.
//   (2) Chains (each stride divides the next larger). From the smallest stride up: if the other
//   terms
//       must give something in [low, high], adding the freedom of u in [l, h] of stride 1 makes it
//       [low - h, high - l], again all integers of an interval; what is left are multiples of the
//       next stride, so dividing by it (rounded inwards) leaves an interval again. One pass, exact
//       at any size, and neither steps, nor rows that wrap, nor rows that overlay need special
//       care.
//   (3) Other strides: divide by the gcd, absorb strides as in (2) while the interval is as wide as
//       the stride; two left are decided by counting lattice points (exact); with more, branch on
//       the unknown that has the fewest values, with a budget of nodes.
//
// (2) and (3) need no heap and O(dims) to O(dims^2) words of stack.
#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <utility>

#include "graph/region.hpp"

namespace strata::graph {
namespace {

using region_detail::Product;

/// stride * u with low <= u <= high.
struct Term {
  std::int64_t stride;
  std::int64_t low;
  std::int64_t high;
};

/// Terms by ascending stride.
struct Terms {
  std::array<Term, 2 * kMaxRegionDims> terms;
  std::size_t count = 0;

  [[nodiscard]] std::span<const Term> all() const { return {terms.data(), count}; }
  [[nodiscard]] std::span<Term> all() { return {terms.data(), count}; }
  void remove(std::size_t index) {
    std::copy(terms.begin() + static_cast<std::ptrdiff_t>(index) + 1,
              terms.begin() + static_cast<std::ptrdiff_t>(count),
              terms.begin() + static_cast<std::ptrdiff_t>(index));
    --count;
  }
};

/// Closed interval of integers; low > high is empty.
struct Interval {
  std::int64_t low;
  std::int64_t high;
  [[nodiscard]] bool empty() const { return low > high; }
  [[nodiscard]] bool has_zero() const { return low <= 0 && 0 <= high; }
};

std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  const std::int64_t quotient = a / b;
  return quotient * b > a ? quotient - 1 : quotient;
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  const std::int64_t quotient = a / b;
  return quotient * b < a ? quotient + 1 : quotient;
}

/// The multiples of `step` in the interval, counted in steps.
Interval multiples(Interval interval, std::int64_t step) {
  return {ceil_div(interval.low, step), floor_div(interval.high, step)};
}

Interval common(Interval a, Interval b) {
  return {std::max(a.low, b.low), std::min(a.high, b.high)};
}

/// The unknowns of both regions, one for each stride.
Terms terms_of(const Region& a, const Region& b) {
  Terms result;
  int i = a.dim_count - 1;
  int j = b.dim_count - 1;
  if (base::planted("overlap.last_dimension_ignored")) {
    --i;
    --j;
  }
  while (i >= 0 || j >= 0) {
    const RegionDim* const of_a = i >= 0 ? &a.dims[static_cast<std::size_t>(i)] : nullptr;
    const RegionDim* const of_b = j >= 0 ? &b.dims[static_cast<std::size_t>(j)] : nullptr;
    Term term{};
    if (of_a != nullptr && (of_b == nullptr || of_a->stride <= of_b->stride)) {
      term.stride = of_a->stride;
      term.high = of_a->extent - 1;
      --i;
    } else {
      term.stride = of_b->stride;
    }
    if (of_b != nullptr && of_b->stride == term.stride) {
      const bool in_both = term.high != 0;
      if (!base::planted("overlap.step_ignored") || in_both || term.stride == 1) {
        term.low = 1 - of_b->extent;
      }
      --j;
    }
    if (term.low != term.high) result.terms[result.count++] = term;
  }
  return result;
}

/// Tier 2. `chain` is false if the strides are no chain; nothing is decided then.
struct ChainResult {
  bool chain;
  bool meets;
};

ChainResult meet_in_chain(const Terms& terms, std::int64_t distance) {
  Interval target{distance, distance};
  std::int64_t unit = 1;  // `target` counts multiples of this.
  bool meets = true;
  for (const Term& term : terms.all()) {
    if (term.stride != unit) {
      const std::int64_t ratio = term.stride / unit;
      if (ratio * unit != term.stride) return {false, false};
      if (meets) target = multiples(target, ratio);
      meets = meets && !target.empty();
      unit = term.stride;
    }
    target = {target.low - term.high, target.high - term.low};
  }
  return {true, meets && target.has_zero()};
}

/// Sum of floor((a * i + b) / m) for i = 0 .. n - 1, modulo 2^128: points of a lattice under a
/// line, by Euclid's algorithm (Graham, Knuth, Patashnik, "Concrete Mathematics", 3.5:
/// reciprocity). All arguments below 2^63, m > 0.
Product points_under_line(Product n, Product m, Product a, Product b) {
  Product sum = 0;
  while (true) {
    sum += (n * (n - 1) / 2) * (a / m) + n * (b / m);
    a %= m;
    b %= m;
    const Product top = a * n + b;
    if (top < m) return sum;
    n = top / m;
    b = top % m;
    std::swap(m, a);
  }
}

/// Is x * u + y * v in `target` for some u, v in their bounds? Exact. Requires x.stride <= y.stride
/// and a target narrower than either stride.
bool pair_meets(const Term& x, const Term& y, Interval target) {
  // Seen from u, the target slides over the multiples of y.stride. Where it holds the first or the
  // last allowed multiple, only u's own bounds matter.
  const Interval bounds{x.low, x.high};
  for (const std::int64_t v : {y.low, y.high}) {
    const Interval shifted{target.low - y.stride * v, target.high - y.stride * v};
    if (!common(multiples(shifted, x.stride), bounds).empty()) return true;
  }
  // Otherwise it must lie between those two. Count the multiples of y.stride over all such u.
  const Interval inside = common(bounds, {ceil_div(target.high - y.stride * y.high, x.stride),
                                          floor_div(target.low - y.stride * y.low, x.stride)});
  if (inside.empty()) return false;
  const Product n = static_cast<Product>(inside.high) - static_cast<Product>(inside.low) + 1;
  const std::int64_t above = target.high - x.stride * inside.high;
  const std::int64_t below = target.low - 1 - x.stride * inside.high;
  const std::int64_t above_rows = floor_div(above, y.stride);
  const std::int64_t below_rows = floor_div(below, y.stride);
  const auto step = static_cast<Product>(x.stride);
  const auto row = static_cast<Product>(y.stride);
  const Product count =
      n * static_cast<Product>(above_rows - below_rows) +
      points_under_line(n, row, step, static_cast<Product>(above - above_rows * y.stride)) -
      points_under_line(n, row, step, static_cast<Product>(below - below_rows * y.stride));
  return count != 0;
}

/// Tier 3.
class Search {
 public:
  Overlap run(Terms terms, Interval target) {
    while (true) {
      Interval reach{0, 0};
      for (const Term& term : terms.all()) {
        reach.low += term.stride * term.low;
        reach.high += term.stride * term.high;
      }
      if (common(reach, target).empty()) return Overlap::none;
      if (terms.count == 0) return Overlap::proven;

      std::int64_t gcd = 0;
      for (const Term& term : terms.all())
        gcd = std::gcd(gcd, term.stride);
      if (gcd > 1) {
        if (base::planted("overlap.gcd_always_disjoint")) return Overlap::none;
        for (Term& term : terms.all())
          term.stride /= gcd;
        target = multiples(target, gcd);
        if (target.empty()) return Overlap::none;
        continue;
      }
      const Term& smallest = terms.terms[0];
      if (smallest.stride > target.high - target.low + 1) break;
      // Shifted copies of the target touch or overlay: together they are one interval.
      target = {target.low - smallest.stride * smallest.high,
                target.high - smallest.stride * smallest.low};
      terms.remove(0);
    }
    if (terms.count == 2) {
      return pair_meets(terms.terms[0], terms.terms[1], target) ? Overlap::proven : Overlap::none;
    }
    return branch(terms, target);
  }

 private:
  static constexpr int kNodes = 256;

  /// Tries the values of the unknown that has the fewest, from the middle outwards.
  Overlap branch(const Terms& terms, Interval target) {
    Interval reach{0, 0};
    for (const Term& term : terms.all()) {
      reach.low += term.stride * term.low;
      reach.high += term.stride * term.high;
    }
    std::size_t chosen = 0;
    Interval values{0, -1};
    for (std::size_t i = 0; i < terms.count; ++i) {
      const Term& term = terms.terms[i];
      const Interval others{reach.low - term.stride * term.low,
                            reach.high - term.stride * term.high};
      const Interval possible =
          common({term.low, term.high},
                 multiples({target.low - others.high, target.high - others.low}, term.stride));
      if (possible.empty()) return Overlap::none;
      if (i == 0 || possible.high - possible.low < values.high - values.low) {
        chosen = i;
        values = possible;
      }
    }
    Terms rest = terms;
    rest.remove(chosen);
    const std::int64_t stride = terms.terms[chosen].stride;
    const std::int64_t middle = values.low + (values.high - values.low) / 2;
    for (std::int64_t k = 0; k <= values.high - values.low; ++k) {
      if (--nodes_ < 0) return Overlap::assumed;
      const std::int64_t u = k % 2 == 0 ? middle - k / 2 : middle + (k + 1) / 2;
      const Overlap found = run(rest, {target.low - stride * u, target.high - stride * u});
      if (found != Overlap::none) return found;
    }
    return Overlap::none;
  }

  int nodes_ = kNodes;
};

}  // namespace

OverlapResult overlap(const Region& a, const Region& b) noexcept {
  if (a.end <= b.begin || b.end <= a.begin || a.empty() || b.empty()) {
    return {Overlap::none, OverlapTier::bounds};
  }
  if ((a.contiguous() && b.contiguous()) || base::planted("overlap.stride_as_contiguous")) {
    return {Overlap::proven, OverlapTier::bounds};
  }
  // A region covers its first byte. In order of it from here on, so that a and b can be exchanged.
  if (a.begin == b.begin) return {Overlap::proven, OverlapTier::bounds};
  if (b.begin < a.begin) return overlap(b, a);
  const Terms terms = terms_of(a, b);
  const std::int64_t distance = b.begin - a.begin;
  const ChainResult chain = meet_in_chain(terms, distance);
  if (chain.chain) return {chain.meets ? Overlap::proven : Overlap::none, OverlapTier::boxes};
  return {Search{}.run(terms, {distance, distance}), OverlapTier::search};
}

}  // namespace strata::graph
