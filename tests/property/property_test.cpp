// The property: whatever program is run, in whatever order the engine chooses, what happens is what
// one task after the other would have done; nothing overlapped that must not; nothing waits that
// need not. See program.hpp, model.hpp and checks.hpp for the parts of that sentence.
//
// STRATA_PROPERTY_PROGRAMS sets the number of programs, STRATA_PROPERTY_SEED the first seed.
#include <gtest/gtest.h>

#include "driver.hpp"
#include "support/guard.hpp"
#include "support/process.hpp"

namespace strata::property {
namespace {

/// The programs are dealt out to so many tests, which ctest may run at once.
constexpr int kShards = 8;

class RandomPrograms : public testing::TestWithParam<int> {};

TEST_P(RandomPrograms, EndAsIfTheirTasksHadRunOneByOneInSubmissionOrder) {
  const Settings chosen = settings();
  std::optional<Failure> failure;
  {
    const test::LeakCheck leaks;
    test::Guard guard("the property test");
    for (auto i = static_cast<std::uint64_t>(GetParam()); i < chosen.programs && !failure;
         i += kShards) {
      failure = try_seed(chosen.seed + i, guard);
    }
  }
  if (failure) FAIL() << report(*failure, true);
}

INSTANTIATE_TEST_SUITE_P(Shard, RandomPrograms, testing::Range(0, kShards));

}  // namespace
}  // namespace strata::property
