// build_chip_program(): what is compiled again and what is not, and what is said if it can't be.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <set>
#include <thread>

#include "chip/program/program.hpp"
#include "program_folder.hpp"

namespace strata::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(ChipProgramBuild, DescriptionOfTheFileIsThatOfTheSource) {
  ProgramFolder folder;
  folder.add_kernel("add", adds("add_one", "1"), "add_one");
  folder.source.kernels.back().core = CoreType::aic;
  folder.source.signature = {
      .tensors = {{.name = "a", .access = Access::inout, .dtype = DType::bfloat16, .rank = 2},
                  {.name = "b", .access = Access::out}},
      .scalars = {"n"}};
  const ChipProgramInfo info = ChipProgramInfo::read(folder.build());
  EXPECT_EQ(info.name, "program");
  EXPECT_EQ(info.signature, folder.source.signature);
  EXPECT_EQ(info.orchestration_symbol, "strata_entry_orchestration_program");
  ASSERT_EQ(info.kernels.size(), 1U);
  EXPECT_EQ(info.kernels[0].name, "add");
  EXPECT_EQ(info.kernels[0].core, CoreType::aic);
  EXPECT_EQ(info.kernels[0].source, (folder.path() / "add.cpp").string());
  EXPECT_EQ(info.build_id.size(), 32U);
  EXPECT_FALSE(info.check);
  EXPECT_EQ(info.sanitizer, ProgramSanitizer::none);
}

TEST(ChipProgramBuild, NothingIsCompiledTwiceAndAChangedHeaderCompilesWhatIncludesIt) {
  ProgramFolder folder;
  const auto header = folder.write("value.hpp", "#define VALUE 1\n");
  folder.add_kernel("with", "#include \"value.hpp\"\n" + adds("with", "VALUE"));
  folder.add_kernel("without", adds("without", "1"));
  const fs::path first = folder.build();
  EXPECT_EQ(folder.compiled(), 3U);
  EXPECT_EQ(folder.build(), first);
  EXPECT_EQ(folder.compiled(), 0U);

  folder.write("value.hpp", "#define VALUE 2\n");
  const fs::path second = folder.build();
  EXPECT_EQ(folder.compiled(), 1U);
  EXPECT_NE(second, first);
  EXPECT_NE(ChipProgramInfo::read(second).build_id, ChipProgramInfo::read(first).build_id);

  // Back again: that content was seen before.
  folder.write("value.hpp", "#define VALUE 1\n");
  EXPECT_EQ(folder.build(), first);
  EXPECT_EQ(folder.compiled(), 0U);

  // Another time of the same content is no change.
  fs::last_write_time(header, fs::last_write_time(header) - std::chrono::hours(1));
  EXPECT_EQ(folder.build(), first);
  EXPECT_EQ(folder.compiled(), 0U);
}

TEST(ChipProgramBuild, AHeaderThatAppearsInFrontOfAnotherIsUsed) {
  ProgramFolder folder;
  folder.write("one/readme", "");
  folder.write("two/value.hpp", "#define VALUE 1\n");
  folder.source.include = {(folder.path() / "one").string(), (folder.path() / "two").string()};
  folder.add_kernel("add", "#include <value.hpp>\n" + adds("add", "VALUE"));
  const fs::path first = folder.build();
  (void)folder.compiled();
  folder.write("one/value.hpp", "#define VALUE 2\n");
  EXPECT_NE(folder.build(), first);
  EXPECT_EQ(folder.compiled(), 1U);
}

TEST(ChipProgramBuild, EachOfFlagsMacrosStandardAndSanitizerMakesAnotherProgram) {
  ProgramFolder folder;
  folder.add_kernel("add", adds("add", "1"));
  std::set<fs::path> files = {folder.build()};
  const auto changed = [&](const auto& change) {
    const auto source = folder.source;
    const auto options = folder.options;
    change();
    EXPECT_TRUE(files.insert(folder.build()).second);
    folder.source = source;
    folder.options = options;
  };
  changed([&] { folder.source.macros = {"SIZE=3"}; });
  changed([&] { folder.source.standard = "c++23"; });
  changed([&] { folder.source.flags = {"-O3"}; });
  changed([&] { folder.options.check = true; });
  changed([&] { folder.options.sanitizer = ProgramSanitizer::address; });
  changed([&] { folder.source.signature.scalars = {"n"}; });
  changed([&] {
    folder.source.kernels[0].name = "plus";
    folder.source.kernels[0].symbol = "add";
  });
}

