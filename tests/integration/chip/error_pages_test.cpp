// Every error code has its page in docs/errors, and every page its code.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "strata/chip_error.hpp"

namespace strata::test {
namespace {

using testing::HasSubstr;

const std::filesystem::path kPages = STRATA_TEST_DOCS "/errors";

/// The names of all codes.
std::set<std::string> codes() {
  std::set<std::string> names;
  for (std::uint16_t i = 1; error_code(name_of(static_cast<ErrorCode>(i))) != ErrorCode::none; ++i)
    names.emplace(name_of(static_cast<ErrorCode>(i)));
  return names;
}

TEST(ErrorPages, EachCodeHasAPageThatSaysWhatToDo) {
  EXPECT_TRUE(codes().contains("undeclared_access")) << "the last code was not reached";
  for (const std::string& code : codes()) {
    const std::filesystem::path path = kPages / (code + ".md");
    std::ifstream file(path);
    ASSERT_TRUE(file) << path << " is not there";
    const std::string text(std::istreambuf_iterator<char>(file), {});
    EXPECT_THAT(text, HasSubstr("# " + code + "\n")) << path;
    EXPECT_THAT(text, HasSubstr("[" + code + "]")) << path << " has no example";
    EXPECT_THAT(text, HasSubstr("## What to do")) << path;
  }
}

TEST(ErrorPages, EachPageIsOfACode) {
  const std::set<std::string> known = codes();
  for (const auto& entry : std::filesystem::directory_iterator(kPages)) {
    if (entry.path().filename() == "index.md") continue;
    EXPECT_TRUE(known.contains(entry.path().stem().string())) << entry.path();
  }
}

}  // namespace
}  // namespace strata::test
