// What a peer program measures and prints: figures by name, one line of JSON for strata-bench.
//
// Thread safety: free functions without state.
#pragma once

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "timing.hpp"

namespace strata::bench {

struct Value {
  double median = 0;
  double min = 0;
  const char* unit = "";
};

/// By what is added to the series' name; "" adds nothing.
using Values = std::map<std::string, Value>;

/// Requires at least one sample.
inline Value summary(const std::vector<double>& samples, const char* unit) {
  return {median(samples), *std::min_element(samples.begin(), samples.end()), unit};
}

/// Calls `sample` until the budget is spent, at least `at_least` times.
template <class Sample>
std::vector<double> sample_for(double budget_ns, int at_least, Sample sample) {
  std::vector<double> samples;
  const double begin = now_ns();
  while (static_cast<int>(samples.size()) < at_least || now_ns() - begin < budget_ns)
    samples.push_back(sample());
  return samples;
}

template <class Run>
double timed(Run run) {
  const double begin = now_ns();
  run();
  return now_ns() - begin;
}

inline void print_values(const Values& values, bool infers, const std::string& note) {
  std::printf("{\"infers\": %s, \"note\": \"%s\", \"values\": {", infers ? "true" : "false",
              note.c_str());
  const char* separator = "";
  for (const auto& [name, value] : values) {
    std::printf("%s\"%s\": {\"median\": %.6g, \"min\": %.6g, \"unit\": \"%s\"}", separator,
                name.c_str(), value.median, value.min, value.unit);
    separator = ", ";
  }
  std::printf("}}\n");
}

}  // namespace strata::bench
