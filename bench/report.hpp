// Report: prints figures and judgements for people, and writes them as JSON for programs.
//
// Thread safety: free functions without state.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "harness.hpp"
#include "targets.hpp"

namespace strata::bench {

/// One series: a line per figure with value, smallest value and how Strata compares, then a line
/// per target of the series.
void print_series(const SeriesResult& series, const Results& results,
                  const std::vector<Target>& targets);

/// How many targets are met, missed and not applicable, and which are missed. Returns the number
/// that are missed.
int print_summary(const Results& results, const std::vector<Target>& targets);

nlohmann::json to_json(const Results& results, const std::vector<Target>& targets);

}  // namespace strata::bench
