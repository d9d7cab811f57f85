// The model and the checks judge the engine, so they are judged here: small programs whose meaning
// is plain, and traces that are wrong in one place.
#include "model.hpp"

#include <gtest/gtest.h>

#include "checks.hpp"
#include "generator.hpp"
#include "outcome.hpp"
#include "runner.hpp"
#include "shrink.hpp"
#include "support/guard.hpp"

namespace strata::property {
namespace {

View bytes(int storage, std::int64_t begin, std::int64_t end) {
  View view = whole(storage, DType::uint8, {end - begin});
  view.offset = begin;
  return view;
}
/// Every second byte.
View stepped(int storage, std::int64_t begin, std::int64_t count) {
  View view = whole(storage, DType::uint8, {count});
  view.offset = begin;
  view.strides = {2};
  return view;
}
Arg reads(View view) { return {.view = std::move(view), .access = Access::in}; }
Arg writes(View view) { return {.view = std::move(view), .access = Access::out}; }
Arg weak(Arg arg, Tracking tracking) {
  arg.tracking = tracking;
  return arg;
}

/// A program of one run on one buffer of 64 bytes; its steps' ids are 1, 2, ...
class Builder {
 public:
  Builder() {
    program_.buffers = {64};
    program_.kinds = {KindPlan{.threads = 3}};
    program_.runs = {RunPlan{}};
  }
  Step& step(Op op) {
    Step& added = program_.steps.emplace_back();
    added.id = static_cast<int>(program_.steps.size());
    added.op = op;
    return added;
  }
  Step& task(std::vector<Arg> args) {
    Step& added = step(Op::task);
    added.works = {Work{.args = std::move(args), .salt = 7}};
    return added;
  }
  Program& program() { return program_; }
  /// Nodes have the numbers of their tasks, from 0.
  Model model() {
    normalize(program_);
    return Model(program_);
  }

