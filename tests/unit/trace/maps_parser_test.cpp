#include "trace/maps_parser.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "support/random.hpp"

namespace strata::trace {
namespace {

TEST(MapsParser, ReadsEveryLineOfThisProcess) {
  std::ostringstream text;
  text << std::ifstream("/proc/self/maps").rdbuf();
  const std::string maps = text.str();
  const auto code = reinterpret_cast<std::uint64_t>(&std::terminate);
  MapsParser lines(maps);
  std::ptrdiff_t count = 0;
  bool found = false;
  while (const auto line = lines.next()) {
    ++count;
    EXPECT_LT(line->begin, line->end);
    if (code >= line->begin && code < line->end) {
      found = true;
      EXPECT_TRUE(line->executable && line->readable);
      EXPECT_EQ(line->path.front(), '/');
    }
  }
  EXPECT_EQ(count, std::count(maps.begin(), maps.end(), '\n'));
  EXPECT_TRUE(found);
}

TEST(MapsParser, KeepsPathsWithSpacesAndLinesWithoutOne) {
  MapsParser lines(
      "1000-2000 r-xp 00001000 08:01 77   /tmp/a b (deleted)\n"
      "3000-4000 ---p 00000000 00:00 0 \n"
      "7fff-8fff rw-p 00000000 00:00 0    [stack]\n");
  const auto file = lines.next();
  ASSERT_TRUE(file);
  EXPECT_EQ(file->path, "/tmp/a b (deleted)");
  EXPECT_EQ(file->file_offset, 0x1000U);
  EXPECT_EQ(file->inode, 77U);
  EXPECT_TRUE(file->executable);
  const auto nameless = lines.next();
  ASSERT_TRUE(nameless);
  EXPECT_EQ(nameless->path, "");
  EXPECT_FALSE(nameless->readable);
  EXPECT_EQ(lines.next()->path, "[stack]");
  EXPECT_FALSE(lines.next());
}

TEST(MapsParser, LeavesOutWhatItCantUnderstand) {
  MapsParser lines(
      "\n-\n1000\n1000-\n1000-2000\n2000-1000 r-xp 0 0:0 0 x\nzz-yy r-xp 0 0:0 0\n"
      "11111111111111111111111111-2 r-xp 0 0:0 0\n1000-2000 r-xp 0 0:0 5 good\n"
      "3000-4000 r-xp 0 0:0 5 cut");
  const auto line = lines.next();
  ASSERT_TRUE(line);
  EXPECT_EQ(line->path, "good");
  EXPECT_FALSE(lines.next());
}

TEST(MapsParser, EndsOnAnyBytes) {
  test::Random random(7);
  constexpr std::string_view kAlphabet = "0123456789abcdef-: rwxp/\n\n";
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (std::uint64_t i = random.below(300); i > 0; --i)
      text += kAlphabet[random.below(kAlphabet.size())];
    MapsParser lines(text);
    while (lines.next()) {
    }
  }
}

}  // namespace
}  // namespace strata::trace
