// `strata build`: what it prints, where, and its exit codes.
#include <gmock/gmock.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
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

/// What is in the cache's folder of work.
std::vector<std::string> entries_of(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none))
    names.push_back(entry.path().string());
  return names;
}

/// A compiler that says who it is, and then, for a source, writes where its temporary files go, and
/// waits until it is killed.
constexpr const char* kSlowCompiler = R"(#!/bin/sh
case "$*" in
  *" -c "*) echo half > "$TMPDIR/ccXXXX.s"; echo "$TMPDIR" > "$STRATA_TEST_TOLD.part"
            mv "$STRATA_TEST_TOLD.part" "$STRATA_TEST_TOLD"; exec sleep 600 ;;
esac
exec c++ "$@"
)";

os::ExitStatus killed_by(int signal) {
  return {.kind = os::ExitStatus::Kind::signalled, .value = signal};
}

class StrataBuildInterrupted : public StrataBuild {
 protected:
  StrataBuildInterrupted() {
    write("slow-c++", kSlowCompiler);
    std::filesystem::permissions(path("slow-c++"), std::filesystem::perms::owner_all);
  }
  /// Starts a build, and sends it the signal when it is in the middle.
  [[nodiscard]] Program::Result interrupted_by(int signal) const {
    Program program(strata_with({"build", path("program.json"), "--cache", path("cache"),
                                 "--compiler", path("slow-c++"), "-j", "1"}),
                    {.environment = {"STRATA_TEST_TOLD=" + path("told")}});
    while (program.running() && !std::filesystem::exists(path("told")))
      std::this_thread::yield();
    std::ifstream(path("told")) >> temporary_;
    program.send(signal);
    return program.finish();
  }
  mutable std::string temporary_;  ///< Where the compiler's temporary files were.
};

TEST_F(StrataBuildInterrupted, ItsFoldersAreGoneAfterASignal) {
  for (const int signal : {SIGINT, SIGTERM}) {
    std::filesystem::remove(path("told"));
    const Program::Result result = interrupted_by(signal);
    EXPECT_EQ(result.status, killed_by(signal)) << result.err;
    EXPECT_THAT(temporary_, HasSubstr(path("cache") + "/work/"));
    EXPECT_THAT(entries_of(path("cache") + "/work"), testing::IsEmpty());
  }
}

TEST_F(StrataBuildInterrupted, WhatAKilledBuildLeavesIsClearedAwayByTheNext) {
  EXPECT_EQ(interrupted_by(SIGKILL).status, killed_by(SIGKILL));
  EXPECT_TRUE(std::filesystem::exists(temporary_ + "/ccXXXX.s")) << "nothing was left";
  EXPECT_EQ(build().code(), 0);
  EXPECT_THAT(entries_of(path("cache") + "/work"), testing::IsEmpty());
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