 private:
  Program program_;
};

TEST(ModelOrder, ReadersWaitForTheWriterAndTheNextWriterForAllReaders) {
  Builder b;
  b.task({writes(bytes(0, 0, 8))});
  b.task({reads(bytes(0, 0, 4))});
  b.task({reads(bytes(0, 4, 8))});
  b.task({writes(bytes(0, 2, 6))});
  const Model model = b.model();
  EXPECT_TRUE(model.node(1).required.has(0));
  EXPECT_TRUE(model.independent(1, 2));
  EXPECT_TRUE(model.node(3).direct.has(1) && model.node(3).direct.has(2));
}

TEST(ModelOrder, InterleavedBytesOrderNothing) {
  Builder b;
  b.task({writes(stepped(0, 0, 8))});
  b.task({writes(stepped(0, 1, 8))});
  EXPECT_TRUE(b.model().independent(0, 1));
}

TEST(ModelOrder, AReadAfterWriteOnlyWriteWaitsForNobodyAndIsWaitedFor) {
  Builder b;
  b.program().runs = {RunPlan{}, RunPlan{.raw_only = true}};
  b.task({writes(bytes(0, 0, 8))});
  b.task({reads(bytes(0, 0, 8))});
  b.task({writes(bytes(0, 0, 8))}).run = 1;
  b.task({reads(bytes(0, 0, 8))});
  const Model model = b.model();
  EXPECT_TRUE(model.node(2).required.empty());
  EXPECT_TRUE(model.node(3).required.has(2));
  EXPECT_FALSE(model.node(3).required.has(0));
  EXPECT_FALSE(model.node(2).uses[0].touched) << "what it writes has no defined order";
}

TEST(ModelOrder, ACreatorOnlyWriteIsWaitedForBesideTheWriterBefore) {
  Builder b;
  b.task({writes(bytes(0, 0, 8))});
  b.task({weak(writes(bytes(0, 0, 8)), Tracking::creator_only)});
  b.task({reads(bytes(0, 0, 8))});
  const Model model = b.model();
  EXPECT_TRUE(model.independent(0, 1));
  EXPECT_TRUE(model.node(2).direct.has(0) && model.node(2).direct.has(1));
}

TEST(ModelOrder, NobodyWaitsForAnUntrackedWriteOrForAManualTask) {
  Builder b;
  b.task({weak(writes(bytes(0, 0, 8)), Tracking::no_dep)});
  b.step(Op::open_scope).manual = true;
  b.task({writes(bytes(0, 0, 8))});
  b.step(Op::close_scope);
  b.task({writes(bytes(0, 0, 8))});
  const Model model = b.model();
  EXPECT_TRUE(model.independent(0, 1) && model.independent(0, 2) && model.independent(1, 2));
}

TEST(ModelOrder, WeakUsersWaitForTheTaskThatAllocated) {
  Builder b;
  Arg make = writes(bytes(kFirstAllocated, 0, 16));
  make.allocates = true;
  b.task({make});
  b.task({weak(reads(bytes(kFirstAllocated, 0, 4)), Tracking::creator_only)});
  b.task({weak(reads(bytes(kFirstAllocated, 0, 4)), Tracking::no_dep)});
  const Model model = b.model();
  EXPECT_TRUE(model.node(1).required.has(0) && model.node(2).required.has(0));
}

TEST(ModelOrder, ExactLanesKeepSubmissionOrderAndUnorderedTasksDoNot) {
  Builder b;
  for (int i = 0; i < 3; ++i)
    b.task({}).exact = true;
  b.program().steps[1].unordered = true;
  const Model model = b.model();
  EXPECT_TRUE(model.node(2).required.has(0));
  EXPECT_TRUE(model.independent(0, 1) && model.independent(1, 2));
}

TEST(ModelOutcome, FailureTravelsOverReadAfterWriteAndAfterOnly) {
  Builder b;
  b.task({writes(bytes(0, 0, 8))}).works[0].fault = Fault::before_writing;
  b.task({reads(bytes(0, 0, 8)), writes(bytes(0, 16, 20))});
  b.task({writes(bytes(0, 4, 8))});
  b.task({reads(bytes(0, 4, 8))});
  b.task({reads(bytes(0, 16, 17))});
  b.task({}).after = {1};
  const Model model = b.model();
  const Outcome outcome =
      serial_outcome(model, std::vector<Status>(static_cast<std::size_t>(model.size())));
  const std::vector<Status> expected = {Status::failed, Status::skipped, Status::ran,
                                        Status::ran,    Status::skipped, Status::skipped};
  EXPECT_EQ(outcome.status, expected);
}

TEST(ModelOutcome, AFailureBehindAnOverwriteInProgramOrderHarmsNobody) {
  Builder b;
  b.task({weak(writes(bytes(0, 0, 8)), Tracking::creator_only)}).works[0].fault =
      Fault::after_writing;
  b.task({writes(bytes(0, 0, 8))});
  b.task({reads(bytes(0, 0, 8))});
  const Model model = b.model();
  const Outcome outcome =
      serial_outcome(model, std::vector<Status>(static_cast<std::size_t>(model.size())));
  EXPECT_EQ(outcome.status[2], Status::ran);
}

/// A program that goes well, and its trace, for others to spoil.
struct Good {
  Good() {
    b.task({writes(bytes(0, 0, 8))});
    b.task({reads(bytes(0, 0, 8)), writes(bytes(0, 8, 16))});
    b.task({reads(bytes(0, 0, 8))}).works[0].fault = Fault::before_writing;
    b.program().keep_graph = true;
    b.program().held = true;
    normalize(b.program());
  }
  std::size_t problems(const Trace& trace, const Model& model) {
    return check(b.program(), model, trace).size();
  }
  Builder b;
};

TEST(Checks, FindNothingWrongWithARightTraceAndEachThingThatIsSpoiled) {
  const test::Guard guard("the checks' own test");
  Good good;
  const Model model(good.b.program());
  const Trace right = run_program(good.b.program(), model);
  ASSERT_EQ(check(good.b.program(), model, right), std::vector<std::string>{});

  const auto spoiled = [&](auto&& spoil) {
    Trace trace = right;
    spoil(trace);
    return good.problems(trace, model);
  };
  EXPECT_NE(spoiled([](Trace& t) { t.buffers[0][9] ^= 1; }), 0U) << "a byte";
  EXPECT_NE(spoiled([](Trace& t) { std::swap(t.nodes[0].members, t.nodes[1].members); }), 0U)
      << "the order of two tasks";
  EXPECT_NE(spoiled([](Trace& t) { t.nodes[1].members[0].lane = 17; }), 0U) << "a lane";
  EXPECT_NE(spoiled([](Trace& t) { t.nodes[1].members[0].runs = 0; }), 0U) << "a lost task";
  EXPECT_NE(spoiled([](Trace& t) { t.runs[0].failed.clear(); }), 0U) << "a lost failure";
  EXPECT_NE(spoiled([](Trace& t) { t.runs[0].graph.edges.clear(); }), 0U) << "lost edges";
  EXPECT_NE(spoiled([](Trace& t) { t.runs[0].graph.edges[0].hazard = Hazard::creator; }), 0U)
      << "the name of a hazard";
  EXPECT_NE(spoiled([](Trace& t) { std::swap(t.nodes[0].id, t.nodes[1].id); }), 0U) << "ids";
}

TEST(Shrinking, KeepsOnlyWhatMakesTheProgramFail) {
  Program program;
  for (std::uint64_t seed = 1; program.steps.size() < 30; ++seed)
    program = generate(seed);
  const auto has_a_late_task = [](const Program& candidate) {
    return std::any_of(candidate.steps.begin(), candidate.steps.end(),
                       [](const Step& step) { return step.op == Op::task && step.id > 15; });
  };
  ASSERT_TRUE(has_a_late_task(program));
  const Program small = shrink(program, has_a_late_task, std::chrono::seconds(60));
  EXPECT_EQ(small.steps.size(), 1U) << print(small);
  EXPECT_TRUE(small.steps[0].works[0].args.empty()) << print(small);
}

TEST(Generating, TheSameSeedGivesTheSameProgramAndOthersDiffer) {
  EXPECT_EQ(print(generate(42)), print(generate(42)));
  EXPECT_NE(print(generate(42)), print(generate(43)));
}

/// A generator that no longer makes something would let faults in it pass unseen.
TEST(Generating, EverythingThatTheInterfaceOffersOccursOften) {
  std::map<std::string, int> seen;
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    const Program program = generate(seed);
    std::map<std::string, bool> here;
    here["small window"] = program.window <= 8;
    here["tight heap"] = program.tight_heap;
    here["held"] = program.held;
    here["sequential"] = program.sequential;
    here["direct"] = program.direct;
    here["runs"] = program.runs.size() > 1;
    for (const RunPlan& run : program.runs)
      here["raw only"] |= run.raw_only;
    for (const KindPlan& kind : program.kinds) {
      here["callers"] |= kind.callers > 0;
      here["external"] |= kind.external > 0;
      here["inline"] |= kind.completes_inline && kind.external > 0;
    }
    for (const Step& step : program.steps) {
      here["op " + std::to_string(static_cast<int>(step.op))] = true;
      here["manual"] |= step.op == Op::open_scope && step.manual;
      here["after"] |= !step.after.empty();
      here["exact"] |= step.exact;
      here["unordered"] |= step.unordered;
      here["priority"] |= step.priority != 0;
      for (const Work& work : step.works) {
        here["fault"] |= work.fault != Fault::none;
        here["no body"] |= !work.has_body;
        for (const Arg& arg : work.args) {
          here["creator only"] |= arg.effective() == Tracking::creator_only;
          here["no dep"] |= arg.effective() == Tracking::no_dep;
          here["allocates"] |= arg.allocates;
          here["empty"] |= bytes_of(arg.view) == 0;
          here["backwards"] |= std::any_of(arg.view.strides.begin(), arg.view.strides.end(),
                                           [](std::int64_t stride) { return stride < 0; });
        }
      }
    }
    for (const auto& [what, is] : here)
      seen[what] += is ? 1 : 0;
  }
  // Ten options of programs, all operations, five of steps, seven of works and arguments.
  EXPECT_EQ(seen.size(), 10U + 14U + 5U + 7U) << "something never occurs";
  for (const auto& [what, count] : seen)
    EXPECT_GE(count, 15) << what;
}

}  // namespace
}  // namespace strata::property
