// `strata build`: what it prints, where, and its exit codes.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "strata/chip_program.hpp"
#include "strata_command.hpp"
#include "support/temp_dir.hpp"

namespace strata::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class StrataBuild : public testing::Test {
 protected:
  StrataBuild() {
    write("program.json", R"({"name": "p", "orchestration": "o.cpp",
      "kernels": [{"name": "k", "source": "k.cpp", "core": "aiv"}]})");
    write("o.cpp", "#include <strata/chip.hpp>\nSTRATA_CHIP_ORCHESTRATION(p) {}\n");
    write("k.cpp", "#include <strata/kernel.hpp>\nSTRATA_KERNEL(k) { kernel.log(\"k\"); }\n");
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name)) << text;
  }
  [[nodiscard]] std::string path(const std::string& name) const {
    return (folder_.path() / name).string();
  }
  /// strata build program.json --cache ... arguments
  [[nodiscard]] Program::Result build(const std::vector<std::string>& arguments = {}) const {
    std::vector<std::string> all = {"build", path("program.json"), "--cache", path("cache")};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return strata_command(all);
  }
  TempDir folder_;
};

TEST_F(StrataBuild, PrintsThePathAndNothingElseAndSaysOnStderrWhatItDoes) {
  const Program::Result first = build();
  EXPECT_EQ(first.code(), 0);
  EXPECT_THAT(first.err, AllOf(HasSubstr("compiles kernel 'k'"), HasSubstr("links")));
  ASSERT_EQ(lines_of(first.out).size(), 1U);
  EXPECT_EQ(ChipProgramInfo::read(lines_of(first.out)[0]).name, "p");
  const Program::Result second = build();
  EXPECT_EQ(second.out, first.out);
  EXPECT_EQ(second.err, "") << "there is nothing to do";
}

TEST_F(StrataBuild, OptionsReachTheProgram) {
  EXPECT_EQ(build({"-q", "-o", path("x.strata"), "--check", "-j", "1"}).out,
            path("x.strata") + "\n");
  EXPECT_TRUE(ChipProgramInfo::read(path("x.strata")).check);
  const Program::Result result =
      build({"-o", path("y.strata"), "--sanitizer", "thread", "-v", "--depfile", path("y.d")});
  const ChipProgramInfo info = ChipProgramInfo::read(path("y.strata"));
  EXPECT_EQ(info.sanitizer, ProgramSanitizer::thread);
  EXPECT_THAT(result.err, HasSubstr(info.build_id));
  EXPECT_TRUE(std::filesystem::exists(path("y.d")));
}

TEST_F(StrataBuild, WhatCanNotBeBuiltIsExitCodeOneWithTheReason) {
  write("k.cpp", "#include <strata/kernel.hpp>\nSTRATA_KERNEL(k) { undeclared(); }\n");
  const Program::Result compile = build();
  EXPECT_EQ(compile.code(), 1);
  EXPECT_EQ(compile.out, "");
  EXPECT_THAT(compile.err, AllOf(HasSubstr("[compile_failed]"), HasSubstr("undeclared")));
  write("program.json", "{}");
  const Program::Result json = build();
  EXPECT_EQ(json.code(), 1);
  EXPECT_THAT(json.err, AllOf(HasSubstr("[bad_program_file]"), HasSubstr("program.json")));
}

TEST_F(StrataBuild, ACommandLineThatMakesNoSenseIsExitCodeTwo) {
  EXPECT_EQ(strata_command({"build"}).code(), 2);
  EXPECT_EQ(build({"--sanitizer", "memory"}).code(), 2);
  EXPECT_EQ(build({"--check", "--sanitizer", "thread"}).code(), 2);
  EXPECT_EQ(build({"--quiet", "--verbose"}).code(), 2);
  EXPECT_EQ(build({"-j", "0"}).code(), 2);
  EXPECT_FALSE(std::filesystem::exists(path("cache"))) << "nothing was done";
  const Program::Result help = strata_command({"build", "--help"});
  EXPECT_EQ(help.code(), 0);
  EXPECT_THAT(help.out, AllOf(HasSubstr("Examples:"), HasSubstr("program.json")));
}

}  // namespace
}  // namespace strata::test
