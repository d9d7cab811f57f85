#include "cli/chip_arguments.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "chip/check/check.hpp"
#include "chip/element_value.hpp"
#include "chip/npy.hpp"
#include "strata/error.hpp"
#include "support/temp_dir.hpp"

namespace strata::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ChipProgramInfo program() {
  ChipProgramInfo info;
  info.name = "demo";
  info.signature.tensors = {{.name = "a", .access = Access::in, .dtype = DType::float32, .rank = 2},
                            {.name = "b", .access = Access::in},
                            {.name = "y", .access = Access::out, .dtype = DType::float32}};
  info.signature.scalars = {"n", "eps"};
  return info;
}

ChipArgumentOptions good() {
  return {.tensors = {"a=zeros:[2,3]", "b=random:7:int16[4]", "y=zeros:[6]"},
          .scalars = {"n=-5", "eps=0.5"}};
}

std::string refusal(const std::function<void(ChipArgumentOptions&)>& change) {
  ChipArgumentOptions options = good();
  change(options);
  try {
    (void)read_chip_arguments(options, program());
    return "it was taken";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(ChipArguments, AreInTheOrderOfTheSignature) {
  const ChipArguments arguments = read_chip_arguments(good(), program());
  ASSERT_EQ(arguments.run.tensors.size(), 3U);
  EXPECT_THAT(arguments.run.tensors[0].shape, ElementsAre(2, 3));
  EXPECT_EQ(arguments.run.tensors[1].dtype, DType::int16);
  EXPECT_EQ(arguments.run.tensors[2].access, Access::out);
  ASSERT_EQ(arguments.run.scalars.size(), 2U);
  EXPECT_EQ(static_cast<std::int64_t>(arguments.run.scalars[0]), -5);
  float eps = 0;
  std::memcpy(&eps, &arguments.run.scalars[1], sizeof eps);
  EXPECT_EQ(eps, 0.5F);
}

TEST(ChipArguments, ScalarsAreOfTheTypeThatIsGiven) {
  ChipArgumentOptions options = good();
  options.scalars = {"eps=1e-5:float64", "n=3:float32"};
  const ChipArguments arguments = read_chip_arguments(options, program());
  double eps = 0;
  std::memcpy(&eps, &arguments.run.scalars[1], sizeof eps);
  EXPECT_EQ(eps, 1e-5);
  float n = 0;
  std::memcpy(&n, &arguments.run.scalars[0], sizeof n);
  EXPECT_EQ(n, 3.0F);
}

TEST(ChipArguments, RandomValuesAreFiniteAndThoseOfTheirSeed) {
  for (std::uint8_t i = 0; i < kDTypes; ++i) {
    ChipArgumentOptions options = good();
    const std::string type(name_of(static_cast<DType>(i)));
    options.tensors[1] = "b=random:3:" + type + "[200]";
    const auto first = read_chip_arguments(options, program()).run.tensors[1];
    const auto second = read_chip_arguments(options, program()).run.tensors[1];
    EXPECT_EQ(first.bytes, second.bytes);
    options.tensors[1] = "b=random:4:" + type + "[200]";
    EXPECT_NE(read_chip_arguments(options, program()).run.tensors[1].bytes, first.bytes);
    for (std::uint64_t e = 0; e < first.elements(); ++e) {
      const double value =
          chip::element_value(first.dtype, first.bytes.data() + e * size_of(first.dtype));
      EXPECT_TRUE(std::isfinite(value)) << type;
    }
  }
}

TEST(ChipArguments, AnOutputTakesItsShapeFromWhatIsExpected) {
  const test::TempDir folder;
  const std::string file = folder.path() / "y.npy";
  chip::HostTensor golden{.dtype = DType::float32, .shape = {3, 2}};
  golden.bytes.resize(24);
  chip::write_npy(file, golden);
  ChipArgumentOptions options = good();
  options.tensors.pop_back();
  options.expected = {"y=" + file};
  options.poison_outputs = true;
  const ChipArguments arguments = read_chip_arguments(options, program());
  const chip::HostTensor& y = arguments.run.tensors[2];
  EXPECT_THAT(y.shape, ElementsAre(3, 2));
  EXPECT_EQ(chip::count_poison(y.bytes.data(), y.dtype, y.elements()), 6U);
  EXPECT_EQ(arguments.expected.count(2), 1U);
}

TEST(ChipArguments, WhatDoesNotFitIsRefusedByName) {
  EXPECT_THAT(refusal([](auto& o) { o.tensors.push_back("c=zeros:[1]"); }),
              HasSubstr("there is no tensor 'c'; chip program 'demo' takes tensor 'a' (in, "
                        "float32, rank 2), tensor 'b' (in), tensor 'y' (out, float32), scalar 'n', "
                        "scalar 'eps'"));
  EXPECT_THAT(refusal([](auto& o) { o.tensors[0] = "a=zeros:[6]"; }),
              HasSubstr("it has 1 dimensions"));
  EXPECT_THAT(refusal([](auto& o) { o.tensors[1] = "b=zeros:[6]"; }),
              HasSubstr("the type of its elements is missing"));
  EXPECT_THAT(refusal([](auto& o) { o.tensors[0] = "a=random:3"; }),
              HasSubstr("its shape is missing"));
  EXPECT_THAT(refusal([](auto& o) { o.tensors[0] = "a=zeros:float33[2,3]"; }),
              HasSubstr("there is no type 'float33'"));
  EXPECT_THAT(refusal([](auto& o) { o.tensors[0] = "a=zeros:[2,x]"; }), HasSubstr("the form"));
  EXPECT_THAT(refusal([](auto& o) { o.tensors[0] = "a"; }), HasSubstr("NAME=VALUE"));
  EXPECT_THAT(refusal([](auto& o) { o.tensors.erase(o.tensors.begin()); }),
              HasSubstr("--tensor a=...: it is missing"));
  EXPECT_THAT(refusal([](auto& o) { o.tensors.pop_back(); }),
              HasSubstr("the shape of output 'y' is not known"));
  EXPECT_THAT(refusal([](auto& o) { o.tensors.push_back("a=zeros:[2,3]"); }),
              HasSubstr("given before"));
  EXPECT_THAT(refusal([](auto& o) { o.scalars.pop_back(); }), HasSubstr("--scalar eps=...: it is"));
  EXPECT_THAT(refusal([](auto& o) { o.scalars[0] = "n=five"; }), HasSubstr("is no number"));
  EXPECT_THAT(refusal([](auto& o) { o.scalars[0] = "n=0.5:int32"; }), HasSubstr("is no integer"));
  EXPECT_THAT(refusal([](auto& o) { o.scalars.push_back("m=1"); }),
              HasSubstr("there is no scalar 'm'"));
}

}  // namespace
}  // namespace strata::cli
