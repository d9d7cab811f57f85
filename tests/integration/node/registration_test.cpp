// Callables: thousands, before and after start, while runs go on.

#include <cstdio>
#include <set>
#include <thread>

#include "support/node_test.hpp"

namespace strata::test {
namespace {

class NodeRegistration : public NodeTest {
 protected:
  static Callable many(int number) {
    char symbol[16];
    std::snprintf(symbol, sizeof symbol, "many_%03x", static_cast<unsigned>(number));
    return Callable::in_library(test_library("strata_test_many"), symbol);
  }
  static constexpr int kAll = 4096;
};

TEST_F(NodeRegistration, TheSameCallableGetsTheSameId) {
  Worker worker({.subs = {{.count = 1}}});
  const CallableId first = worker.add(many(1));
  EXPECT_NE(first, CallableId{});
  EXPECT_EQ(worker.add(many(1)), first);
  EXPECT_NE(worker.add(many(2)), first);
  worker.init();
  EXPECT_EQ(worker.add(many(1)), first);
}

// "Registration of callables before and after start, thousands of them, while runs go on; a task is
// never dispatched to a worker that has not confirmed the callable."
TEST_F(NodeRegistration, ThousandsBeforeTheStartAllWork) {
  Worker worker({.chips = {{}}, .subs = {{.count = 2}}});
  std::vector<CallableId> ids;
  for (int i = 0; i < kAll; ++i)
    ids.push_back(worker.add(many(i)));
  worker.init();
  std::vector<TaskId> tasks;
  const Run run = worker.run([&](Orchestration& o) {
    for (int i = 0; i < kAll; ++i)
      tasks.push_back(o.submit(Call(ids[static_cast<std::size_t>(i)]),
                               i % 2 == 0 ? on(worker.any_sub()) : on(worker.any_chip())));
  });
  for (int i = 0; i < kAll; ++i)
    ASSERT_EQ(run.value(tasks[static_cast<std::size_t>(i)]), std::to_string(i));
}

TEST_F(NodeRegistration, ThousandsWhileRunsGoOnAreUsedAtOnce) {
  Worker worker({.chips = {{}}, .subs = {{.count = 2}}});
  worker.init();
  std::vector<std::thread> users;
  for (int u = 0; u < 3; ++u) {
    users.emplace_back([&, u] {
      for (int i = u; i < kAll; i += 3) {
        const CallableId id = worker.add(many(i));
        TaskId task;
        const Run run =
            worker.run([&](Orchestration& o) { task = o.submit(Call(id), on(worker.any_sub())); });
        EXPECT_EQ(run.value(task), std::to_string(i));
      }
    });
  }
  for (std::thread& user : users)
    user.join();
}

TEST_F(NodeRegistration, OneThatTakesLongToLoadHoldsUpNoOtherTask) {
  // The library's constructor never returns, so this callable is never confirmed.
  Worker worker({.subs = {{.count = 1}}});
  worker.init();
  const CallableId stuck = worker.add(
      Callable::in_library(test_library("strata_test_constructor_hangs"), "never_reached"));
  const CallableId known = worker.add(task_in_library("nothing"));
  const Run waits =
      worker.submit([&](Orchestration& o) { o.submit(Call(stuck), on(worker.any_sub())); });
  EXPECT_FALSE(waits.wait_for(100ms));
  waits.cancel();
  EXPECT_TRUE(waits.wait_for(bound(5s)));
  (void)known;
  try {
    worker.close(500ms);
  } catch (const CloseFailed&) {
    // Its service thread stands in the loader: it may have to be ended by force.
  }
}

TEST_F(NodeRegistration, ALibraryThatCrashesWhileItIsLoadedIsToldAsTheWorkersDeath) {
  Worker worker({.subs = {{.count = 1}}});
  worker.init();
  const CallableId crash = worker.add(
      Callable::in_library(test_library("strata_test_constructor_crashes"), "never_reached"));
  const Run run =
      worker.submit([&](Orchestration& o) { o.submit(Call(crash), on(worker.sub(0))); });
  ASSERT_TRUE(run.wait_for(bound(5s)));
  const auto failures = failures_of(run);
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_THAT(failures[0].second, HasSubstr("signal 11"));
  EXPECT_THAT(failures[0].second, HasSubstr("strata_test_crash_in_constructor"));
}

}  // namespace
}  // namespace strata::test
