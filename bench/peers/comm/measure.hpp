// What the programs that do collectives have in common: which one, how much, how often.
//
//   PROGRAM COLLECTIVE:BYTES RANKS [BUDGET_MS]     COLLECTIVE is all_reduce, broadcast, barrier,
//   ...
//
// BYTES is what nccl-tests call the size: of one rank's input of all_reduce, reduce and broadcast,
// of all parts together of the others. Elements are float32, combined by sum.
//
// Thread safety: free functions without state.
#pragma once

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "../figures.hpp"

namespace strata::bench {

struct CommMeasure {
  std::string collective;
  std::size_t bytes = 0;
  unsigned ranks = 2;
  double budget_ns = 40e6;
};

inline CommMeasure parse_measure(int argc, char** argv) {
  CommMeasure measure;
  const std::string text = argv[1];
  const std::size_t colon = text.find(':');
  measure.collective = text.substr(0, colon);
  if (colon != std::string::npos) measure.bytes = std::strtoull(&text[colon + 1], nullptr, 10);
  if (argc > 2) measure.ranks = static_cast<unsigned>(std::max(1, std::atoi(argv[2])));
  if (argc > 3) measure.budget_ns = std::atof(argv[3]) * 1e6;
  return measure;
}

/// How often; the same on all ranks of all programs, so that nobody has to agree on it.
struct Repetitions {
  int samples = 0;
  int calls = 0;  ///< In each sample.
};
inline Repetitions repetitions(const CommMeasure& measure) {
  const bool crowded = measure.ranks > static_cast<unsigned>(sysconf(_SC_NPROCESSORS_ONLN));
  const double guess_ns = (crowded ? 60000 : 400) + 0.2 * static_cast<double>(measure.bytes);
  const double sample_ns = std::min(2e6, measure.budget_ns / 5);
  Repetitions result;
  result.calls = static_cast<int>(std::clamp(sample_ns / guess_ns, 1.0, 4000.0));
  result.samples =
      static_cast<int>(std::clamp(measure.budget_ns / (result.calls * guess_ns), 5.0, 200.0));
  return result;
}

/// Binds rank r to the r-th CPU if there is one for each; the scheduler has no part in it then.
inline void bind_rank(unsigned rank, unsigned ranks) {
  cpu_set_t allowed, one;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  if (static_cast<unsigned>(CPU_COUNT(&allowed)) < ranks) return;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || rank-- != 0) continue;
    CPU_SET(cpu, &one);
    (void)sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

/// Nanoseconds of one call, in each sample.
template <class Barrier, class Call>
std::vector<double> time_calls(Repetitions repetitions, Barrier barrier, Call call) {
  std::vector<double> samples;
  for (int s = -1; s < repetitions.samples; ++s) {  // The first is not counted.
    barrier();
    const double begin = now_ns();
    for (int i = 0; i < repetitions.calls; ++i)
      call();
    const double each = (now_ns() - begin) / repetitions.calls;
    if (s >= 0) samples.push_back(each);
  }
  return samples;
}

/// What nccl-tests call the factor of the bus bandwidth.
inline double bus_factor(const CommMeasure& measure) {
  const double n = measure.ranks;
  if (measure.collective == "all_reduce") return 2 * (n - 1) / n;
  if (measure.collective == "broadcast" || measure.collective == "reduce") return 1;
  return (n - 1) / n;
}

inline Value microseconds(std::vector<double> samples_ns) {
  for (double& sample : samples_ns)
    sample /= 1e3;
  return summary(samples_ns, "us");
}

/// "12.3 GB/s bus" of the median.
inline std::string bus_note(const CommMeasure& measure, const std::vector<double>& samples_ns) {
  if (measure.bytes < 4096) return "";
  char text[64];
  std::snprintf(text, sizeof text, "%.1f GB/s bus",
                static_cast<double>(measure.bytes) * bus_factor(measure) / median(samples_ns));
  return text;
}

}  // namespace strata::bench
