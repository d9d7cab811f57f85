// The cores of a chip as a lane of the engine, under load.

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "chip/cores/core_lane.hpp"
#include "chip/cores/core_pool.hpp"
#include "strata/engine.hpp"
#include "support/guard.hpp"
#include "support/random.hpp"

namespace strata::chip {
namespace {

using test::Guard;
using test::Random;

void add_one(const Kernel& kernel) {
  const KernelTensor tensor = kernel.tensor(0);
  // Not atomic: the edges order the tasks.
  tensor.at<std::int64_t>(0) += 1;
}

TEST(CoreLaneStress, ChainsThroughTheEngineKeepTheirOrderWhileOthersRun) {
  Guard guard("chains");
  KernelSet set{.program = "tests", .kernels = {{.name = "add_one", .function = add_one}}};
  const Launch aiv(set, {KernelId::kNone, 0, KernelId::kNone});
  const Launch aic(set, {0, KernelId::kNone, KernelId::kNone});
  for (unsigned threads = 1; threads <= 4; ++threads) {
    CorePool pool({.platform = Platform::parse("a2a3sim:clusters=2"), .threads = threads});
    auto lane = std::make_shared<CoreLane>(pool);
    Engine engine({.kinds = {{.name = "cores", .external = {lane}, .depth = 64}},
                   .window = 64,
                   .progress = std::make_shared<CoreProgress>(pool, nullptr)});
    lane->set_engine(engine);
    std::vector<std::int64_t> counters(16, 0);
    const Tensor all = engine.tensor(counters);
    Random random(threads);
    std::vector<std::int64_t> expected(16, 0);
    engine.run([&](Orchestration& run) {
      for (int i = 0; i < 4000; ++i) {
        const auto which = static_cast<std::int64_t>(random.below(16));
        ++expected[static_cast<std::size_t>(which)];
        run.submit(random.chance(80) ? aiv : aic, inout(all.slice(0, which, which + 1)));
      }
    });
    EXPECT_EQ(counters, expected);
  }
}

}  // namespace
}  // namespace strata::chip
