// `strata chip --check`: through a chip worker in a process of its own.
#include <gmock/gmock.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <tuple>
#include <vector>

#include "chip_command.hpp"
#include "support/temp_dir.hpp"

namespace strata::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(StrataChipCheck, ACleanProgramIsSaidToBe) {
  const auto result = planted(0, {"--check"});
  EXPECT_EQ(result.code(), 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("no kernel touched what it had not declared"));
}

TEST(StrataChipCheck, WhatAKernelTouchesIsToldWithItsLine) {
  const auto result = planted(1, {"--check"});
  EXPECT_EQ(result.code(), 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("[undeclared_access]"), HasSubstr("kernels.cpp:"),
                                HasSubstr("kernel 'gap' writes")));
}

TEST(StrataChipCheck, PoisonInAResultIsTold) {
  const auto result = planted(100, {"--check"});
  EXPECT_EQ(result.code(), 1);
  EXPECT_THAT(result.err, HasSubstr("64 of 128 elements of tensor 'y' are poison"));
}

TEST(StrataChipCheck, EachScheduleIsChecked) {
  const auto result = planted(1, {"--check", "--explore", "3"});
  EXPECT_EQ(result.code(), 1);
  EXPECT_THAT(result.err, HasSubstr("kernel 'gap' writes"));
}

/// As numpy.save writes one dimension or two.
template <class T>
std::string npy(const std::string& type, const std::string& shape, const std::vector<T>& values) {
  std::string header =
      "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }";
  header.append(53 + 64 * 2 - header.size() % 64, ' ');
  header += '\n';
  std::string file("\x93NUMPY\1\0", 8);
  file += static_cast<char>(header.size() & 0xff);
  file += static_cast<char>(header.size() >> 8);
  file += header;
  return file.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

struct Example {
  std::string name;
  std::vector<std::string> arguments;
};
void PrintTo(const Example& example, std::ostream* out) { *out << example.name; }

class CheckedExample : public ::testing::TestWithParam<std::tuple<Example, std::string>> {
 protected:
  TempDir folder;

  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder.path() / name, std::ios::binary) << bytes;
  }
  /// Files that the arguments of some examples name.
  void write_files() const {
    write("table.npy", npy<std::int32_t>("<i4", "(2, 4)", {7, 3, 1, 5, 0, 2, 4, 6}));
    write("lengths.npy", npy<std::int32_t>("<i4", "(2,)", {61, 17}));
    std::vector<float> matrix(64 * 64);
    for (std::size_t i = 0; i < 64; ++i)
      matrix[i * 65] = i == 0 ? 4.0F : 1.0F;
    write("matrix.npy", npy<float>("<f4", "(64, 64)", matrix));
  }
};

TEST_P(CheckedExample, IsClean) {
  const auto& [example, compiler] = GetParam();
  write_files();
  std::vector<std::string> arguments = {"-p", "a2a3sim:clusters=4", "--check", "--compiler",
                                        compiler};
  for (std::string argument : example.arguments) {
    if (const auto at = argument.find('@'); at != std::string::npos) {
      argument.replace(at, 1, folder.path().string() + "/");
    }
    arguments.push_back(std::move(argument));
  }
  const auto result =
      chip_command(std::string(STRATA_EXAMPLES) + "/" + example.name + "/program.json", arguments);
  EXPECT_EQ(result.code(), 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("no kernel touched what it had not declared"));
}

const std::vector<std::string> kAttention = {
    "--tensor", "query=random:1:[2,4,16]",          "--tensor", "key_cache=random:2:[8,16,2,16]",
    "--tensor", "value_cache=random:3:[8,16,2,16]", "--tensor", "block_table=@table.npy",
    "--tensor", "context_lengths=@lengths.npy",     "--tensor", "output=zeros:[2,4,16]"};
std::vector<std::string> and_also(std::vector<std::string> arguments, const std::string& scalar) {
  arguments.insert(arguments.end(), {"--scalar", scalar});
  return arguments;
}

const std::vector<Example> kExamples = {
    {"vector_add",
     {"--tensor", "a=random:1:[1000]", "--tensor", "b=random:2:[1000]", "--tensor",
      "sum=zeros:[1000]", "--scalar", "tile=256"}},
    {"expression",
     {"--tensor", "a=random:1:[5000]", "--tensor", "b=random:2:[5000]", "--tensor",
      "f=zeros:[5000]", "--scalar", "tile=512"}},
    {"matmul",
     {"--tensor", "a=random:1:[70,50]", "--tensor", "b=random:2:[50,60]", "--tensor",
      "c=zeros:[70,60]", "--scalar", "tile=32", "--scalar", "recorded=0"}},
    {"matmul",
     {"--tensor", "a=random:1:[70,50]", "--tensor", "b=random:2:[50,60]", "--tensor",
      "c=zeros:[70,60]", "--scalar", "tile=32", "--scalar", "recorded=1"}},
    {"mixed_mlp",
     {"--tensor", "x=random:1:[45,70]", "--tensor", "weights=random:2:[70,90]", "--tensor",
      "bias=random:3:[90]", "--tensor", "y=zeros:[45,90]", "--scalar", "activation=1"}},
    {"row_softmax",
     {"--tensor", "x=random:1:[37,101]", "--tensor", "y=zeros:[37,101]", "--scalar",
      "rows_at_once=8", "--scalar", "blocks=4"}},
    {"value_dependent",
     {"--tensor", "matrix=@matrix.npy", "--tensor", "vector=random:2:[64]", "--tensor",
      "eigenvalue=zeros:[1]", "--tensor", "iterations=zeros:[1]", "--scalar",
      "tolerance=1e-4:float64", "--scalar", "limit=200", "--scalar", "tile=32"}},
    {"paged_attention", and_also(kAttention, "manual=0")},
    {"paged_attention", and_also(kAttention, "manual=1")},
};

std::vector<std::string> compilers() {
  std::vector<std::string> found;
  for (const char* const name : {"g++", "clang++"}) {
    const std::string command = std::string("command -v ") + name + " > /dev/null 2>&1";
    if (std::system(command.c_str()) == 0) found.emplace_back(name);
  }
  return found;
}
INSTANTIATE_TEST_SUITE_P(Strata, CheckedExample,
                         ::testing::Combine(::testing::ValuesIn(kExamples),
                                            ::testing::ValuesIn(compilers())),
                         [](const auto& test) {
                           return std::get<0>(test.param).name + "_" + std::to_string(test.index) +
                                  (std::get<1>(test.param) == "g++" ? "_gcc" : "_clang");
                         });

}  // namespace
}  // namespace strata::test
