// ChipProgramSource::load(): program.json, right and wrong.
#include <gmock/gmock.h>

#include "program_folder.hpp"

namespace strata::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

/// A folder with sources a.cpp, b.cpp and o.cpp.
class ChipProgramSourceFile : public testing::Test {
 protected:
  ChipProgramSourceFile() {
    for (const char* const name : {"a.cpp", "b.cpp", "o.cpp"})
      folder_.write(name, "");
  }
  ChipProgramSource load(std::string_view text) const {
    return ChipProgramSource::load(folder_.write("program.json", text));
  }
  Failure fails(std::string_view text) const {
    return failure_of([&] { (void)load(text); });
  }
  ProgramFolder folder_;
};

TEST_F(ChipProgramSourceFile, EveryFieldArrivesWithPathsRelativeToTheFile) {
  const ChipProgramSource source = load(R"({
    "name": "p-1", "orchestration": {"sources": ["o.cpp", "b.cpp"], "symbol": "go"},
    "signature": {"tensors": [{"name": "x", "access": "inout", "dtype": "float16", "rank": 3},
                              {"name": "y", "access": "out"}], "scalars": ["n", "m"]},
    "kernels": [{"name": "k", "source": "a.cpp", "core": "aic", "symbol": "s",
                 "include_candidates": ["$X/i", "/y", "z"]},
                {"name": "l", "source": "b.cpp", "core": "aiv"}],
    "include": ["inc", "${V}/inc"], "standard": "c++23", "macros": ["A", "B=1"],
    "flags": ["-O3"]})");
  EXPECT_EQ(source.name, "p-1");
  EXPECT_THAT(source.orchestration,
              ElementsAre(folder_.path() / "o.cpp", folder_.path() / "b.cpp"));
  EXPECT_EQ(source.orchestration_symbol, "go");
  EXPECT_EQ(
      source.signature,
      (ChipSignature{
          .tensors = {{.name = "x", .access = Access::inout, .dtype = DType::float16, .rank = 3},
                      {.name = "y", .access = Access::out}},
          .scalars = {"n", "m"}}));
  ASSERT_EQ(source.kernels.size(), 2U);
  EXPECT_EQ(source.kernels[0].core, CoreType::aic);
  EXPECT_EQ(source.kernels[0].symbol, "s");
  EXPECT_EQ(source.kernels[0].source, folder_.path() / "a.cpp");
  EXPECT_THAT(source.kernels[0].include_candidates,
              ElementsAre("$X/i", "/y", (folder_.path() / "z").string()));
  EXPECT_EQ(source.kernels[1].core, CoreType::aiv);
  EXPECT_THAT(source.include, ElementsAre((folder_.path() / "inc").string(), "${V}/inc"));
  EXPECT_EQ(source.standard, "c++23");
  EXPECT_THAT(source.macros, ElementsAre("A", "B=1"));
  EXPECT_THAT(source.flags, ElementsAre("-O3"));
}

TEST_F(ChipProgramSourceFile, AnOrchestrationMayBeOneSourceOrAList) {
  EXPECT_EQ(load(R"({"name": "p", "orchestration": "o.cpp", "kernels": []})").orchestration.size(),
            1U);
  EXPECT_EQ(load(R"({"name": "p", "orchestration": ["o.cpp", "a.cpp"], "kernels": []})")
                .orchestration.size(),
            2U);
}

