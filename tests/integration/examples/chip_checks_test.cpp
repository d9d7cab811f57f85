// The examples of chip programs under `strata chip`: no kernel touches what it has not declared,
// and results are the same in whatever order the dependencies allow. Both find a planted fault in
// one of them.
#include <gmock/gmock.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "support/program.hpp"
#include "support/temp_dir.hpp"

namespace strata::test {
namespace {

using testing::HasSubstr;

constexpr std::chrono::minutes kPatience{10};  ///< The compiler runs, too.

/// Writes an array as numpy.save does.
template <class T>
void save(const std::filesystem::path& path, const std::string& type, const std::string& shape,
          const std::vector<T>& values) {
  std::string header =
      "{'descr': '" + type + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  constexpr std::size_t kPreamble = 10;
  header.append(63 - (kPreamble + header.size()) % 64, ' ');
  header += '\n';
  std::ofstream file(path, std::ios::binary);
  file << "\x93NUMPY" << '\x01' << '\0' << static_cast<char>(header.size() & 0xff)
       << static_cast<char>(header.size() >> 8) << header;
  file.write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(T)));
}

/// A chip program with what it is called with.
struct ChipCall {
  std::string name;
  std::string tensors;  ///< "a=random:1:[1000] ..."
  std::string scalars;
};
void PrintTo(const ChipCall& program, std::ostream* stream) {
  *stream << program.name << " " << program.scalars;
}

struct Outcome {
  ProgramEnd end;
  std::string output;
  std::string errors;
};

class ChipProgramChecks : public testing::TestWithParam<ChipCall> {
 protected:
  ChipProgramChecks() {
    // Those that can't be random: what a table of blocks and lengths may be, and a matrix for which
    // the iteration converges.
    save<std::int32_t>(file("lengths.npy"), "<i4", "3,", {35, 16, 1});
    save<std::int32_t>(file("table.npy"), "<i4", "3,3", {4, 0, 7, 2, 8, 1, 5, 3, 6});
    std::vector<float> matrix(64);
    for (std::size_t i = 0; i < 8; ++i)
      matrix[i * 9] = i == 3 ? 4.0F : 1.0F / static_cast<float>(1 + i);
    save<float>(file("matrix.npy"), "<f4", "8,8", matrix);
    save<float>(file("vector.npy"), "<f4", "8,", std::vector<float>(8, -0.35F));
  }

  [[nodiscard]] std::string file(const std::string& name) const {
    return (folder_.path() / name).string();
  }

  /// strata chip PROGRAM with the arguments of `program` and the options.
  [[nodiscard]] Outcome chip(const ChipCall& program, const std::string& path,
                             const std::vector<std::string>& options) const {
    std::vector<std::string> arguments = {"chip", path};
    for (const auto& [option, list] :
         {std::pair("--tensor", program.tensors), std::pair("--scalar", program.scalars)}) {
      std::istringstream words(list);
      for (std::string word; words >> word;) {
        if (word.ends_with(".npy")) {
          const std::size_t name = word.find('=') + 1;
          word.replace(name, std::string::npos, file(word.substr(name)));
        }
        arguments.insert(arguments.end(), {option, word});
      }
    }
    arguments.insert(arguments.end(), options.begin(), options.end());
    Program command(STRATA_COMMAND_PATH, arguments, {{"STRATA_CACHE", STRATA_CHIP_CACHE}});
    const auto end = command.end(kPatience);
    return {end.value_or(ProgramEnd{}), command.output(), command.errors()};
  }

  static std::string source(const std::string& name) {
    return STRATA_CHIP_SOURCES "/" + name + "/program.json";
  }

  /// The folder of an example with one text replaced in one of its files.
  [[nodiscard]] std::string with_fault(const std::string& name, const std::string& path,
                                       std::string_view old_text, std::string_view new_text) const {
    std::filesystem::copy(STRATA_CHIP_SOURCES "/" + name, file(name),
                          std::filesystem::copy_options::recursive);
    std::ostringstream text;
    text << std::ifstream(file(name + "/" + path)).rdbuf();
    std::string changed = text.str();
    const std::size_t at = changed.find(old_text);
    EXPECT_NE(at, std::string::npos) << path << " has no '" << old_text << "'";
    if (at != std::string::npos) changed.replace(at, old_text.size(), new_text);
    std::ofstream(file(name + "/" + path)) << changed;
    return file(name + "/program.json");
  }

