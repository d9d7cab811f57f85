// What recording costs: one event, and one task in hand with its two events. Prints one figure per
// line, "name value", in nanoseconds; each is the median of some rounds.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "timing.hpp"
#include "trace/process_record.hpp"
#include "trace/recorder.hpp"

namespace {

constexpr std::uint64_t kCalls = 200'000;
constexpr int kRounds = 21;

template <class Body>
double ns_per_call(Body body) {
  std::vector<double> samples;
  for (int round = 0; round < kRounds; ++round) {
    const double begin = strata::bench::now_ns();
    for (std::uint64_t i = 1; i <= kCalls; ++i)
      body(i);
    samples.push_back((strata::bench::now_ns() - begin) / static_cast<double>(kCalls));
  }
  return strata::bench::median(samples);
}

}  // namespace

int main() {
  using namespace strata::trace;
  ProcessRecord process = ProcessRecord::create({.path = "node", .role = "node"});
  const auto event = [](std::uint64_t i) { record(EventKind::message, i); };
  const double off = ns_per_call(event);
  record_into(process);
  const double clock = ns_per_call([](std::uint64_t) {
    volatile std::uint64_t now = strata::os::cycle_count();
    (void)now;
  });
  std::printf("trace/no-record-ns %.2f\n", off);
  std::printf("trace/clock-ns %.2f\n", clock);
  std::printf("trace/event-ns %.2f\n", ns_per_call(event));
  std::printf("trace/task-ns %.2f\n", ns_per_call([&](std::uint64_t i) {
                process.begin_task(i, "scale rows 0..15", "libtasks.so:scale");
                process.end_task();
              }));
}