TEST(ChipProgramBuild, DamagedFilesOfTheCacheAreMadeAgain) {
  ProgramFolder folder;
  folder.add_kernel("add", adds("add", "1"));
  const fs::path file = folder.build();
  const std::string good = bytes_of(file);
  const auto damage_all = [&](const char* part) {
    for (const auto& entry : fs::directory_iterator(folder.options.cache / part)) {
      std::string bytes = bytes_of(entry.path());
      bytes[bytes.size() / 2] ^= 1;
      std::ofstream(entry.path(), std::ios::binary) << bytes;
    }
  };
  for (const char* const part : {"programs", "objects", "index"}) {
    damage_all(part);
    damage_all("programs");  // So that what it is made of is looked at.
    ASSERT_EQ(folder.build(), file) << part;
    EXPECT_EQ(ChipProgramInfo::read(file).name, "program") << part;
  }
  fs::remove_all(folder.options.cache);
  EXPECT_EQ(folder.build(), file);
  EXPECT_EQ(bytes_of(file), good) << "the same sources give the same bytes";
}

TEST(ChipProgramBuild, ErrorsOfAllSourcesAreToldWithTheCompilersTextAndCommand) {
  ProgramFolder folder;
  folder.add_kernel("first", "STRATA_KERNEL(first) { undeclared_one(); }");
  folder.add_kernel("good", adds("good", "1"));
  folder.add_kernel("second", "STRATA_KERNEL(second) { int x = undeclared_two; }");
  const Failure failure = failure_of([&] { (void)folder.build(); });
  EXPECT_EQ(failure.code, ErrorCode::compile_failed);
  EXPECT_THAT(failure.text,
              AllOf(HasSubstr("undeclared_one"), HasSubstr("undeclared_two"),
                    HasSubstr("kernel 'first' in " + (folder.path() / "first.cpp").string()),
                    HasSubstr("kernel 'second'"), HasSubstr("-std=c++20"),
                    HasSubstr("2 of the 4 sources"), Not(HasSubstr("kernel 'good'"))));
  // What was good is not compiled again.
  (void)folder.compiled();
  folder.source.kernels = {folder.source.kernels[1]};
  (void)folder.build();
  EXPECT_EQ(folder.compiled(), 0U);
}

TEST(ChipProgramBuild, ASourceWithoutTheEntryItShouldHaveIsNamedWithTheOnesItHas) {
  ProgramFolder folder;
  folder.add_kernel("add", adds("subtract", "1"));
  Failure failure = failure_of([&] { (void)folder.build(); });
  EXPECT_EQ(failure.code, ErrorCode::compile_failed);
  EXPECT_THAT(failure.text, AllOf(HasSubstr("STRATA_KERNEL(add)"), HasSubstr("subtract")));
  folder.source.kernels[0].symbol = "subtract";
  folder.source.orchestration_symbol = "other";
  failure = failure_of([&] { (void)folder.build(); });
  EXPECT_EQ(failure.code, ErrorCode::compile_failed);
  EXPECT_THAT(failure.text,
              AllOf(HasSubstr("STRATA_CHIP_ORCHESTRATION(other)"), HasSubstr("program")));
}

TEST(ChipProgramBuild, ACompilerThatIsNotThereOrNoCompilerIsToldOf) {
  ProgramFolder folder;
  folder.options.compiler = "/no/such/compiler";
  Failure failure = failure_of([&] { (void)folder.build(); });
  EXPECT_EQ(failure.code, ErrorCode::compile_failed);
  EXPECT_THAT(failure.text, AllOf(HasSubstr("/no/such/compiler"), HasSubstr("STRATA_CXX")));
  folder.options.compiler = "/bin/false";
  failure = failure_of([&] { (void)folder.build(); });
  EXPECT_EQ(failure.code, ErrorCode::compile_failed);
  EXPECT_THAT(failure.text, HasSubstr("/bin/false --version"));
}

