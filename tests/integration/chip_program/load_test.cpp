// LoadedProgram::load(): what comes in, what stays apart, and what goes.
#include <elf.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "chip/program/program.hpp"
#include "chip/program/program_file.hpp"
#include "program_folder.hpp"
#include "support/program.hpp"
#include "support/time_bounds.hpp"

namespace strata::test {
namespace {

namespace fs = std::filesystem;
using LoadedProgram = chip::Program;
using testing::AllOf;
using testing::HasSubstr;

/// A folder, and its cache as that of this process.
class ChipProgramLoad : public testing::Test {
 protected:
  ChipProgramLoad() { ::setenv("STRATA_CACHE", folder_.options.cache.c_str(), 1); }
  ~ChipProgramLoad() override { ::unsetenv("STRATA_CACHE"); }
  static bool is_mapped(const std::string& name) {
    return bytes_of("/proc/self/maps").find(name) != std::string::npos;
  }
  Failure fails_to_read(const std::string& bytes) {
    const auto file = folder_.write("file.strata", bytes);
    const Failure read = failure_of([&] { (void)ChipProgramInfo::read(file); });
    const Failure load = failure_of([&] { (void)LoadedProgram::load(file); });
    EXPECT_EQ(read.code, load.code);
    EXPECT_EQ(read.text, load.text);
    EXPECT_THAT(read.text, HasSubstr("file.strata"));
    return read;
  }
  ProgramFolder folder_;
};

TEST_F(ChipProgramLoad, KernelsWithTheSameNamesStayApart) {
  for (const char* const factor : {"2", "3"}) {
    folder_.add_kernel(std::string("by_") + factor,
                       fmt::format(R"(
      template <class T> T helper(T x) {{ static T calls = 0; calls += 1; return x * {0} + calls; }}
      inline float calls() {{ static float count = 0; return ++count; }}
      struct Base {{ virtual ~Base() = default; virtual float f() {{ return 100 * {0}; }} }};
      inline float shared_value = 0;
      __attribute__((visibility("default"))) float global_value = 0;
      float plain(float x) {{ shared_value += 1; global_value += 1; return x; }}
      STRATA_KERNEL(entry) {{
        Base object;
        Base* volatile base = &object;
        float& x = kernel.data<float>(0)[0];
        x = plain(helper<float>(x) + calls() * 10 + base->f() + shared_value * 1000 +
                  global_value * 10000);
      }})",
                                   factor),
                       "entry");
  }
  const auto program = LoadedProgram::load(folder_.build());
  const auto& kernels = program->kernels().kernels;
  ASSERT_EQ(kernels.size(), 2U);
  EXPECT_EQ(kernels[0].name, "by_2");
  // 7 * factor + calls + 10 * calls + 100 * factor + 11000 * calls before
  EXPECT_EQ(call(kernels[0].function, 7), 14 + 1 + 10 + 200);
  EXPECT_EQ(call(kernels[1].function, 7), 21 + 1 + 10 + 300);
  EXPECT_EQ(call(kernels[0].function, 7), 14 + 2 + 20 + 200 + 11000);
  EXPECT_EQ(call(kernels[1].function, 7), 21 + 2 + 20 + 300 + 11000);
}

TEST_F(ChipProgramLoad, KernelsOfTheSecondCompilerStayApartToo) {
  if (std::system("clang++ --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "there is no clang++";
  folder_.options.compiler = "clang++";
  for (const char* const value : {"1", "2"}) {
    folder_.add_kernel(
        std::string("adds_") + value,
        fmt::format("inline float value() {{ static float x = 0; x += {}; return x; }}\n{}", value,
                    adds("entry", "value()")),
        "entry");
  }
  const auto program = LoadedProgram::load(folder_.build());
  const auto& kernels = program->kernels().kernels;
  EXPECT_EQ(call(kernels[0].function, 5), 6);
  EXPECT_EQ(call(kernels[1].function, 5), 7);
  EXPECT_EQ(call(kernels[0].function, 5), 7);
}

/// A program whose orchestration is called `read` and one of whose kernels `exit`; the other calls
/// the read() of the C library.
void expect_names_of_c_to_be_free(ProgramFolder& folder) {
  folder.source.name = "read";
  folder.write("orchestration.cpp",
               "#include <unistd.h>\n#include <strata/chip.hpp>\n"
               "STRATA_CHIP_ORCHESTRATION(read) { (void)chip; (void)read(-1, nullptr, 0); }\n");
  folder.add_kernel("exit", "#include <cstdlib>\n" + adds("exit", "1"));
  folder.add_kernel("reads", "#include <unistd.h>\n" + adds("reads", "read(-1, nullptr, 0)"));
  const auto program = LoadedProgram::load(folder.build());
  const auto& kernels = program->kernels().kernels;
  ASSERT_EQ(kernels.size(), 2U);
  EXPECT_EQ(call(kernels[0].function, 5), 6);
  EXPECT_EQ(call(kernels[1].function, 5), 4) << "its read() is not that of the C library";
}

TEST_F(ChipProgramLoad, EntriesMayHaveNamesOfFunctionsOfC) {
  expect_names_of_c_to_be_free(folder_);
}

TEST_F(ChipProgramLoad, EntriesMayHaveNamesOfFunctionsOfCWithTheSecondCompilerToo) {
  if (std::system("clang++ --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "there is no clang++";
  folder_.options.compiler = "clang++";
  expect_names_of_c_to_be_free(folder_);
}

TEST_F(ChipProgramLoad, AKernelMayThrow) {
  folder_.add_kernel("throws",
                     "#include <stdexcept>\n"
                     "STRATA_KERNEL(throws) { throw std::runtime_error(\"mine\"); }");
  const auto program = LoadedProgram::load(folder_.build());
  try {
    (void)call(program->kernels().kernels[0].function, 1);
    FAIL() << "it did not throw";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "mine");
  }
}

TEST_F(ChipProgramLoad, IsUnloadedWithTheLastWhoHoldsIt) {
  // Templates with static data are what g++ would otherwise keep for ever.
  folder_.add_kernel("add", "template <class T> T& value() { static T x{1}; return x; }\n" +
                                adds("add", "value<float>()++"));
  folder_.write("orchestration.cpp",
                "#include <strata/chip.hpp>\n"
                "template <class T> T& value() { static T x{1}; return x; }\n"
                "STRATA_CHIP_ORCHESTRATION(program) { value<int>() += 1; }\n");
  const fs::path file = folder_.build();
  auto program = LoadedProgram::load(file);
  const auto second = program;
  program.reset();
  EXPECT_TRUE(is_mapped(file.string()));
  EXPECT_EQ(call(second->kernels().kernels[0].function, 1), 2);
  auto third = LoadedProgram::load(file);
  const_cast<std::shared_ptr<const LoadedProgram>&>(second).reset();
  EXPECT_TRUE(is_mapped(file.string()));
  third.reset();
  EXPECT_FALSE(is_mapped(file.string()));
}

TEST_F(ChipProgramLoad, AFileThatWasBuiltAnewIsTheNewProgramThoughTheOldIsStillLoaded) {
  folder_.options.output = folder_.path() / "x.strata";
  folder_.add_kernel("add", adds("add", "1"));
  const auto old_program = LoadedProgram::load(folder_.build());
  folder_.write("add.cpp", "#include <strata/kernel.hpp>\n" + adds("add", "2"));
  const auto new_program = LoadedProgram::load(folder_.build());
  EXPECT_EQ(call(old_program->kernels().kernels[0].function, 5), 6);
  EXPECT_EQ(call(new_program->kernels().kernels[0].function, 5), 7);

  // Written over in place, under the eyes of who has loaded it.
  const std::string old_bytes = bytes_of(folder_.options.output);
  folder_.write("add.cpp", "#include <strata/kernel.hpp>\n" + adds("add", "3"));
  folder_.options.output = folder_.path() / "y.strata";
  (void)folder_.build();
  folder_.write("x.strata", bytes_of(folder_.path() / "y.strata"));
  const auto third_program = LoadedProgram::load(folder_.path() / "x.strata");
  EXPECT_EQ(call(third_program->kernels().kernels[0].function, 5), 8);
  EXPECT_EQ(call(new_program->kernels().kernels[0].function, 5), 7);
}

TEST_F(ChipProgramLoad, LoadsWhereTheCacheCanNotBeUsed) {
  folder_.options.output = folder_.path() / "x.strata";
  folder_.add_kernel("add", adds("add", "1"));
  (void)folder_.build();
  ::setenv("STRATA_CACHE", "/proc/no/such/folder", 1);
  auto program = LoadedProgram::load(folder_.options.output);
  EXPECT_EQ(call(program->kernels().kernels[0].function, 5), 6);
  folder_.write("add.cpp", "#include <strata/kernel.hpp>\n" + adds("add", "2"));
  (void)folder_.build();
  const auto second = LoadedProgram::load(folder_.options.output);
  EXPECT_EQ(call(second->kernels().kernels[0].function, 5), 7);
  EXPECT_TRUE(is_mapped("memfd:program"));
  program.reset();
  EXPECT_EQ(call(second->kernels().kernels[0].function, 5), 7);
}

TEST_F(ChipProgramLoad, WhatIsMissingAtLoadingIsNamed) {
  folder_.add_kernel(
      "add", "extern \"C\" float nowhere_to_be_found();\n" + adds("add", "nowhere_to_be_found()"));
  const fs::path file = folder_.build();
  const Failure failure = failure_of([&] { (void)LoadedProgram::load(file); });
  EXPECT_EQ(failure.code, ErrorCode::bad_program_file);
  EXPECT_THAT(failure.text, AllOf(HasSubstr("nowhere_to_be_found"), HasSubstr(file.string())));
}

TEST_F(ChipProgramLoad, ASanitizersProgramIsRefusedWhereItsRuntimeIsNot) {
  if (kSanitized) GTEST_SKIP() << "this process has a sanitizer's runtime";
  folder_.add_kernel("add", adds("add", "1"));
  for (const auto sanitizer : {ProgramSanitizer::address, ProgramSanitizer::thread}) {
    folder_.options.sanitizer = sanitizer;
    const fs::path file = folder_.build();
    const ChipProgramInfo info = ChipProgramInfo::read(file);
    EXPECT_EQ(info.sanitizer, sanitizer);
    EXPECT_TRUE(fs::exists(info.sanitizer_runtime)) << info.sanitizer_runtime;
    const Failure failure = failure_of([&] { (void)LoadedProgram::load(file); });
    EXPECT_EQ(failure.code, ErrorCode::foreign_program);
    EXPECT_THAT(failure.text, HasSubstr("LD_PRELOAD=" + info.sanitizer_runtime));
  }
}

/// Run by the next tests in a process that has the sanitizer's runtime.
TEST(ChipProgramSanitized, DISABLED_RunsTheFirstKernel) {
  const auto program = LoadedProgram::load(std::getenv("STRATA_TEST_PROGRAM"));
  std::printf("loaded\n");
  std::fflush(stdout);
  (void)call(program->kernels().kernels[0].function, 1);
}

/// Loads a program and calls its kernel in a process that has the sanitizer's runtime, and tells
/// what that had to say.
std::string what_a_sanitizer_says(const fs::path& program) {
  const std::string runtime = ChipProgramInfo::read(program).sanitizer_runtime;
  EXPECT_NE(runtime, "") << "the compiler has no runtime of this sanitizer";
  Program run(fs::read_symlink("/proc/self/exe").string(),
              {"--gtest_also_run_disabled_tests", "--gtest_filter=*RunsTheFirstKernel"},
              {{"LD_PRELOAD", runtime},
               {"STRATA_TEST_PROGRAM", program.string()},
               {"ASAN_OPTIONS", "detect_leaks=0"}});
  const auto end = run.end(std::chrono::seconds(60));
  EXPECT_TRUE(end.has_value());
  EXPECT_NE(end.value_or(ProgramEnd{.exit_code = 0}), ProgramEnd{.exit_code = 0});
  EXPECT_THAT(run.output(), HasSubstr("loaded"));
  return run.errors();
}

TEST_F(ChipProgramLoad, AnAddressSanitizersProgramFindsFaultsWhereItsRuntimeIs) {
  folder_.add_kernel("past_the_end",
                     "STRATA_KERNEL(past_the_end) {\n"
                     "  volatile float* const memory = new float[kernel.tensor_count()];\n"
                     "  memory[kernel.tensor_count()] = 1;\n"
                     "  delete[] memory;\n}");
  if (kSanitized) GTEST_SKIP() << "this process has a sanitizer's runtime";
  folder_.options.sanitizer = ProgramSanitizer::address;
  EXPECT_THAT(what_a_sanitizer_says(folder_.build()),
              AllOf(HasSubstr("heap-buffer-overflow"), HasSubstr("past_the_end.cpp:4")));
}

TEST_F(ChipProgramLoad, AThreadSanitizersProgramFindsRacesWhereItsRuntimeIs) {
  folder_.add_kernel("races",
                     "#include <thread>\n"
                     "STRATA_KERNEL(races) {\n"
                     "  float& value = kernel.data<float>(0)[0];\n"
                     "  const auto add = [&] { value += 1; };\n"
                     "  std::thread other(add);\n"
                     "  add();\n"
                     "  other.join();\n}");
  if (kSanitized) GTEST_SKIP() << "this process has a sanitizer's runtime";
  folder_.options.sanitizer = ProgramSanitizer::thread;
  EXPECT_THAT(what_a_sanitizer_says(folder_.build()),
              AllOf(HasSubstr("data race"), HasSubstr("races.cpp:5")));
}

TEST_F(ChipProgramLoad, FilesThatAreNoneAreRefusedWithTheReason) {
  EXPECT_EQ(fails_to_read("").code, ErrorCode::bad_program_file);
  EXPECT_EQ(fails_to_read("int main() {}\n").code, ErrorCode::bad_program_file);
  EXPECT_EQ(fails_to_read("\177ELF").code, ErrorCode::bad_program_file);
  EXPECT_EQ(fails_to_read(bytes_of("/proc/self/exe")).code, ErrorCode::foreign_program);
  for (const auto* const path : {"/no/such/file", "/", "/dev/zero"}) {
    EXPECT_EQ(failure_of([&] { (void)ChipProgramInfo::read(path); }).code,
              ErrorCode::bad_program_file)
        << path;
  }
}

TEST_F(ChipProgramLoad, AFileThatWasCutOffOrChangedIsRefused) {
  folder_.add_kernel("add", adds("add", "1"));
  const std::string good = bytes_of(folder_.build());
  for (const std::size_t size : {good.size() - 1, good.size() / 2, std::size_t{64}, std::size_t{5}})
    EXPECT_EQ(fails_to_read(good.substr(0, size)).code, ErrorCode::bad_program_file) << size;
  EXPECT_EQ(fails_to_read(good + "x").code, ErrorCode::bad_program_file);
  for (std::size_t at = 0x1000; at < good.size(); at += good.size() / 20) {
    std::string bad = good;
    bad[at] ^= 0x10;
    EXPECT_NE(fails_to_read(bad).code, ErrorCode::none) << at;
  }
}

TEST_F(ChipProgramLoad, AProgramOfAnotherMachineIsForeign) {
  std::string bytes = bytes_of(folder_.build());
  std::string other = bytes;
  other[EI_DATA] = ELFDATA2MSB;
  EXPECT_EQ(fails_to_read(other).code, ErrorCode::foreign_program);
  other = bytes;
  other[18] = EM_S390;
  other[19] = 0;
  EXPECT_EQ(fails_to_read(other).code, ErrorCode::foreign_program);
}

TEST_F(ChipProgramLoad, AProgramOfAnotherInterfaceIsStale) {
  std::string bytes = bytes_of(folder_.build());
  const std::string field = "\"interface\":\"";
  const std::size_t at = bytes.find(field);
  ASSERT_NE(at, std::string::npos);
  char& digit = bytes[at + field.size()];
  digit = digit == '0' ? '1' : '0';
  ASSERT_TRUE(chip::seal_program(bytes));
  const Failure failure = fails_to_read(bytes);
  EXPECT_EQ(failure.code, ErrorCode::stale_program);
  EXPECT_THAT(failure.text, HasSubstr("build it again"));
}

TEST_F(ChipProgramLoad, HeadersOfAnotherVersionAreRefusedAtBuilding) {
  const char* const source = STRATA_TEST_INCLUDE;
  fs::copy(source, folder_.path() / "include", fs::copy_options::recursive);
  ::setenv("STRATA_INCLUDE_DIR", (folder_.path() / "include").c_str(), 1);
  EXPECT_NO_THROW((void)folder_.build());
  std::ofstream(folder_.path() / "include/strata/kernel.hpp", std::ios::app) << "// other\n";
  const Failure failure = failure_of([&] { (void)folder_.build(); });
  ::unsetenv("STRATA_INCLUDE_DIR");
  EXPECT_EQ(failure.code, ErrorCode::stale_program);
  EXPECT_THAT(failure.text, HasSubstr((folder_.path() / "include").string()));
}

}  // namespace
}  // namespace strata::test
