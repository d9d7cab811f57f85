// What a failed task does to others: along which edges failure travels, which bytes are invalid and
// for how long, and how runs end.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine_support.hpp"

namespace strata::test {
namespace {

void fail(TaskContext& /*context*/) { throw std::runtime_error("no luck"); }

/// The failure that a run ended with; empty if it ended well.
RunFailed failure_of(const strata::Run& run) {
  try {
    run.result();
  } catch (const RunFailed& failed) {
    return failed;
  }
  return RunFailed("", {}, {});
}

std::vector<std::string> names(const std::vector<TaskFailure>& failures) {
  std::vector<std::string> found;
  for (const TaskFailure& failure : failures)
    found.push_back(failure.name);
  std::sort(found.begin(), found.end());
  return found;
}

using Names = std::vector<std::string>;

class EngineFailure : public testing::Test {
 protected:
  /// Submits an orchestration and waits for the end of its run.
  strata::Run submit(const Engine::OrchestrationFn& orchestration, RunOptions options = {}) {
    strata::Run run = engine_.submit(orchestration, std::move(options));
    EXPECT_TRUE(ends(run));
    return run;
  }
  Body mark(int value) {
    return [this, value](TaskContext&) { ran_ += value; };
  }

  Engine engine_{thread_lanes(2)};
  Floats a_{engine_, {8, 8}};
  Floats b_{engine_, {8, 8}};
  Floats c_{engine_, {8, 8}};
  std::atomic<int> ran_{0};
};

// ---- Along which edges --------------------------------------------------------------------------

TEST_F(EngineFailure, TravelsAlongReadAfterWriteThroughOthers) {
  const RunFailed failed = failure_of(submit([&](Orchestration& o) {
    o.submit(fail, out(a_.tensor), named("bad"));
    o.submit(mark(1), in(a_.tensor), out(b_.tensor), named("first"));
    o.submit(mark(1), in(b_.tensor), out(c_.tensor), named("second"));
    o.submit(mark(1), in(c_.tensor), named("third"));
  }));
  EXPECT_EQ(ran_, 0);
  ASSERT_EQ(names(failed.failed()), Names{"bad"});
  EXPECT_EQ(names(failed.skipped()), (Names{"first", "second", "third"}));
  for (const TaskFailure& skipped : failed.skipped()) {
    EXPECT_EQ(skipped.cause, failed.failed()[0].task) << skipped.name;
    EXPECT_NE(skipped.message.find("'bad'"), std::string::npos) << skipped.message;
    EXPECT_NE(skipped.message.find("no luck"), std::string::npos) << skipped.message;
    EXPECT_EQ(skipped.exception, nullptr);
  }
}

TEST_F(EngineFailure, TravelsAlongAfter) {
  const RunFailed failed = failure_of(submit([&](Orchestration& o) {
    const TaskId bad = o.submit(fail, named("bad"));
    const TaskId between = o.submit(nullptr, after(bad), named("between"));
    o.submit(mark(1), after(between), named("follower"));
  }));
  EXPECT_EQ(ran_, 0);
  EXPECT_EQ(names(failed.skipped()), (Names{"between", "follower"}));
}

TEST_F(EngineFailure, TravelsAlongAfterToTasksSubmittedLater) {
  const RunFailed failed = failure_of(submit([&](Orchestration& o) {
    const TaskId bad = o.submit(fail, named("bad"));
    EXPECT_TRUE(eventually([&] { return o.run().stats().failed == 1; }));
    o.submit(mark(1), after(bad), named("late"));
  }));
  EXPECT_EQ(ran_, 0);
  EXPECT_EQ(names(failed.skipped()), Names{"late"});
}

TEST_F(EngineFailure, DoesNotTravelAlongEdgesThatOnlyOrder) {
  const RunFailed failed = failure_of(submit([&](Orchestration& o) {
    o.submit(fail, in(a_.tensor), out(b_.tensor), named("bad"));
    o.submit(mark(1), out(a_.tensor));    // Write after read.
    o.submit(mark(10), out(b_.tensor));   // Write after write.
    o.submit(mark(100), in(a_.tensor));   // Of a writer that went well.
    o.submit(mark(1000), in(b_.tensor));  // Overwritten since.
    o.submit(mark(10000), out(c_.tensor));
  }));
  EXPECT_EQ(ran_, 11111);
  EXPECT_TRUE(failed.skipped().empty());
}

TEST_F(EngineFailure, InoutOfInvalidBytesIsARead) {
  const RunFailed failed = failure_of(submit([&](Orchestration& o) {
    o.submit(fail, out(a_.tensor));
    o.submit(mark(1), inout(a_.tensor), named("update"));
    o.submit(mark(1), in(a_.tensor), named("reader"));
  }));
  EXPECT_EQ(ran_, 0);
  EXPECT_EQ(names(failed.skipped()), (Names{"reader", "update"}));
}

TEST_F(EngineFailure, OnlyReadersOfTheLostBytesAreSkipped) {
  const RunFailed failed = failure_of(submit([&](Orchestration& o) {
    o.submit(mark(1), out(a_.tensor));
    o.submit(fail, out(a_.tensor.tile({0, 0}, {4, 4})));
    o.submit(mark(10), in(a_.tensor.tile({0, 4}, {4, 4})));
    o.submit(mark(100), in(a_.tensor.select(1, 7)));
    o.submit(mark(1000), in(a_.tensor.select(1, 0)), named("column"));
    o.submit(mark(1000), in(a_.tensor), named("all"));
  }));
  EXPECT_EQ(ran_, 111);
  EXPECT_EQ(names(failed.skipped()), (Names{"all", "column"}));
}

TEST_F(EngineFailure, WeakerModesCarryOnlyTheCreatorsFailure) {
  const RunFailed failed = failure_of(submit([&](Orchestration& o) {
    o.submit(fail, out(a_.tensor), named("writer"));
    o.submit(mark(1), creator_only(in(a_.tensor)), out(b_.tensor));
    o.submit(mark(10), no_dep(in(a_.tensor)), out(c_.tensor));
    Tensor t(DType::float32, {4});
    o.submit(fail, out(t), named("creator"));
    o.submit(mark(100), creator_only(in(t)), named("creator only"));
    o.submit(mark(100), no_dep(inout(t)), named("no dep"));
  }));
  EXPECT_EQ(ran_, 11);
  EXPECT_EQ(names(failed.skipped()), (Names{"creator only", "no dep"}));
}

TEST_F(EngineFailure, SkipChainOfAHundredThousandTasksEnds) {
  Engine engine({.kinds = {{.name = "cpu", .threads = 1}}, .window = 1 << 17});
  Floats x(engine, {1});
  std::atomic<int> ran{0};
  const strata::Run run = engine.submit([&](Orchestration& o) {
    const LaneHold hold = engine.hold_lanes();
    o.submit(fail, out(x.tensor));
    for (int i = 0; i < 50'000; ++i)
      o.submit([&](TaskContext&) { ++ran; }, inout(x.tensor));
    TaskId last = o.submit([&](TaskContext&) { ++ran; }, in(x.tensor));
    for (int i = 0; i < 50'000; ++i)
      last = o.submit([&](TaskContext&) { ++ran; }, after(last));
  });
  ASSERT_TRUE(ends(run));
  EXPECT_EQ(ran, 0);
  EXPECT_EQ(run.stats().failed, 1U);
  EXPECT_EQ(run.stats().skipped, 100'001U);
}

// ---- Invalid bytes, across runs -----------------------------------------------------------------

class EngineInvalid : public EngineFailure {
 protected:
  void SetUp() override {
    const RunFailed failed = failure_of(
        submit([&](Orchestration& o) { o.submit(fail, out(a_.tensor), named("culprit")); }));
    ASSERT_EQ(failed.failed().size(), 1U);
    culprit_ = failed.failed()[0].task;
  }
  /// Whether a task of a new run that reads `t` is skipped because of the culprit.
  bool invalid(const Tensor& t) {
    const int before = ran_;
    const strata::Run run = submit([&](Orchestration& o) { o.submit(mark(1), in(t)); });
    const RunFailed failed = failure_of(run);
    EXPECT_EQ(failed.skipped().size() + static_cast<std::size_t>(ran_ - before), 1U);
    if (failed.skipped().empty()) return false;
    EXPECT_EQ(failed.skipped()[0].cause, culprit_);
    EXPECT_NE(failed.skipped()[0].message.find("culprit"), std::string::npos);
    EXPECT_TRUE(failed.failed().empty());
    return true;
  }
  TaskId culprit_;
};

TEST_F(EngineInvalid, ReadersInLaterRunsAreSkippedUntilATaskOverwrites) {
  EXPECT_TRUE(invalid(a_.tensor));
  EXPECT_TRUE(invalid(a_.tensor));  // A skipped reader changes nothing.
  submit([&](Orchestration& o) { o.submit(nothing, out(a_.tensor)); }).result();
  EXPECT_FALSE(invalid(a_.tensor));
}

TEST_F(EngineInvalid, PartialOverwriteMakesThatPartValid) {
  submit([&](Orchestration& o) { o.submit(nothing, out(a_.tensor.slice(0, 2, 4))); }).result();
  EXPECT_FALSE(invalid(a_.tensor.slice(0, 2, 4)));
  EXPECT_FALSE(invalid(a_.tensor.tile({3, 1}, {1, 2})));
  EXPECT_TRUE(invalid(a_.tensor.slice(0, 1, 3)));
  EXPECT_TRUE(invalid(a_.tensor));
  submit([&](Orchestration& o) {
    o.submit(nothing, out(a_.tensor.slice(0, 0, 2)));
    o.submit(nothing, out(a_.tensor.slice(0, 4, 8)));
  }).result();
  EXPECT_FALSE(invalid(a_.tensor));
}

TEST_F(EngineInvalid, ColumnsOverwrittenOneByOneMakeTheWholeValid) {
  submit([&](Orchestration& o) {
    for (int i = 0; i < 8; ++i)
      o.submit(nothing, out(a_.tensor.select(1, i)));
  }).result();
  EXPECT_FALSE(invalid(a_.tensor));
}

TEST_F(EngineInvalid, HostOverwriteMakesValid) {
  submit([&](Orchestration& o) { o.overwrite(a_.tensor.slice(0, 0, 4)); }).result();
  EXPECT_FALSE(invalid(a_.tensor.slice(0, 0, 4)));
  EXPECT_TRUE(invalid(a_.tensor));
  submit([&](Orchestration& o) { o.overwrite(a_.tensor); }).result();
  EXPECT_FALSE(invalid(a_.tensor));
}

TEST_F(EngineInvalid, HostWriteMakesOneElementValid) {
  submit([&](Orchestration& o) { o.write<float>(a_.tensor, {1, 1}, 3.0F); }).result();
  EXPECT_FALSE(invalid(a_.tensor.tile({1, 1}, {1, 1})));
  EXPECT_TRUE(invalid(a_.tensor.tile({1, 1}, {1, 2})));
}

TEST_F(EngineInvalid, HostReadAndWaitThrowTheCause) {
  bool went_on = false;
  submit([&](Orchestration& o) {
    try {
      (void)o.read<float>(a_.tensor, {0, 0});
      ADD_FAILURE() << "read went well";
    } catch (const RunFailed& failed) {
      EXPECT_EQ(failed.failed().at(0).task, culprit_);
    }
    EXPECT_THROW(o.wait(a_.tensor), RunFailed);
    o.wait(o.submit(nothing, out(b_.tensor)));
    went_on = true;
  }).result();
  EXPECT_TRUE(went_on);
}

TEST_F(EngineInvalid, RemovedBufferTakesItsInvalidBytesWithIt) {
  engine_.remove_buffer(a_.tensor.buffer());
  a_.tensor = engine_.tensor(a_.data, {8, 8});
  EXPECT_FALSE(invalid(a_.tensor));
}

TEST_F(EngineInvalid, TaskThatWasSkippedInvalidatesWhatItWouldHaveWritten) {
  submit([&](Orchestration& o) { o.submit(mark(1), in(a_.tensor), out(b_.tensor)); });
  EXPECT_TRUE(invalid(b_.tensor));
  EXPECT_EQ(ran_, 0);
}

TEST_F(EngineInvalid, FailureOfAnOlderWriterDoesNotInvalidateWhatANewerOneWrote) {
  // The newer one is already submitted, and its bytes are right whatever happened before.
  Gate both;
  const strata::Run run = submit([&](Orchestration& o) {
    o.submit(
        [&](TaskContext&) {
          both.wait();
          throw std::runtime_error("late");
        },
        out(b_.tensor));
    o.submit(mark(1), out(b_.tensor.slice(0, 0, 4)));
    both.open();
  });
  EXPECT_EQ(failure_of(run).failed().size(), 1U);
  EXPECT_EQ(ran_, 1);
  submit([&](Orchestration& o) { o.submit(mark(10), in(b_.tensor.slice(0, 0, 4))); }).result();
  EXPECT_EQ(ran_, 11);
  const strata::Run lower =
      submit([&](Orchestration& o) { o.submit(mark(100), in(b_.tensor.slice(0, 3, 5))); });
  EXPECT_EQ(failure_of(lower).skipped().size(), 1U);
  EXPECT_EQ(ran_, 11);
}

// ---- How runs end -------------------------------------------------------------------------------

TEST_F(EngineFailure, FirstCauseComesFirstAndAllAreListed) {
  const strata::Run run = submit([&](Orchestration& o) {
    o.submit(fail, out(a_.tensor), named("first"));
    EXPECT_TRUE(eventually([&] { return o.run().stats().failed == 1; }));
    o.submit([](TaskContext&) { throw std::logic_error("second cause"); }, out(b_.tensor),
             named("second"));
    o.submit(mark(1), in(a_.tensor), named("reader a"));
    o.submit(mark(1), in(b_.tensor), named("reader b"));
  });
  const RunFailed failed = failure_of(run);
  ASSERT_EQ(failed.failed().size(), 2U);
  EXPECT_EQ(failed.failed()[0].name, "first");
  EXPECT_EQ(failed.failed()[1].name, "second");
  EXPECT_EQ(failed.failed()[0].message, "no luck");
  EXPECT_THROW(std::rethrow_exception(failed.failed()[1].exception), std::logic_error);
  EXPECT_EQ(names(failed.skipped()), (Names{"reader a", "reader b"}));
  const std::string what = failed.what();
  EXPECT_NE(what.find("'first'"), std::string::npos) << what;
  EXPECT_NE(what.find("no luck"), std::string::npos) << what;
  EXPECT_EQ(run.stats().failed, 2U);
  EXPECT_EQ(run.stats().skipped, 2U);
  EXPECT_THROW(run.result(), RunFailed);  // Any number of times.
}

TEST_F(EngineFailure, ExceptionThatIsNoStdExceptionIsAFailureToo) {
  const RunFailed failed =
      failure_of(submit([&](Orchestration& o) { o.submit([](TaskContext&) { throw 42; }); }));
  ASSERT_EQ(failed.failed().size(), 1U);
  EXPECT_THROW(std::rethrow_exception(failed.failed()[0].exception), int);
}

TEST_F(EngineFailure, NextRunIsClean) {
  submit([&](Orchestration& o) {
    for (int i = 0; i < 50; ++i) {
      o.submit(fail, out(a_.tensor));
      o.submit(mark(1), in(a_.tensor), out(b_.tensor));
    }
  });
  EXPECT_EQ(ran_, 0);
  const strata::Run run = submit([&](Orchestration& o) {
    o.submit(mark(1), out(a_.tensor));
    o.submit(mark(1), in(a_.tensor), out(b_.tensor));
    o.submit(mark(1), in(b_.tensor));
  });
  run.result();
  EXPECT_EQ(ran_, 3);
  EXPECT_EQ(run.stats().failed + run.stats().skipped, 0U);
}

TEST_F(EngineFailure, MemberThatFailsTellsTheOthersByTheirToken) {
  std::atomic<bool> told{false};
  const RunFailed failed = failure_of(submit([&](Orchestration& o) {
    GroupMember members[] = {{.lane = LaneId{0}, .body = fail},
                             {.lane = LaneId{1}, .body = [&](TaskContext& c) {
                                told = eventually([&] { return c.cancelled(); });
                              }}};
    const TaskId group = o.submit_group({.members = members, .name = "pair"});
    o.submit(mark(1), after(group), named("follower"));
    o.submit([&](TaskContext& c) { ran_ += c.cancelled() ? 0 : 10; });  // It tells nobody else.
  }));
  EXPECT_TRUE(told);
  EXPECT_EQ(ran_, 10);
  EXPECT_EQ(names(failed.failed()), Names{"pair"});
  EXPECT_EQ(names(failed.skipped()), Names{"follower"});
}

TEST_F(EngineFailure, OrchestrationThatThrowsEndsTheRunWithThat) {
  const strata::Run run = submit([&](Orchestration& o) {
    Tensor t(DType::float32, {64});
    o.submit(mark(1), out(t));
    throw std::out_of_range("of the map");
  });
  EXPECT_THROW(run.result(), std::out_of_range);
  EXPECT_THROW(run.result(), std::out_of_range);
  EXPECT_EQ(ran_, 1);  // What was submitted is not taken back.
  EXPECT_EQ(engine_.stats().heap_used, 0U);
  EXPECT_THROW(engine_.run([](Orchestration&) { throw std::out_of_range("again"); }),
               std::out_of_range);
}

TEST_F(EngineFailure, CauseComesBeforeWhatTheOrchestrationMadeOfIt) {
  const strata::Run run = submit([&](Orchestration& o) {
    o.submit(fail, out(a_.tensor), named("cause"));
    o.wait(a_.tensor);  // Throws.
  });
  EXPECT_EQ(names(failure_of(run).failed()), Names{"cause"});
}

// ---- Cancel and deadline ------------------------------------------------------------------------

TEST_F(EngineFailure, CancelTellsTheRunningAndDropsTheWaiting) {
  Gate started;
  Gate submitted;
  std::atomic<bool> told{false};
  const strata::Run run = engine_.submit([&](Orchestration& o) {
    o.submit(
        [&](TaskContext& c) {
          started.open();
          told = eventually([&] { return c.cancelled(); });
        },
        out(a_.tensor));
    started.wait();
    for (int i = 0; i < 20; ++i)
      o.submit(mark(1), inout(a_.tensor));
    submitted.open();
    EXPECT_TRUE(eventually([&] { return o.cancelled(); }));
    EXPECT_THROW(o.submit(mark(1)), Cancelled);
  });
  ASSERT_TRUE(submitted.wait());
  run.cancel();
  ASSERT_TRUE(run.wait_for(kPatience));
  EXPECT_TRUE(told);
  EXPECT_EQ(ran_, 0);
  EXPECT_THROW(run.result(), Cancelled);
  run.cancel();  // Of an ended run: nothing.

  // The bytes that were to be written are not there; nothing else is left of it.
  const strata::Run next = submit([&](Orchestration& o) {
    o.submit(mark(1), in(b_.tensor));
    o.submit(mark(10), out(a_.tensor));
    o.submit(mark(100), in(a_.tensor));
  });
  next.result();
  EXPECT_EQ(ran_, 111);
}

TEST_F(EngineFailure, TaskThatGivesUpWhenCancelledHasNotFailed) {
  Gate started;
  const auto gives_up = [&](TaskContext& c) {
    started.open();
    (void)eventually([&] { return c.cancelled(); });
    throw Cancelled("gives up");
  };
  const strata::Run run =
      engine_.submit([&](Orchestration& o) { o.submit(gives_up, out(a_.tensor)); });
  ASSERT_TRUE(started.wait());
  run.cancel();
  EXPECT_THROW(run.result(), Cancelled);
  // Its bytes were not written, nevertheless.
  const strata::Run reads = submit([&](Orchestration& o) { o.submit(mark(1), in(a_.tensor)); });
  EXPECT_THROW(reads.result(), strata::RunFailed);

  // Nobody cancelled this one: it has failed.
  const strata::Run fails = submit([&](Orchestration& o) {
    o.submit([](TaskContext&) { throw Cancelled("of its own"); }, out(a_.tensor));
  });
  EXPECT_THROW(fails.result(), strata::RunFailed);
}

TEST_F(EngineFailure, CancelOfOneRunLeavesOthersAlone) {
  Gate proceed;
  const strata::Run first = engine_.submit(
      [&](Orchestration& o) { o.submit([&](TaskContext&) { proceed.wait(); }, inout(a_.tensor)); });
  ASSERT_TRUE(eventually([&] { return first.stats().tasks == 1; }));
  const strata::Run second = engine_.submit([&](Orchestration& o) {
    o.submit(mark(1), inout(b_.tensor));
    o.submit(mark(1), out(a_.tensor));
  });
  first.cancel();
  proceed.open();
  ASSERT_TRUE(ends(first));
  ASSERT_TRUE(ends(second));
  second.result();
  EXPECT_EQ(ran_, 2);
}

TEST_F(EngineFailure, DeadlineEndsARunThatWouldNotEnd) {
  std::atomic<bool> told{false};
  const strata::Run run = engine_.submit(
      [&](Orchestration& o) {
        o.submit([&](TaskContext& c) { told = eventually([&] { return c.cancelled(); }); },
                 out(a_.tensor));
        o.submit(mark(1), in(a_.tensor));
      },
      {.name = "slow", .deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1)});
  ASSERT_TRUE(run.wait_for(kPatience));
  EXPECT_TRUE(told);
  EXPECT_EQ(ran_, 0);
  const std::string what = message_of<DeadlineExceeded>([&] { run.result(); });
  EXPECT_NE(what.find("slow"), std::string::npos) << what;
  EXPECT_THROW(run.result(), Cancelled);
}

TEST_F(EngineFailure, DeadlineOfAnEndedRunDoesNothing) {
  const strata::Run run =
      submit([&](Orchestration& o) { o.submit(mark(1)); },
             {.deadline = std::chrono::steady_clock::now() + std::chrono::hours(10)});
  run.result();
  EXPECT_EQ(ran_, 1);
}

TEST_F(EngineFailure, DeadlinesAreKeptInTheirOwnOrder) {
  // The later deadline was set first.
  const auto now = std::chrono::steady_clock::now();
  const auto until_cancelled = [&](Orchestration& o) {
    o.submit([&](TaskContext& c) { (void)eventually([&] { return c.cancelled(); }); });
  };
  const strata::Run late =
      engine_.submit(until_cancelled, {.deadline = now + std::chrono::hours(10)});
  const strata::Run early =
      engine_.submit(until_cancelled, {.deadline = now + std::chrono::milliseconds(10)});
  EXPECT_TRUE(early.wait_for(kPatience));
  EXPECT_FALSE(late.done());
  late.cancel();
  EXPECT_TRUE(late.wait_for(kPatience));
  EXPECT_THROW(early.result(), DeadlineExceeded);
}

}  // namespace
}  // namespace strata::test