TEST(ChipProgramBuild, CandidatesAreExpandedAndMissingOnesLeftOut) {
  ProgramFolder folder;
  folder.write("library/value.hpp", "#define VALUE 1\n");
  ::setenv("STRATA_TEST_LIBRARY", folder.path().c_str(), 1);
  ::unsetenv("STRATA_TEST_UNSET");
  folder.add_kernel("add", "#include <value.hpp>\n" + adds("add", "VALUE"));
  auto& candidates = folder.source.kernels[0].include_candidates;
  candidates = {"$STRATA_TEST_UNSET/include", "/no/such/folder", "${STRATA_TEST_LIBRARY}/library"};
  EXPECT_EQ(ChipProgramInfo::read(folder.build()).kernels.size(), 1U);
  candidates = {"$STRATA_TEST_LIBRARY/library"};
  EXPECT_NO_THROW((void)folder.build());

  candidates = {"$STRATA_TEST_UNSET/include", "$STRATA_TEST_LIBRARY/other"};
  const Failure failure = failure_of([&] { (void)folder.build(); });
  EXPECT_EQ(failure.code, ErrorCode::missing_headers);
  EXPECT_THAT(
      failure.text,
      AllOf(HasSubstr("kernel 'add'"), HasSubstr("$STRATA_TEST_UNSET/include"),
            HasSubstr("STRATA_TEST_UNSET is not set"), HasSubstr("$STRATA_TEST_LIBRARY/other"),
            HasSubstr((folder.path() / "other").string() + " does not exist")));
}

TEST(ChipProgramBuild, AnIncludeFolderThatIsMissingIsNamed) {
  ProgramFolder folder;
  folder.source.include = {"/no/such/folder"};
  const Failure failure = failure_of([&] { (void)folder.build(); });
  EXPECT_EQ(failure.code, ErrorCode::missing_headers);
  EXPECT_THAT(failure.text, HasSubstr("/no/such/folder"));
}

TEST(ChipProgramBuild, FourThreadsAndFourProcessesMayBuildOneProgramAtOnce) {
  ProgramFolder folder;
  folder.add_kernel("one", adds("one", "1"));
  folder.add_kernel("two", adds("two", "2"));
  folder.options.jobs = 1;
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      int code = 1;
      try {
        code = ChipProgramInfo::read(folder.build()).kernels.size() == 2 ? 0 : 2;
      } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
      }
      ::_exit(code);
    }
    children.push_back(child);
  }
  std::vector<fs::path> files(4);
  {
    std::vector<std::jthread> threads;
    for (fs::path& file : files)
      threads.emplace_back([&] { file = folder.build(); });
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(std::set(files.begin(), files.end()).size(), 1U);
  (void)folder.compiled();
  EXPECT_EQ(folder.build(), files[0]);
  EXPECT_EQ(folder.compiled(), 0U);
  EXPECT_TRUE(fs::is_empty(folder.options.cache / "work")) << "nothing is left of the builds";
}

TEST(ChipProgramBuild, ACopyAndARuleForMakeGoWhereTheyAreWanted) {
  ProgramFolder folder;
  const auto header = folder.write("with space.hpp", "");
  folder.add_kernel("add", "#include \"with space.hpp\"\n" + adds("add", "1"));
  folder.options.output = folder.path() / "out" / "x.strata";
  folder.options.depfile = folder.path() / "x.d";
  EXPECT_EQ(folder.build(), folder.options.output);
  EXPECT_EQ(ChipProgramInfo::read(folder.options.output).name, "program");
  EXPECT_THAT(bytes_of(folder.options.depfile),
              AllOf(testing::StartsWith(folder.options.output.string() + ":"),
                    HasSubstr((folder.path() / "with\\ space.hpp").string()),
                    HasSubstr("strata/kernel.hpp"), HasSubstr("orchestration.cpp")));
}

TEST(ChipProgramBuild, CheckingModeNamesWhatItCanNotLookInto) {
  ProgramFolder folder;
  folder.options.check = true;
  folder.add_kernel(
      "add",
      "#include <cmath>\nnamespace other { float call(float*); }\n"
      "extern \"C\" void plain(void*);\n"
      "STRATA_KERNEL(add) { plain(kernel.data<float>(0));\n"
      "  std::memcpy(kernel.data<float>(0), kernel.data<float>(1), kernel.tensor_count());\n"
      "  kernel.data<float>(0)[1] = std::exp(other::call(nullptr)); }");
  const ChipProgramInfo info = ChipProgramInfo::read(folder.build());
  EXPECT_TRUE(info.check);
  EXPECT_THAT(info.unseen, ElementsAre("other::call(float*)", "plain"));
}

TEST(ChipProgramBuild, CheckingModeAndASanitizerExcludeEachOther) {
  ProgramFolder folder;
  folder.options.check = true;
  folder.options.sanitizer = ProgramSanitizer::thread;
  EXPECT_EQ(failure_of([&] { (void)folder.build(); }).code, ErrorCode::bad_configuration);
}

}  // namespace
}  // namespace strata::test
