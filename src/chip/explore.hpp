// Schedule exploration: the same run again and again, each time in another legal order of its
// tasks. An order that a seed draws shows what no order by chance shows for months: a dependency
// that is missing, as a result that differs.
//
// The first run takes tasks in the order of their submission; it is what all others are compared
// with, bit by bit.
//
// Thread safety: as what it is given to run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "chip/chip_runtime.hpp"
#include "chip/host_arguments.hpp"

namespace strata::chip {

/// The seed that stands for the order of submission.
inline constexpr std::uint64_t kSubmissionOrder = 0;

struct ExploreOptions {
  std::uint64_t runs = 100;      ///< Seeds to try.
  std::uint64_t first_seed = 1;  ///< Then the next ones.
  std::function<void(std::uint64_t seed)> before_run = {};
};

/// A seed whose run did not end as the first.
struct ScheduleDifference {
  std::uint64_t seed = 0;
  std::string tensor = {};  ///< Whose values differ; empty if the run failed.
  TensorDifference difference = {};
  std::string failure = {};
  /// "with seed 17 element [3, 4] of tensor 'out' is 2.5, and 1.5 in the order of submission (12 of
  /// 64 elements differ): ..."
  [[nodiscard]] std::string to_string() const;
};

struct ExploreResult {
  std::uint64_t runs = 0;                             ///< That were compared.
  std::optional<ScheduleDifference> difference = {};  ///< The first; exploring ends there.
};

/// One run with arguments of its own, in the order of a seed.
using ExploreRun = std::function<void(HostArguments& arguments, std::uint64_t seed)>;

/// Throws what the first run throws.
[[nodiscard]] ExploreResult explore(const HostArguments& arguments, const ExploreOptions& options,
                                    const ExploreRun& run);
/// The same in this process. `run_options` are those of each run.
[[nodiscard]] ExploreResult explore(ChipRuntime& runtime,
                                    const std::shared_ptr<const Program>& program,
                                    const HostArguments& arguments, const ExploreOptions& options,
                                    const ChipRunOptions& run_options = {});

}  // namespace strata::chip