 private:
  TempDir folder_;
};

const ChipCall kAdd{"vector_add", "a=random:1:[1000] b=random:2:[1000] sum=zeros:[1000]",
                    "tile=256"};
const ChipCall kAttention{
    "paged_attention",
    "query=random:1:[3,4,8] key_cache=random:2:[9,16,2,8] value_cache=random:3:[9,16,2,8] "
    "block_table=table.npy context_lengths=lengths.npy output=zeros:[3,4,8]",
    "manual=0"};
const ChipCall kNamedEdges{"paged_attention", kAttention.tensors, "manual=1"};
const std::string kMatrices = "a=random:1:[40,36] b=random:2:[36,50] c=zeros:[40,50]";

INSTANTIATE_TEST_SUITE_P(
    All, ChipProgramChecks,
    testing::Values(
        kAdd, ChipCall{"expression", "a=random:1:[500] b=random:2:[500] f=zeros:[500]", "tile=128"},
        ChipCall{"matmul", kMatrices, "tile=16 recorded=0"},
        ChipCall{"matmul", kMatrices, "tile=16 recorded=1"},
        ChipCall{"mixed_mlp",
                 "x=random:1:[50,20] weights=random:2:[20,70] bias=random:3:[70] y=zeros:[50,70]",
                 "activation=1"},
        kAttention, kNamedEdges,
        ChipCall{"row_softmax", "x=random:1:[20,100] y=zeros:[20,100]", "rows_at_once=6 blocks=10"},
        ChipCall{"value_dependent",
                 "matrix=matrix.npy vector=vector.npy eigenvalue=zeros:[1] iterations=zeros:[1]",
                 "tolerance=0.0001:float64 limit=200 tile=3"}),
    [](const auto& call) { return call.param.name + "_" + std::to_string(call.index); });

TEST_P(ChipProgramChecks, NoKernelTouchesWhatItHasNotDeclared) {
  const Outcome outcome = chip(GetParam(), source(GetParam().name), {"--check"});
  EXPECT_EQ(outcome.end, (ProgramEnd{.exit_code = 0})) << outcome.errors;
  EXPECT_THAT(outcome.output, HasSubstr("no kernel touched what it had not declared"));
}

TEST_P(ChipProgramChecks, ResultsAreTheSameUnderAnyLegalSchedule) {
  for (const char* mode : {"device", "host_graph"}) {
    const Outcome outcome =
        chip(GetParam(), source(GetParam().name), {"--explore", "20", "-m", mode});
    EXPECT_EQ(outcome.end, (ProgramEnd{.exit_code = 0})) << outcome.errors;
    EXPECT_THAT(outcome.output, HasSubstr("all results are the same"));
  }
}

class ChipProgramFaults : public ChipProgramChecks {};
INSTANTIATE_TEST_SUITE_P(One, ChipProgramFaults, testing::Values(kAdd));

TEST_P(ChipProgramFaults, AKernelThatReadsPastItsTileIsFound) {
  const std::string program = with_fault("vector_add", "kernels/add.cpp", "i < sum.extent(0)",
                                         "i < sum.extent(0) + (sum.extent(0) == 256 ? 1 : 0)");
  const Outcome outcome = chip(kAdd, program, {"--check"});
  EXPECT_EQ(outcome.end, (ProgramEnd{.exit_code = 1})) << outcome.output;
  EXPECT_THAT(outcome.errors, HasSubstr("undeclared_access"));
  EXPECT_THAT(outcome.errors, HasSubstr("add.cpp:"));
}

TEST_P(ChipProgramFaults, AnEdgeThatIsNotNamedIsFound) {
  const std::string program = with_fault("paged_attention", "orchestration.cpp",
                                         "after(summed), after(merged)", "after(summed)");
  const Outcome outcome = chip(kNamedEdges, program, {"--explore", "200"});
  EXPECT_EQ(outcome.end, (ProgramEnd{.exit_code = 1})) << outcome.output;
  EXPECT_THAT(outcome.errors, HasSubstr("no dependency between them"));
}

}  // namespace
}  // namespace strata::test
