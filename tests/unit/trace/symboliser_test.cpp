#include "trace/symboliser.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "support/random.hpp"
#include "support/temp_dir.hpp"
#include "trace/maps_parser.hpp"

extern "C" __attribute__((noinline, used)) int strata_test_known_function(int value) {
  return value * 3 + 1;
}

namespace strata::trace {
namespace {

using testing::HasSubstr;

/// A report as if this process had crashed at an address.
CrashReport report_at(std::uint64_t address) {
  CrashReport report;
  report.stage = CrashStage::unwound;
  report.signal = SIGSEGV;
  report.pc = address;
  report.frames = {address};
  report.frames_in_all = 1;
  std::ostringstream text;
  text << std::ifstream("/proc/self/maps").rdbuf();
  const std::string maps = text.str();
  MapsParser lines(maps);
  while (const auto line = lines.next()) {
    report.maps.push_back({.begin = line->begin,
                           .end = line->end,
                           .file_offset = line->file_offset,
                           .inode = line->inode,
                           .readable = line->readable,
                           .executable = line->executable,
                           .path = std::string(line->path)});
  }
  return report;
}

TEST(Symboliser, NamesFunctionFileLineModuleAndBuildId) {
  const auto address = reinterpret_cast<std::uint64_t>(&strata_test_known_function);
  const std::vector<StackFrame> frames = symbolise(report_at(address));
  ASSERT_EQ(frames.size(), 1U);
  EXPECT_EQ(frames[0].function, "strata_test_known_function");
  EXPECT_THAT(frames[0].file, testing::EndsWith("symboliser_test.cpp"));
  EXPECT_GT(frames[0].line, 0);
  EXPECT_EQ(frames[0].module, std::filesystem::read_symlink("/proc/self/exe"));
  EXPECT_FALSE(frames[0].build_id.empty());
  EXPECT_EQ(frames[0].note, "");
  EXPECT_THAT(to_text(frames[0], 3), testing::StartsWith("#3 strata_test_known_function() at "));
}

TEST(Symboliser, AReturnAddressBelongsToTheCallBeforeIt) {
  // The first byte of the function, as a return address, is the end of what is before it.
  const auto address = reinterpret_cast<std::uint64_t>(&strata_test_known_function);
  CrashReport report = report_at(address);
  report.frames.push_back(address);
  const std::vector<StackFrame> frames = symbolise(report);
  ASSERT_EQ(frames.size(), 2U);
  EXPECT_EQ(frames[0].function, "strata_test_known_function");
  EXPECT_NE(frames[1].function, "strata_test_known_function");
  EXPECT_EQ(frames[0].offset, frames[1].offset);
}

TEST(Symboliser, WhatIsNotKnownIsSaid) {
  CrashReport report = report_at(0x10);
  EXPECT_EQ(symbolise(report)[0].note, "no code is there");
  report.maps.clear();
  EXPECT_EQ(symbolise(report)[0].note, "what was mapped there is not known");

  const test::TempDir folder;
  const std::string file = (folder.path() / "module.so").string();
  report.maps = {{.begin = 0, .end = 0x1000, .executable = true, .path = file}};
  EXPECT_EQ(symbolise(report)[0].note, "the file can't be read");
  report.maps[0].deleted = true;
  EXPECT_EQ(symbolise(report)[0].note, "the file has been deleted");
  report.maps[0].deleted = false;
  std::ofstream(file) << "no program";
  EXPECT_EQ(symbolise(report)[0].note, "the file is not one that can be loaded any more");
  EXPECT_THAT(describe(report), HasSubstr(file + "+0x10"));
}

TEST(Symboliser, ADamagedFileHurtsNobody) {
  std::ostringstream bytes;
  bytes << std::ifstream("/proc/self/exe", std::ios::binary).rdbuf();
  const std::string whole = bytes.str().substr(0, 200'000);
  const test::TempDir folder;
  const std::string file = (folder.path() / "module.so").string();
  test::Random random(99);
  for (int round = 0; round < 20; ++round) {
    std::string damaged = whole.substr(0, 64 + random.below(whole.size() - 64));
    for (int i = 0; i < 20; ++i)
      damaged[random.below(std::min<std::size_t>(damaged.size(), 2000))] =
          static_cast<char>(random.below(256));
    std::ofstream(file, std::ios::binary | std::ios::trunc) << damaged;
    CrashReport report;
    report.stage = CrashStage::complete;
    report.frames = {0x1000, 0x2345};
    report.maps = {{.begin = 0, .end = 0x100000, .executable = true, .path = file}};
    EXPECT_EQ(symbolise(report).size(), 2U);
  }
}

TEST(Symboliser, EndlessRecursionIsToldOnce) {
  const auto address = reinterpret_cast<std::uint64_t>(&strata_test_known_function);
  CrashReport report = report_at(address);
  report.frames.assign(256, address);
  report.frames_in_all = 4096;
  const std::string text = describe(report);
  EXPECT_THAT(text, HasSubstr("#1 to #255 the same"));
  EXPECT_THAT(text, HasSubstr("and at least 3840 more frames"));
}

TEST(CrashReport, AHandlerThatDidNotComeFarIsTold) {
  CrashReport report;
  report.stage = CrashStage::begun;
  EXPECT_THAT(describe(report), HasSubstr("the crash handler did not come far"));
}

}  // namespace
}  // namespace strata::trace
