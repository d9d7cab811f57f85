// Chip programs as callables: what is refused before anything runs, removing, files that change.

#include <filesystem>
#include <fstream>
#include <iterator>

#include "support/chip_test.hpp"
#include "support/temp_dir.hpp"

namespace strata::test {
namespace {

using testing::AllOf;

class ChipPrograms : public ChipTest {
 protected:
  /// Whether the chip's process has the file mapped, under this or, from memory, the program's
  /// name.
  [[nodiscard]] bool loaded() const {
    std::ifstream maps("/proc/" + std::to_string(worker_->processes()[0].pid) + "/maps");
    const std::string text(std::istreambuf_iterator<char>(maps), {});
    return text.find(ways_file()) != std::string::npos ||
           text.find("memfd:ways") != std::string::npos;
  }
  void expect_refused(ErrorCode code, const std::string& what, const TensorArg& argument) {
    const auto refused =
        refusal_of<ChipError>(*worker_, Call(ways_), argument, scalar(Way::nothing),
                              scalar(std::int64_t{0}), on(worker_->any_chip()), named("the task"));
    ASSERT_TRUE(refused);
    EXPECT_EQ(refused->code(), code) << refused->what();
    EXPECT_THAT(refused->what(), AllOf(HasSubstr("ways"), HasSubstr(what)));
  }
};

TEST_F(ChipPrograms, ArgumentsThatDoNotMatchTheSignatureAreRefusedAtSubmit) {
  start("a2a3sim:clusters=1");
  const Tensor good = x();
  expect_refused(ErrorCode::wrong_argument_mode, "'x'", in(good));
  const Tensor floats = x_.tensor(DType::float32, {16});
  expect_refused(ErrorCode::wrong_argument_dtype, "float32", inout(floats));
  const Tensor square = x_.tensor(DType::int64, {4, 4});
  expect_refused(ErrorCode::wrong_argument_rank, "'x'", inout(square));
  const auto few = refusal_of<ChipError>(*worker_, Call(ways_), inout(good), scalar(Way::nothing),
                                         on(worker_->any_chip()));
  ASSERT_TRUE(few);
  EXPECT_EQ(few->code(), ErrorCode::wrong_argument_count);
  const auto many =
      refusal_of<ChipError>(*worker_, Call(ways_), inout(good), in(good), scalar(Way::nothing),
                            scalar(std::int64_t{0}), on(worker_->any_chip()));
  ASSERT_TRUE(many);
  EXPECT_EQ(many->code(), ErrorCode::wrong_argument_count);
  expect_usable();
}

TEST_F(ChipPrograms, OnlyChipsRunThem) {
  WorkerOptions options;
  options.chips = {{.platform = "a2a3sim:clusters=1"}};
  options.subs = {{.count = 1}};
  start(std::move(options));
  const Tensor tensor = x();
  for (const Target target : {on(worker_->any_sub()), on(worker_->sub(0)), Target{}}) {
    const auto refused =
        refusal_of<InvalidArgument>(*worker_, Call(ways_), inout(tensor), scalar(Way::nothing),
                                    scalar(std::int64_t{0}), target, named("astray"));
    ASSERT_TRUE(refused);
    EXPECT_THAT(refused->what(),
                AllOf(HasSubstr("'astray'"), HasSubstr("chip program 'ways'"), HasSubstr("chip")));
  }
  expect_usable();
}

TEST_F(ChipPrograms, OptionsThatMakeNoSenseAreRefusedWhenTheyAreGiven) {
  start("a2a3sim:clusters=1");
  const auto refused = thrown_by<ChipError>(
      [&] { (void)worker_->add(Callable::chip_program(ways_file(), {.window = 0})); });
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code(), ErrorCode::bad_configuration);
  EXPECT_THAT(refused->what(), HasSubstr("ways"));
  WorkerOptions options;
  options.chips = {{}, {.run = {.threads = 0}}};
  const auto of_chip = thrown_by<ChipError>([&] { Worker worker(options); });
  ASSERT_TRUE(of_chip);
  EXPECT_EQ(of_chip->code(), ErrorCode::bad_configuration);
  EXPECT_THAT(of_chip->what(), HasSubstr("chips[1]"));
}

TEST_F(ChipPrograms, PlatformsThatAreNotThereAreRefusedBeforeAnythingStarts) {
  const auto code_of = [](const std::string& platform) {
    WorkerOptions options;
    options.chips = {{.platform = platform}};
    const auto refused = thrown_by<ChipError>([&] { Worker worker(options); });
    return refused ? refused->code() : ErrorCode::none;
  };
  EXPECT_EQ(code_of("abacus"), ErrorCode::unknown_platform);
  EXPECT_EQ(code_of("a2a3sim:beads=4"), ErrorCode::unknown_platform);
  EXPECT_EQ(code_of("a2a3"), ErrorCode::platform_missing);
  WorkerOptions deep;
  deep.next_level.resize(1);
  deep.next_level[0].chips = {{.platform = "abacus"}};
  EXPECT_TRUE(thrown_by<ChipError>([&] { Worker worker(deep); }));
}

TEST_F(ChipPrograms, FilesThatAreNoChipProgramsAreRefusedWhenTheyAreGiven) {
  start("a2a3sim:clusters=1");
  const auto code_of = [&](const std::string& file) {
    const auto refused =
        thrown_by<ChipError>([&] { (void)worker_->add(Callable::chip_program(file)); });
    return refused ? refused->code() : ErrorCode::none;
  };
  EXPECT_EQ(code_of("/no/such/file"), ErrorCode::bad_program_file);
  EXPECT_EQ(code_of("/etc/passwd"), ErrorCode::bad_program_file);
  EXPECT_EQ(code_of(test_library("strata_test_tasks")), ErrorCode::foreign_program);
}

// ---- Removing -----------------------------------------------------------------------------------

TEST_F(ChipPrograms, ARemovedProgramIsRefusedByNameAndUnloaded) {
  start("a2a3sim:clusters=1");
  expect_usable();
  EXPECT_TRUE(loaded());
  const CallableId removed = ways_;
  worker_->remove(removed);
  EXPECT_TRUE(within(bound(20s), [&] { return !loaded(); }));
  const Tensor tensor = x();
  const auto refused =
      refusal_of<ChipError>(*worker_, Call(removed), inout(tensor), scalar(Way::nothing),
                            scalar(std::int64_t{0}), on(worker_->any_chip()), named("too late"));
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code(), ErrorCode::removed_program);
  EXPECT_THAT(refused->what(), AllOf(HasSubstr("'too late'"), HasSubstr("'ways'")));
  EXPECT_NO_THROW(worker_->remove(removed));
  ways_ = worker_->add(Callable::chip_program(ways_file()));
  EXPECT_NE(ways_, removed);
  expect_usable();
}

