// Callables in a worker process: the table, the loader, the functions of the program itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "node/callable_loader.hpp"
#include "node/callable_table.hpp"
#include "node/exception_fault.hpp"
#include "node/this_program.hpp"
#include "node/worker_process.hpp"
#include "node/worker_program.hpp"
#include "strata/error.hpp"
#include "strata/process_scope.hpp"

namespace strata::node {
namespace {

using ::testing::HasSubstr;

const WorkerFunction one("callable_test_one", [](WorkerTask&) {});
const WorkerFunction two("callable_test_two", [](Worker&, Orchestration&, WorkerTask&) {});

template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "(nothing was thrown)";
}

TEST(CallableTableTest, WhatWasAddedIsFoundAndStays) {
  CallableTable table;
  EXPECT_EQ(table.find(0), nullptr);
  EXPECT_EQ(table.find(UINT32_MAX), nullptr);
  table.add(5, {.name = "five", .code = {}});
  const LoadedCallable* const five = table.find(5);
  ASSERT_NE(five, nullptr);
  table.add(5, {.name = "other", .code = {}});
  EXPECT_EQ(table.find(5), five);
  EXPECT_EQ(five->name, "five");
  EXPECT_EQ(table.find(6), nullptr);
  table.add(CallableTable::kMaxId, {.name = "last", .code = {}});
  EXPECT_EQ(table.find(CallableTable::kMaxId)->name, "last");
  EXPECT_THROW(table.add(CallableTable::kMaxId + 1, {}), InvalidArgument);
}

TEST(CallableTableTest, ThreadsFindWhatAnotherAdds) {
  constexpr std::uint32_t kCount = 20'000;
  CallableTable table;
  std::thread finder([&] {
    for (std::uint32_t id = 1; id <= kCount; ++id) {
      const LoadedCallable* found = nullptr;
      while ((found = table.find(id)) == nullptr)
        std::this_thread::yield();
      EXPECT_EQ(found->name, std::to_string(id));
    }
  });
  for (std::uint32_t id = 1; id <= kCount; ++id)
    table.add(id, {std::to_string(id), {}});
  finder.join();
}

TEST(CallableLoaderTest, FindsFunctionsOfLibrariesAndLoadsEachLibraryOnce) {
  std::vector<std::string> steps;
  CallableLoader loader([&](std::string_view step) { steps.emplace_back(step); });
  const auto loaded = loader.load(Callable::in_library("libm.so.6", "cos"));
  EXPECT_EQ(loaded.name, "cos");
  EXPECT_NE(loaded.code.function, nullptr);
  EXPECT_EQ(loaded.code.orchestration, nullptr);
  const auto same = loader.load(Callable::in_library("libm.so.6", "sin").as_orchestration());
  EXPECT_NE(same.code.orchestration, nullptr);
  EXPECT_EQ(steps, std::vector<std::string>{"load library libm.so.6"});
}

TEST(CallableLoaderTest, SaysWhyThereIsNoSuchFunction) {
  CallableLoader loader([](std::string_view) {});
  EXPECT_THAT(message_of([&] { (void)loader.load(Callable::in_library("libm.so.6", "no_such")); }),
              HasSubstr("libm.so.6 has no function 'no_such'"));
  EXPECT_THAT(message_of([&] { (void)loader.load(Callable::in_library("libno_such.so", "f")); }),
              HasSubstr("libno_such.so: cannot open shared object file"));
  EXPECT_THAT(message_of([&] { (void)loader.load(Callable::in_program("no_such")); }),
              HasSubstr("callable_test_one"));
}

TEST(CallableLoaderTest, ALibraryThatFailedIsTriedAgainOnlyForTheNextMessage) {
  int tries = 0;
  CallableLoader loader([&](std::string_view) { ++tries; });
  for (int i = 0; i < 3; ++i) {
    EXPECT_THROW((void)loader.load(Callable::in_library("libno_such.so", "f")), Error);
  }
  EXPECT_EQ(tries, 1);
  loader.forget_failures();
  EXPECT_THROW((void)loader.load(Callable::in_library("libno_such.so", "f")), Error);
  EXPECT_EQ(tries, 2);
}

TEST(ProgramFunctionTest, FunctionsAreFoundByNameAndKind) {
  CallableLoader loader([](std::string_view) {});
  EXPECT_NE(loader.load(Callable::in_program("callable_test_one")).code.function, nullptr);
  const auto orchestration = Callable::in_program("callable_test_two").as_orchestration();
  EXPECT_NE(loader.load(orchestration).code.orchestration, nullptr);
  EXPECT_THAT(message_of([&] { (void)loader.load(Callable::in_program("callable_test_two")); }),
              HasSubstr("orchestration"));
}

TEST(ProgramFunctionTest, TwoOfTheSameNameAreFoundOut) {
  EXPECT_NO_THROW(check_program_functions());
  const WorkerFunction again("callable_test_one", [](WorkerTask&) {});
  EXPECT_THAT(message_of([] { check_program_functions(); }), HasSubstr("callable_test_one"));
}

TEST(ThisProgramTest, HasTheBuildIdThatItsFileHas) {
  // Debian's compilers give every program one.
  EXPECT_EQ(own_build_id().size(), 40);
  EXPECT_FALSE(is_worker_process());
  EXPECT_NO_THROW(refuse_in_worker_process());
}

TEST(ThisProgramTest, IsOpenOnceAProcessScopeWasEntered) {
  EXPECT_FALSE(ProcessScope::entered());
  EXPECT_EQ(this_program(), nullptr);
  char name[] = "the_program";
  char* argv[] = {name, nullptr};
  const ProcessScope scope(1, argv);
  ASSERT_TRUE(ProcessScope::entered());
  EXPECT_GE(this_program()->file, 0);
  EXPECT_EQ(this_program()->argv0, "the_program");
  EXPECT_THAT(this_program()->path, HasSubstr("unit_node"));
  EXPECT_THROW(ProcessScope(1, argv), InvalidState);
}

TEST(WorkerProgramTest, WhatWasGivenIsUsedOrRefused) {
  EXPECT_EQ(find_worker_program("/bin/true").path, "/bin/true");
  EXPECT_GE(find_worker_program("/bin/true").file.get(), 0);
  EXPECT_THAT(message_of([] { (void)find_worker_program("/no/such"); }),
              testing::AllOf(HasSubstr("/no/such"), HasSubstr("WorkerOptions::worker_program"),
                             HasSubstr("No such file")));
  EXPECT_THAT(message_of([] { (void)find_worker_program("/etc/passwd"); }),
              HasSubstr("can't be executed"));
  EXPECT_THAT(message_of([] { (void)find_worker_program("/tmp"); }), HasSubstr("not a file"));
}

TEST(WorkerProgramTest, TheEnvironmentIsAskedBeforeTheUsualPlaces) {
  setenv("STRATA_WORKER_PROGRAM", "/bin/true", 1);
  EXPECT_EQ(find_worker_program("").path, "/bin/true");
  EXPECT_EQ(find_worker_program("/bin/false").path, "/bin/false");
  setenv("STRATA_WORKER_PROGRAM", "/no/such", 1);
  EXPECT_THAT(message_of([] { (void)find_worker_program(""); }),
              HasSubstr("STRATA_WORKER_PROGRAM"));
  unsetenv("STRATA_WORKER_PROGRAM");
}

// ---- What an exception says
// -----------------------------------------------------------------------

struct Odd : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class T>
WorkerFault fault_when_thrown(T&& thrown) {
  return fault_of(std::make_exception_ptr(std::forward<T>(thrown)), {.path = "node/sub[0]"});
}

TEST(ExceptionFaultTest, TellsTypeAndWholeText) {
  const std::string text(10'000, 'x');
  const WorkerFault fault = fault_when_thrown(std::out_of_range(text));
  EXPECT_EQ(fault.type, "std::out_of_range");
  EXPECT_EQ(fault.cause, text);
  EXPECT_EQ(fault.path, "node/sub[0]");
  EXPECT_THAT(fault_when_thrown(Odd("x")).type, HasSubstr("Odd"));
}

TEST(ExceptionFaultTest, TellsWhatIsNoStandardException) {
  EXPECT_EQ(fault_when_thrown(42).type, "int");
  EXPECT_THAT(fault_when_thrown(42).cause, HasSubstr("42"));
  EXPECT_THAT(fault_when_thrown(std::string("words")).cause, HasSubstr("words"));
  EXPECT_THAT(fault_when_thrown(static_cast<const char*>("chars")).cause, HasSubstr("chars"));
  EXPECT_EQ(fault_when_thrown(std::vector<int>{}).type, "std::vector<int, std::allocator<int> >");
}

TEST(ExceptionFaultTest, TellsWhatIsNested) {
  try {
    try {
      throw Odd("inner");
    } catch (...) {
      std::throw_with_nested(std::logic_error("outer"));
    }
  } catch (...) {
    const WorkerFault fault = fault_of(std::current_exception(), {});
    EXPECT_THAT(fault.cause, HasSubstr("outer\ncaused by "));
    EXPECT_THAT(fault.cause, HasSubstr("Odd: inner"));
  }
}

TEST(ExceptionFaultTest, AFaultFromFurtherDownIsPassedOn) {
  const WorkerFault deep{.path = "node/next[0]/sub[1]", .cause = "deep"};
  const auto remote = std::make_exception_ptr(RemoteError("remote", deep));
  EXPECT_EQ(fault_of(remote, {.path = "node"}).path, "node/next[0]/sub[1]");
  const RunFailed run("a task failed",
                      {{.task = {}, .name = {}, .message = {}, .cause = {}, .exception = remote}},
                      {});
  EXPECT_EQ(fault_when_thrown(run).cause, "deep");
}

}  // namespace
}  // namespace strata::node
