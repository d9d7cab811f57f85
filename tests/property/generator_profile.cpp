#include "generator_profile.hpp"

#include <algorithm>

namespace strata::property {
namespace {

void draw_kinds(test::Random& random, Program& program) {
  const auto kinds = random.chance(70) ? 1 : 2;
  int callers = 0;
  for (int k = 0; k < kinds; ++k) {
    KindPlan kind;
    if (random.chance(20)) {
      kind.external = static_cast<int>(random.between(1, 3));
      kind.completes_inline = random.chance(30);
      kind.depth = static_cast<int>(random.between(1, 3));
    } else {
      kind.threads = static_cast<int>(random.chance(30) ? 1 : random.between(1, 4));
      // One at most, since a caller lane is as good as the threads that wait, and that is one.
      if (callers == 0 && random.chance(40)) {
        kind.callers = callers = 1;
        if (random.chance(40)) kind.threads -= 1;
      }
    }
    program.kinds.push_back(kind);
  }
}

int draw_window(test::Random& random) {
  static constexpr int kSmall[] = {2, 2, 3, 4, 5, 8, 16};
  return random.chance(40) ? kSmall[random.below(std::size(kSmall))] : 4096;
}

}  // namespace

Profile random_profile(test::Random& random, Program& program) {
  Profile profile;
  profile.steps = static_cast<int>(random.between(8, 45));
  if (random.chance(5)) profile.steps = static_cast<int>(random.between(100, 300));
  const auto maybe = [&](int percent, int low, int high) {
    return random.chance(percent) ? static_cast<int>(random.between(low, high)) : 0;
  };
  profile.weak = maybe(25, 5, 40);
  profile.fault = maybe(35, 2, 15);
  profile.group = maybe(25, 3, 20);
  profile.exact = maybe(35, 10, 60);
  profile.after = maybe(35, 5, 30);
  profile.host = maybe(30, 3, 12);
  profile.allocate = maybe(40, 10, 30);
  profile.manual = maybe(25, 20, 60);
  profile.replay = maybe(25, 8, 30);
  profile.misuse = maybe(10, 2, 5);
  profile.cancel = maybe(6, 1, 1);
  profile.priority = maybe(20, 20, 80);
  profile.no_body = maybe(10, 2, 10);
  profile.delay = maybe(85, 5, 50);
  profile.reuse = static_cast<int>(random.between(10, 70));
  profile.motif = maybe(60, 5, 25);
  profile.pause = maybe(40, 3, 20);
  profile.filled = profile.fault > 0 || profile.cancel > 0;

  const std::uint64_t sort = random.below(100);
  const std::int64_t runs = sort < 55 ? 1 : sort < 80 ? 2 : sort < 95 ? 3 : random.between(4, 8);
  const bool any_raw_only = random.chance(15);
  for (std::int64_t r = 0; r < runs; ++r) {
    program.runs.push_back({.raw_only = any_raw_only && random.chance(50)});
  }
  draw_kinds(random, program);
  program.window = draw_window(random);
  program.tight_heap = profile.allocate > 0 && random.chance(60);
  program.held = random.chance(12);
  program.sequential = runs > 1 && random.chance(15);
  program.direct = runs == 1 && random.chance(40);
  program.keep_graph = program.held || random.chance(20);
  return profile;
}

}  // namespace strata::property