TEST_F(ChipPrograms, TasksInFlightOfARemovedProgramAreRun) {
  start("a2a3sim:clusters=1");
  const Run held = submit(Way::hold);
  ASSERT_TRUE(within(bound(20s), [&] { return at(0) == 1; }));
  // More wait behind it, at the chip and in the engine.
  Buffer other = worker_->create_buffer(8);
  const Run behind = worker_->submit([&](Orchestration& o) {
    for (int i = 0; i < 100; ++i) {
      o.submit(Call(ways_), inout(other.tensor(DType::int64, {1})), scalar(Way::increment),
               scalar(std::int64_t{0}), on(worker_->chip(0)));
    }
  });
  ASSERT_TRUE(within(bound(20s), [&] { return behind.stats().tasks == 100; }));
  worker_->remove(ways_);
  EXPECT_TRUE(loaded());
  set(1, 1);
  EXPECT_NO_THROW(held.result());
  EXPECT_NO_THROW(behind.result());
  EXPECT_EQ(other.as<std::int64_t>()[0], 100);
  EXPECT_TRUE(within(bound(20s), [&] { return !loaded(); }));
}

TEST_F(ChipPrograms, TheSameProgramWithOtherOptionsStaysWhenOneIsRemoved) {
  start("a2a3sim:clusters=1");
  const CallableId kept =
      worker_->add(Callable::chip_program(ways_file(), {.mode = OrchestrationMode::host_graph}));
  EXPECT_FALSE(run(Way::increment, 0, Call(kept)));
  worker_->remove(ways_);
  for (int i = 0; i < 10; ++i)
    EXPECT_FALSE(run(Way::increment, 0, Call(kept)));
  worker_->remove(kept);
  EXPECT_TRUE(within(bound(20s), [&] { return !loaded(); }));
}

TEST_F(ChipPrograms, ProgramsComeAndGoWhileOthersRun) {
  start("a2a3sim:clusters=1");
  const Run busy = submit(Way::hold);
  ASSERT_TRUE(within(bound(20s), [&] { return at(0) == 1; }));
  std::vector<CallableId> seen{ways_};
  for (std::size_t window = 1; window <= 50; ++window) {
    const CallableId id = worker_->add(Callable::chip_program(ways_file(), {.window = window}));
    EXPECT_EQ(std::count(seen.begin(), seen.end(), id), 0);
    seen.push_back(id);
    worker_->remove(id);
  }
  set(1, 1);
  EXPECT_NO_THROW(busy.result());
  expect_usable();
}

TEST_F(ChipPrograms, AReplacedChipKnowsTheProgramsAgainButNotTheRemoved) {
  start("a2a3sim:clusters=1");
  const CallableId removed = worker_->add(Callable::chip_program(ways_file(), {.window = 7}));
  EXPECT_FALSE(run(Way::increment, 0, Call(removed)));
  worker_->remove(removed);
  replace_chip();
  expect_usable();
}

TEST_F(ChipPrograms, AFileThatWasReplacedIsNotRunInThePlaceOfTheOther) {
  const TempDir dir;
  const std::filesystem::path file = dir.path() / "program.chip";
  std::filesystem::copy_file(ways_file(), file);
  start("a2a3sim:clusters=1");
  const CallableId added = worker_->add(Callable::chip_program(file.string()));
  EXPECT_FALSE(run(Way::increment, 0, Call(added)));
  std::filesystem::remove(file);
  std::filesystem::copy_file(chip_program("other"), file);
  // The process that has the first file goes on with it; a new one finds another file.
  EXPECT_FALSE(run(Way::increment, 0, Call(added)));
  replace_chip();
  const auto fault = run(Way::increment, 0, Call(added));
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->code, "stale_program") << fault->to_string();
  const CallableId again = worker_->add(Callable::chip_program(file.string()));
  EXPECT_NE(again, added);
  expect_usable();
}

}  // namespace
}  // namespace strata::test
