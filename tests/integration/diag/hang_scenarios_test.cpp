// Programs that hang by the fault of one of many alike: a core, a lane, a worker, a lock, a scope.
// Which it is is drawn by a seed, and the verdict must name it. STRATA_TEST_HANG_SEEDS says how
// many seeds each kind gets; a few by default.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "diag_run.hpp"

namespace strata::test {
namespace {

unsigned seeds() {
  const char* const text = std::getenv("STRATA_TEST_HANG_SEEDS");
  const unsigned long number = text == nullptr ? 0 : std::strtoul(text, nullptr, 10);
  return number == 0 ? 5 : static_cast<unsigned>(number);
}

/// The parts of "expect: A | B | C".
std::vector<std::string> parts_of(const std::string& line) {
  std::vector<std::string> parts;
  std::size_t begin = std::string("expect: ").size();
  for (std::size_t end = 0; begin <= line.size(); begin = end + 3) {
    end = std::min(line.find(" | ", begin), line.size());
    parts.push_back(line.substr(begin, end - begin));
  }
  return parts;
}

bool has_all(const std::string& line, const std::vector<std::string>& parts) {
  return std::ranges::all_of(
      parts, [&](const std::string& part) { return line.find(part) != std::string::npos; });
}

class HangScenario : public testing::TestWithParam<const char*> {};

TEST_P(HangScenario, TheVerdictNamesTheCulpritWhicheverItIs) {
  for (unsigned seed = 0; seed < seeds(); ++seed) {
    // Neighbouring seeds differ in everything.
    const unsigned drawn = seed * 2654435761U >> 16U;
    SCOPED_TRACE("seed " + std::to_string(drawn));
    Program program({diag_program("hang_program"), GetParam(), std::to_string(drawn)});
    const std::string output = program.wait_for_output("ready");
    const Program::Result dumped =
        strata_command({"dump", std::to_string(program.pid()), "--json"});
    program.send(SIGKILL);
    ASSERT_EQ(dumped.code(), 0) << dumped.err;
    const auto report = nlohmann::json::parse(dumped.out);
    const auto verdict = lines_of(verdict_of(report));
    unsigned expectations = 0;
    for (const std::string& line : lines_of(output)) {
      if (!line.starts_with("expect: ")) continue;
      ++expectations;
      const auto parts = parts_of(line);
      EXPECT_TRUE(std::ranges::any_of(
          verdict, [&](const std::string& finding) { return has_all(finding, parts); }))
          << line << "\n"
          << verdict_of(report);
    }
    EXPECT_GT(expectations, 0U);
    program.finish();
    for (const auto& process : report.at("processes"))
      wait_until_gone(process.at("pid"));
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, HangScenario,
                         testing::Values("loop", "signal", "notify", "absent", "stopped", "lock",
                                         "heap"),
                         [](const auto& kind) { return std::string(kind.param); });

}  // namespace
}  // namespace strata::test
