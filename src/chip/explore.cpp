#include "chip/explore.hpp"

#include <fmt/format.h>

#include <exception>

namespace strata::chip {
namespace {

std::optional<ScheduleDifference> try_seed(std::uint64_t seed, const HostArguments& arguments,
                                           const HostArguments& expected, const ExploreRun& run) {
  HostArguments fresh = arguments;
  try {
    run(fresh, seed);
  } catch (const DeadlineExceeded& error) {  // A Cancelled that nobody has asked for.
    return ScheduleDifference{.seed = seed, .failure = error.what()};
  } catch (const Cancelled&) {
    throw;
  } catch (const std::exception& error) {
    return ScheduleDifference{.seed = seed, .failure = error.what()};
  }
  for (std::size_t i = 0; i < fresh.tensors.size(); ++i) {
    TensorDifference difference = compare_bits(expected.tensors[i], fresh.tensors[i]);
    if (difference.elements == 0) continue;
    return ScheduleDifference{
        .seed = seed, .tensor = fresh.tensors[i].name, .difference = std::move(difference)};
  }
  return std::nullopt;
}

}  // namespace

std::string ScheduleDifference::to_string() const {
  if (tensor.empty()) {
    return fmt::format(
        "with seed {} the run failed, which it did not in the order of submission: {}", seed,
        failure);
  }
  return fmt::format(
      "with seed {} element [{}] of tensor '{}' is {}, and {} in the order of submission ({} {} in "
      "all): two tasks that use the same bytes have no dependency between them",
      seed, fmt::join(difference.index, ", "), tensor, difference.found, difference.expected,
      difference.elements, difference.elements == 1 ? "element differs" : "elements differ");
}

ExploreResult explore(const HostArguments& arguments, const ExploreOptions& options,
                      const ExploreRun& run) {
  HostArguments expected = arguments;
  if (options.before_run) options.before_run(kSubmissionOrder);
  run(expected, kSubmissionOrder);
  ExploreResult result;
  while (result.runs < options.runs && !result.difference) {
    const std::uint64_t seed = options.first_seed + result.runs;
    if (options.before_run) options.before_run(seed);
    result.difference = try_seed(seed, arguments, expected, run);
    ++result.runs;
  }
  return result;
}

ExploreResult explore(ChipRuntime& runtime, const std::shared_ptr<const Program>& program,
                      const HostArguments& arguments, const ExploreOptions& options,
                      const ChipRunOptions& run_options) {
  return explore(arguments, options, [&](HostArguments& fresh, std::uint64_t seed) {
    const HostArgumentBlock block(fresh);
    ChipRunRequest request{.program = program, .arguments = block.block(), .name = "explore"};
    request.options = run_options;
    request.options.explore_seed = seed;
    (void)runtime.run(request);
  });
}

}  // namespace strata::chip
