// Attacks the invariants of node/log_collector.hpp.
#include "node/log_collector.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "node/protocol.hpp"
#include "support/random.hpp"

namespace strata::node {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

struct Lines {
  std::vector<std::string> got;
  LineAssembler assembler{[this](std::string_view line) { got.emplace_back(line); }};
};

TEST(LineAssembler, WhateverThePiecesTheLinesAreTheSame) {
  std::string text;
  std::vector<std::string> expected;
  for (int i = 0; i < 100; ++i) {
    expected.push_back(std::string(static_cast<std::size_t>(i * 7 % 53), 'x') + std::to_string(i));
    text += expected.back() + "\n";
  }
  for (std::size_t piece = 1; piece < 200; piece += 3) {
    Lines lines;
    for (std::size_t at = 0; at < text.size(); at += piece) {
      lines.assembler.feed(std::string_view(text).substr(at, piece));
    }
    EXPECT_EQ(lines.got, expected) << "pieces of " << piece;
  }
}

TEST(LineAssembler, WhatHasNoLineBreakIsALineOnceTheFileHasEnded) {
  Lines lines;
  lines.assembler.feed("one\ntw");
  EXPECT_THAT(lines.got, ElementsAre("one"));
  lines.assembler.feed("o");
  lines.assembler.end();
  lines.assembler.end();
  EXPECT_THAT(lines.got, ElementsAre("one", "two"));
  EXPECT_THAT(lines.assembler.tail(), ElementsAre("one", "two"));
}

TEST(LineAssembler, EmptyLinesAreLines) {
  Lines lines;
  lines.assembler.feed("\n\na\n\n");
  EXPECT_THAT(lines.got, ElementsAre("", "", "a", ""));
}

TEST(LineAssembler, ZerosAndBrokenTextPassUnchanged) {
  const std::string odd = std::string("a\0b", 3) + "\xff\xc3\x28\r\x1b[31m";
  Lines lines;
  lines.assembler.feed(odd + "\n");
  EXPECT_THAT(lines.got, ElementsAre(odd));
  EXPECT_THAT(lines.assembler.tail(), ElementsAre(odd));
}

TEST(LineAssembler, TheTailHasTheLast200LinesAndSaysHowManyAreMissing) {
  Lines lines;
  for (int i = 0; i < 200; ++i)
    lines.assembler.feed(fmt::format("line {}\n", i));
  EXPECT_THAT(lines.assembler.tail(), SizeIs(200));
  EXPECT_EQ(lines.assembler.tail().front(), "line 0");
  for (int i = 200; i < 1000; ++i)
    lines.assembler.feed(fmt::format("line {}\n", i));
  const std::vector<std::string> tail = lines.assembler.tail();
  ASSERT_THAT(tail, SizeIs(201));
  EXPECT_EQ(tail[0], "(800 lines before these are not kept)");
  EXPECT_EQ(tail[1], "line 800");
  EXPECT_EQ(tail.back(), "line 999");
}

TEST(LineAssembler, TheTailIsBoundedInBytesToo) {
  Lines lines;
  for (int i = 0; i < 150; ++i)
    lines.assembler.feed(std::string(1000, 'x') + "\n");
  const std::vector<std::string> tail = lines.assembler.tail();
  ASSERT_THAT(tail, SizeIs(1 + kTailBytes / 1000));
  EXPECT_EQ(tail[0], fmt::format("({} lines before these are not kept)", 150 - kTailBytes / 1000));
}

TEST(LineAssembler, OfALineLongerThanTheTailTheEndIsKept) {
  Lines lines;
  lines.assembler.feed("before\n" + std::string(kTailBytes, 'x') + "the end\n");
  const std::vector<std::string> tail = lines.assembler.tail();
  ASSERT_THAT(tail, SizeIs(2));
  EXPECT_EQ(tail[0], "(1 lines before these are not kept)");
  EXPECT_THAT(tail[1], testing::StartsWith("(7 bytes before these are not kept)xxx"));
  EXPECT_THAT(tail[1], testing::EndsWith("the end"));
  EXPECT_EQ(lines.got.back().size(), kTailBytes + 7) << "The line itself is whole.";
}

TEST(LineAssembler, AnEndlessLineIsHandedOverInPieces) {
  Lines lines;
  const std::string endless(3 * kLongestLine + 5, 'y');
  for (std::size_t at = 0; at < endless.size(); at += 4000) {
    lines.assembler.feed(std::string_view(endless).substr(at, 4000));
  }
  lines.assembler.end();
  ASSERT_THAT(lines.got, SizeIs(4));
  std::string all;
  for (const std::string& line : lines.got) {
    EXPECT_LE(line.size(), kLongestLine);
    all += line;
  }
  EXPECT_EQ(all, endless);
}

TEST(LineAssembler, ALineOfExactlyTheLongestIsOneLine) {
  Lines lines;
  lines.assembler.feed(std::string(kLongestLine, 'z'));
  lines.assembler.feed("\n");
  lines.assembler.feed(std::string(kLongestLine, 'z') + "\n");
  ASSERT_THAT(lines.got, SizeIs(2));
  EXPECT_EQ(lines.got[0].size(), kLongestLine);
  EXPECT_EQ(lines.got[1].size(), kLongestLine);
}

TEST(LineAssembler, LinesFromBelowLoseTheirMarkInTheTailOnly) {
  Lines lines;
  lines.assembler.feed(kPrefixed + std::string("[node/next[0]/sub[1]] deep\n"));
  EXPECT_THAT(lines.got, ElementsAre(kPrefixed + std::string("[node/next[0]/sub[1]] deep")));
  EXPECT_THAT(lines.assembler.tail(), ElementsAre("[node/next[0]/sub[1]] deep"));
}

// ---- From a pipe
// ---------------------------------------------------------------------------------

struct Pipe {
  os::UniqueFd read_end;
  os::UniqueFd write_end;
  Pipe() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    read_end.reset(ends[0]);
    write_end.reset(ends[1]);
  }
  void write(std::string_view text) const {
    ASSERT_EQ(::write(write_end.get(), text.data(), text.size()),
              static_cast<ssize_t>(text.size()));
  }
};