TEST_F(ChipProgramSourceFile, WhatIsWrongIsSaidWithTheFileAndTheField) {
  const struct {
    const char* text;
    const char* field;
  } cases[] = {
      {R"({"orchestration": "o.cpp", "kernels": []})", "'name' is missing"},
      {R"({"name": 7, "orchestration": "o.cpp", "kernels": []})", "'name' must be a text"},
      {R"({"name": "../x", "orchestration": "o.cpp", "kernels": []})", "name '../x'"},
      {R"({"name": "p-1", "orchestration": "o.cpp", "kernels": []})", "orchestration.symbol"},
      {R"({"name": "p", "kernels": []})", "'orchestration' is missing"},
      {R"({"name": "p", "orchestration": [], "kernels": []})", "'orchestration' names no source"},
      {R"({"name": "p", "orchestration": 1, "kernels": []})", "'orchestration' must be"},
      {R"({"name": "p", "orchestration": {"symbol": "x"}, "kernels": []})",
       "'orchestration.sources' is missing"},
      {R"({"name": "p", "orchestration": {"sources": ["o.cpp"], "x": 1}, "kernels": []})",
       "'orchestration.x' is unknown"},
      {R"({"name": "p", "orchestration": "none.cpp", "kernels": []})", "none.cpp"},
      {R"({"name": "p", "orchestration": "o.cpp"})", "'kernels' is missing"},
      {R"({"name": "p", "orchestration": "o.cpp", "kernels": {}})", "'kernels' must be a list"},
      {R"({"name": "p", "orchestration": "o.cpp", "kernels": [1]})",
       "'kernels[0]' must be an object"},
      {R"({"name": "p", "orchestration": "o.cpp", "kernels": [{"name": "k", "source": "a.cpp"}]})",
       "'kernels[0].core' is missing"},
      {R"({"name": "p", "orchestration": "o.cpp",
           "kernels": [{"name": "k", "source": "a.cpp", "core": "gpu"}]})",
       "'kernels[0].core' is 'gpu'"},
      {R"({"name": "p", "orchestration": "o.cpp",
           "kernels": [{"name": "k", "source": "missing.cpp", "core": "aiv"}]})",
       "'kernels[0].source' names a file that is not there"},
      {R"({"name": "p", "orchestration": "o.cpp",
           "kernels": [{"name": "k", "source": "a.cpp", "core": "aiv", "sauce": ""}]})",
       "'kernels[0].sauce' is unknown"},
      {R"({"name": "p", "orchestration": "o.cpp",
           "kernels": [{"name": "k", "source": "a.cpp", "core": "aiv", "include_candidates": []}]})",
       "'kernels[0].include_candidates' is an empty list"},
      {R"({"name": "p", "orchestration": "o.cpp",
           "kernels": [{"name": "k", "source": "a.cpp", "core": "aiv"},
                       {"name": "k", "source": "b.cpp", "core": "aic"}]})",
       "kernels[1].name: there are two kernels 'k'"},
      {R"({"name": "p", "orchestration": "o.cpp",
           "kernels": [{"name": "k-1", "source": "a.cpp", "core": "aiv"}]})",
       "kernels[0].symbol"},
      {R"({"name": "p", "orchestration": "o.cpp", "kernels": [], "colour": 1})",
       "'colour' is unknown"},
      {R"({"name": "p", "name": "q", "orchestration": "o.cpp", "kernels": []})",
       "'name' is there twice"},
      {R"({"name": "p", "orchestration": "o.cpp", "kernels": [], "flags": "-O3"})",
       "'flags' must be a list"},
      {R"({"name": "p", "orchestration": "o.cpp", "kernels": [], "macros": ["A", 1]})",
       "'macros[1]' must be a text"},
      {R"({"name": "p", "orchestration": "o.cpp", "kernels": [], "macros": ["1A"]})",
       "macros: '1A'"},
      {R"({"name": "p", "orchestration": "o.cpp", "kernels": [],
           "signature": {"tensors": [{"name": "x", "access": "maybe"}]}})",
       "'signature.tensors[0].access' is 'maybe'"},
      {R"({"name": "p", "orchestration": "o.cpp", "kernels": [],
           "signature": {"tensors": [{"name": "x", "access": "in", "dtype": "float31"}]}})",
       "'signature.tensors[0].dtype' is 'float31'"},
      {R"({"name": "p", "orchestration": "o.cpp", "kernels": [],
           "signature": {"tensors": [{"name": "x", "access": "in", "rank": -1}]}})",
       "'signature.tensors[0].rank' must be a whole number"},
      {R"({"name": "p", "orchestration": "o.cpp", "kernels": [],
           "signature": {"tensors": [{"name": "x", "access": "in"}], "scalars": ["x"]}})",
       "'signature.scalars' has a second argument named 'x'"},
      {R"([])", "must be an object"},
      {R"({"name": )", "parse error"},
      {"", "parse error"},
  };
  for (const auto& wrong : cases) {
    const Failure failure = fails(wrong.text);
    EXPECT_EQ(failure.code, ErrorCode::bad_program_file) << wrong.text;
    EXPECT_THAT(failure.text, AllOf(HasSubstr("program.json"), HasSubstr(wrong.field)))
        << wrong.text;
  }
}

TEST_F(ChipProgramSourceFile, AFileThatIsNotThereIsNamed) {
  const Failure failure =
      failure_of([&] { (void)ChipProgramSource::load(folder_.path() / "other.json"); });
  EXPECT_EQ(failure.code, ErrorCode::bad_program_file);
  EXPECT_THAT(failure.text, HasSubstr("other.json"));
  EXPECT_EQ(failure_of([&] { (void)ChipProgramSource::load(folder_.path()); }).code,
            ErrorCode::bad_program_file);
}

}  // namespace
}  // namespace strata::test
