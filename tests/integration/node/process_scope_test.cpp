// Workers of the user's own executable, and every way to get that wrong: "ProcessScope missing; a
// static initialiser that creates a Worker; one that sleeps for ever; the executable replaced on
// disk while running: a clear error each, no fork bomb."

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "strata/process_scope.hpp"
#include "support/node_test.hpp"
#include "support/temp_dir.hpp"

namespace strata::test {
namespace {

namespace fs = std::filesystem;

const WorkerFunction g_pid("pid of this program", [](WorkerTask& task) {
  task.set_value(std::to_string(::getpid()) + " " + std::string(task.worker()));
});
const WorkerFunction g_split("orchestration of this program", [](Worker& worker, Orchestration& run,
                                                                 WorkerTask& task) {
  const CallableId increment = worker.add(task_in_library("increment"));
  run.submit(Call(increment), inout(task.as_tensor(0)), on(worker.any_sub()));
});

class NodeProcessScope : public NodeTest {
 protected:
  /// How many processes came of a program while it ran, at most; ends when it does.
  static std::size_t most_descendants(Program& program, std::chrono::milliseconds promised) {
    std::size_t most = 0;
    (void)within(promised, [&] {
      most = std::max(most, program.descendants().size());
      return program.ended();
    });
    return most;
  }
};

TEST_F(NodeProcessScope, FunctionsOfThisProgramRunInProcessesOfTheirOwn) {
  EXPECT_TRUE(ProcessScope::entered());
  WorkerOptions below;
  below.program = WorkerProgram::this_program;
  below.subs = {{.count = 1}};
  WorkerOptions options;
  options.subs = {{.count = 2, .program = WorkerProgram::this_program}};
  options.next_level = {below};
  Worker worker(options);
  worker.init();
  const CallableId pid = worker.add(Callable::in_program("pid of this program"));
  const CallableId split =
      worker.add(Callable::in_program("orchestration of this program").as_orchestration());
  Buffer x = worker.create_buffer(64);
  TaskId first;
  TaskId second;
  const Run run = worker.run([&](Orchestration& o) {
    first = o.submit(Call(pid), on(worker.sub(0)));
    second = o.submit(Call(pid), on(worker.sub(1)));
    o.submit(Call(split), inout(x.tensor(DType::int64, {8})), on(worker.any_next()));
  });
  EXPECT_NE(run.value(first), run.value(second));
  EXPECT_THAT(run.value(first).value_or(""), HasSubstr("node/sub[0]"));
  EXPECT_EQ(x.as<std::int64_t>()[7], 1);
}

TEST_F(NodeProcessScope, AFunctionThatIsNotThereIsToldWithThoseThatAre) {
  Worker worker({.subs = {{.count = 1, .program = WorkerProgram::this_program}}});
  worker.init();
  const CallableId none = worker.add(Callable::in_program("no such function"));
  const Run run =
      worker.submit([&](Orchestration& o) { o.submit(Call(none), on(worker.any_sub())); });
  const auto failures = failures_of(run);
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_THAT(failures[0].second, HasSubstr("no such function"));
  EXPECT_THAT(failures[0].second, HasSubstr("pid of this program"));
}

TEST_F(NodeProcessScope, ASecondOneIsRefused) {
  char name[] = "test";
  char* argv[] = {name, nullptr};
  thrown_by<InvalidState>([&] { const ProcessScope second(1, argv); });
}

TEST_F(NodeProcessScope, MissingIsToldBeforeAnyProcessIsMade) {
  Program program("no_scope_driver");
  // At the end of a program the leak sanitizer makes a process of its own.
  EXPECT_LE(most_descendants(program, 10s), kSanitized ? 1u : 0u);
  EXPECT_EQ(program.end(1s), ProgramEnd{.exit_code = 0});
  EXPECT_THAT(program.output(), HasSubstr("invalid state: "));
  EXPECT_THAT(program.output(), HasSubstr("ProcessScope"));
  EXPECT_THAT(program.output(), Not(HasSubstr("entered again")));
}

TEST_F(NodeProcessScope, AWorkerMadeByAStaticInitialiserIsAClearErrorOfTheChild) {
  Program program("static_driver", {}, {{"STRATA_TEST_STATIC", "worker"}});
  EXPECT_LE(most_descendants(program, 20s), 4u);
  EXPECT_EQ(program.end(1s), ProgramEnd{.exit_code = 4});
  EXPECT_THAT(program.output(), HasSubstr("start failed"));
  EXPECT_THAT(program.output(), HasSubstr("ProcessScope"));
}

TEST_F(NodeProcessScope, AWorkerInitialisedByAStaticInitialiserIsAClearError) {
  Program program("static_driver", {},
                  {{"STRATA_TEST_STATIC", "init"}, {"ASAN_OPTIONS", "detect_leaks=0"}});
  EXPECT_EQ(most_descendants(program, 20s), 0u);
  EXPECT_EQ(program.end(1s), ProgramEnd{.exit_code = 3});
  EXPECT_THAT(program.output(), HasSubstr("ProcessScope"));
}

TEST_F(NodeProcessScope, AStaticInitialiserThatSleepsForEverIsEndedAtTheDeadline) {
  const auto limit = bound(1s);
  Program program("static_driver", {},
                  {{"STRATA_TEST_STATIC", "sleep"},
                   {"STRATA_TEST_START_LIMIT", std::to_string(limit.count())}});
  EXPECT_LE(most_descendants(program, 20s), 2u);
  EXPECT_EQ(program.end(1s), ProgramEnd{.exit_code = 4});
  EXPECT_THAT(program.output(), HasSubstr("node/sub["));
  EXPECT_THAT(program.output(), HasSubstr("start the program"));  // It never came to its main.
}

TEST_F(NodeProcessScope, AStaticInitialiserThatCrashesIsToldWithItsSignal) {
  Program program("static_driver", {}, {{"STRATA_TEST_STATIC", "crash"}});
  EXPECT_LE(most_descendants(program, 20s), 4u);
  EXPECT_EQ(program.end(1s), ProgramEnd{.exit_code = 4});
  EXPECT_THAT(program.output(), HasSubstr("signal 11 (segmentation fault)"));
}

TEST_F(NodeProcessScope, AnExecutableReplacedOnDiskStillStartsWhatWasRunning) {
  const TempDir folder;
  const fs::path path = folder.path() / "program";
  fs::copy_file(test_program("static_driver"), path);
  for (const bool removed : {false, true}) {
    fs::copy_file(test_program("static_driver"), path, fs::copy_options::overwrite_existing);
    Program program(path.string(), {"line"});
    ASSERT_TRUE(program.line("waiting", 10s));
    if (removed) {
      fs::remove(path);
    } else {
      // What a compiler or a package manager does: another file of that name.
      const fs::path other = folder.path() / "other";
      std::ofstream(other) << "#!/bin/sh\necho replaced\n";
      fs::permissions(other, fs::perms::owner_all);
      fs::rename(other, path);
    }
    program.send("go on");
    EXPECT_EQ(program.end(10s), ProgramEnd{.exit_code = 0});
    EXPECT_THAT(program.output(), HasSubstr("answer 42"));
    EXPECT_THAT(program.output(), Not(HasSubstr("replaced")));
  }
}

TEST_F(NodeProcessScope, ItsWorkersDieWithTheProgram) {
  Program program("static_driver", {"pause"});
  ASSERT_TRUE(program.line("pausing", 10s));
  EXPECT_EQ(program.descendants().size(), 2u);
  program.signal(SIGKILL);
  EXPECT_TRUE(within(1s, [&] { return program.descendants().empty(); }));
}

}  // namespace
}  // namespace strata::test
