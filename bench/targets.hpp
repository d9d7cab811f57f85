// Targets: what the figures have to reach, read from targets.json.
//
// Thread safety: plain values.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness.hpp"

namespace strata::bench {

/// One goal for one figure.
struct Target {
  std::string figure;
  Condition when = Condition::always;
  std::string to;  ///< The figure that it is compared with; empty: the value itself counts.
  double max = 0;  ///< The value, or the ratio, may be at most this.
  std::string says;
};

enum class Verdict { met, missed, not_applicable };
std::string_view name_of(Verdict verdict) noexcept;

struct Judgement {
  Verdict verdict = Verdict::not_applicable;
  std::optional<double> got;
  std::string compared_with;  ///< Name of the figure that the ratio is to.
  std::string why;            ///< If not applicable, or missed for want of a value.
};

/// Reads a file of targets; throws std::runtime_error naming file and fault.
std::vector<Target> read_targets(const std::string& path);

/// A target whose figure was measured, but has no value, is missed; one whose peer has no value, or
/// whose condition no round fulfilled, is not applicable.
Judgement judge(const Target& target, const Results& results);

/// "<= 150 ns/task", "<= 0.5 x libomp".
std::string describe(const Target& target, const Results& results);

}  // namespace strata::bench
