#include "ipc/spinner_budget.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <atomic>
#include <thread>
#include <vector>

#include "os/memfd.hpp"
#include "strata/error.hpp"
#include "support/forked_child.hpp"
#include "support/process.hpp"

namespace strata::ipc {
namespace {

TEST(SpinnerBudget, GivesAsManyPlacesAsItsLimit) {
  const strata::test::LeakCheck check;
  for (const int limit : {0, 1, 2, 8}) {
    const os::UniqueFd page = SpinnerBudget::make(limit);
    SpinnerBudget budget(page.get());
    EXPECT_EQ(budget.limit(), limit);
    std::vector<SpinnerBudget::Place> places;
    for (int i = 0; i < limit; ++i) {
      places.push_back(budget.try_begin());
      EXPECT_TRUE(places.back());
    }
    EXPECT_EQ(budget.taken(), limit);
    EXPECT_FALSE(budget.try_begin());
    for (const auto place : places) {
      budget.end(place);
      const auto again = budget.try_begin();
      EXPECT_TRUE(again);
      budget.end(again);
    }
    EXPECT_EQ(budget.taken(), 0);
  }
}

// Invariant (1)
TEST(SpinnerBudget, NeverMoreThanTheLimitWhoeverAsks) {
  const os::UniqueFd page = SpinnerBudget::make(2);
  std::atomic<int> spinning{0};
  std::atomic<bool> too_many{false};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        SpinnerBudget budget(page.get());
        for (int i = 0; i < 20000; ++i) {
          const auto place = budget.try_begin();
          if (!place) continue;
          if (spinning.fetch_add(1) >= 2) too_many = true;
          spinning.fetch_sub(1);
          budget.end(place);
        }
      });
    }
  }
  EXPECT_FALSE(too_many);
  SpinnerBudget budget(page.get());
  EXPECT_EQ(budget.taken(), 0);
}

// Invariant (2)
TEST(SpinnerBudget, PlaceOfADeadProcessIsGivenBack) {
  const os::UniqueFd page = SpinnerBudget::make(3);
  SpinnerBudget budget(page.get());
  const auto mine = budget.try_begin();
  for (const bool by_sweep : {false, true}) {
    strata::test::ForkedChild child([&] {
      SpinnerBudget of_child(page.get());
      (void)of_child.try_begin();
      (void)of_child.try_begin();
      return of_child.taken();
    });
    const pid_t pid = child.pid();
    const int status = child.wait();
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 3);
    EXPECT_EQ(budget.taken(), 3);
    EXPECT_FALSE(budget.try_begin());
    EXPECT_EQ(by_sweep ? budget.sweep() : budget.reclaim(pid), 2);
    EXPECT_EQ(budget.taken(), 1) << "the living one's stays";
  }
  budget.end(mine);
}

// Invariant (3)
TEST(SpinnerBudget, AnythingMayBeWrittenIntoThePage) {
  const os::UniqueFd page = SpinnerBudget::make(4);
  SpinnerBudget budget(page.get());
  const auto place = budget.try_begin();
  const std::vector<char> garbage(os::size_of_file(page.get()), '\xff');
  ASSERT_EQ(pwrite(page.get(), garbage.data(), garbage.size(), 0),
            static_cast<ssize_t>(garbage.size()));
  EXPECT_FALSE(budget.try_begin());
  budget.end(place);
  EXPECT_EQ(budget.sweep(), 3) << "these are nobody's";
  EXPECT_TRUE(budget.try_begin());
  EXPECT_THROW(SpinnerBudget(page.get()), Error);
}

}  // namespace
}  // namespace strata::ipc