std::string all_of(int fd) {
  std::string text;
  char bytes[4096];
  for (ssize_t got = 0; (got = ::read(fd, bytes, sizeof bytes)) > 0;) {
    text.append(bytes, static_cast<std::size_t>(got));
  }
  return text;
}

class CollectorTest : public testing::Test {
 protected:
  std::string written() {
    EXPECT_TRUE(sink_.flush(os::Deadline::after(std::chrono::minutes(1))));
    out_.write_end.reset();
    return all_of(out_.read_end.get());
  }
  Pipe out_;
  Pipe log_;
  LogSink sink_{{.fd = out_.write_end.get()}};
  LogCollector collector_{std::move(log_.read_end), "node/chip[1]", sink_};
};

TEST_F(CollectorTest, LinesGetThePathOfTheirProcess) {
  EXPECT_TRUE(collector_.read_some()) << "An empty pipe is no end, and not waited for.";
  log_.write("hello\nhalf");
  EXPECT_TRUE(collector_.read_some());
  log_.write(" a line\n\x1e[node/chip[1]/sub[0]] deep\nlast");
  log_.write_end.reset();
  EXPECT_FALSE(collector_.read_some());
  EXPECT_EQ(collector_.fd(), -1);
  EXPECT_FALSE(collector_.read_some());
  collector_.finish();
  EXPECT_EQ(written(),
            "[node/chip[1]] hello\n"
            "[node/chip[1]] half a line\n"
            "[node/chip[1]/sub[0]] deep\n"
            "[node/chip[1]] last\n");
}

TEST_F(CollectorTest, ALoudProcessIsReadInPortions) {
  const std::string line(999, 'x');
  for (int i = 0; i < 60; ++i)
    log_.write(line + "\n");
  EXPECT_TRUE(collector_.read_some(10'000));
  EXPECT_THAT(collector_.tail(), SizeIs(10));
  EXPECT_TRUE(collector_.read_some());
  EXPECT_THAT(collector_.tail(), SizeIs(60));
}

TEST_F(CollectorTest, FinishTakesWhatIsLeftWhileOthersHoldThePipe) {
  log_.write("its last words");
  collector_.finish();  // The write end is open still.
  EXPECT_THAT(collector_.tail(), ElementsAre("its last words"));
  EXPECT_EQ(collector_.fd(), -1);
  EXPECT_EQ(written(), "[node/chip[1]] its last words\n");
}

}  // namespace
}  // namespace strata::node
