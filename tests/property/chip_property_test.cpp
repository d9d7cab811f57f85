// The property: whatever chip program is run, on whatever chip and in whatever way, the memory at
// the end is, byte for byte, what its tasks would have made of it one after the other.
//
// STRATA_PROPERTY_PROGRAMS sets the number of programs, STRATA_PROPERTY_SEED the first seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "chip/chip_runtime.hpp"
#include "chip_case.hpp"
#include "support/guard.hpp"
#include "support/random.hpp"

namespace strata::property::chip_cases {
namespace {

using test::Random;

/// The programs are dealt out to so many tests, which ctest may run at once.
constexpr int kShards = 4;
/// How often each program is run, in ways drawn at random.
constexpr int kWays = 4;

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

/// One way to run a program.
struct WayToRun {
  std::string platform;
  ChipRunOptions options;
  [[nodiscard]] std::string to_text() const {
    const auto number = [](const auto& value) {
      return value ? std::to_string(*value) : std::string("default");
    };
    return platform + ", " + (options.mode == OrchestrationMode::device ? "device" : "host_graph") +
           ", window " + number(options.window) + ", heap " + number(options.heap) + ", threads " +
           number(options.threads) + ", explore " + number(options.explore_seed) +
           (options.time_limit ? ", with a time limit" : "") +
           (options.keep_graph ? ", graph kept" : "");
  }
};

WayToRun draw(Random& random) {
  static constexpr std::array<const char*, 4> kPlatforms = {
      "a2a3sim:clusters=2", "a2a3sim:clusters=2,staging=1", "cpu:clusters=2", "a5sim:clusters=3"};
  WayToRun way{.platform = random.pick(kPlatforms), .options = {}};
  way.options.mode = random.chance(50) ? OrchestrationMode::device : OrchestrationMode::host_graph;
  if (random.chance(50)) way.options.window = std::size_t{1} << random.below(5);
  if (random.chance(50)) way.options.heap = std::size_t{1} << 16;
  if (random.chance(50)) way.options.threads = static_cast<unsigned>(random.between(1, 4));
  if (random.chance(25)) way.options.explore_seed = random();
  if (random.chance(15)) way.options.time_limit = std::chrono::hours(1);
  if (random.chance(10)) way.options.keep_graph = true;
  return way;
}

/// Chips, kept from program to program: what one leaves behind must not matter to the next.
class Chips {
 public:
  chip::ChipRuntime& of(const std::string& platform) {
    auto& chip = chips_[platform];
    if (chip == nullptr) {
      chip = std::make_unique<chip::ChipRuntime>(
          chip::ChipRuntimeOptions{.platform = Platform::parse(platform)});
    }
    return *chip;
  }
  /// Each case is a program of its own: recordings are kept by program.
  void run(const ChipCase& chip_case, const WayToRun& way, std::vector<std::uint32_t>& memory) {
    current = &chip_case;
    std::vector<std::vector<std::int64_t>> dims;
    std::vector<detail::TensorRecord> records;
    for (const ArgumentCase& argument : chip_case.arguments) {
      auto& its = dims.emplace_back(argument.view.shape);
      its.insert(its.end(), argument.view.strides.begin(), argument.view.strides.end());
      records.push_back({.data = reinterpret_cast<std::byte*>(memory.data() + argument.view.base),
                         .dims = its.data(),
                         .buffer = {},
                         .byte_offset = 0,
                         .dtype = DType::uint32,
                         .access = argument.access,
                         .tracking = Tracking::full,
                         .rank = static_cast<std::uint8_t>(argument.view.shape.size()),
                         .flags = 0});
    }
    ChipProgramInfo info;
    info.name = "random";
    if (program_ == nullptr || seed_ != chip_case.seed) {
      seed_ = chip_case.seed;
      program_ = std::make_shared<const chip::Program>(
          info, chip::KernelSet{.program = "random", .kernels = kernels()}, orchestrate);
    }
    (void)of(way.platform)
        .run({.program = program_,
              .arguments = {.tensors = records.data(),
                            .tensor_count = static_cast<std::uint32_t>(records.size())},
              .options = way.options});
  }

 private:
  std::map<std::string, std::unique_ptr<chip::ChipRuntime>> chips_;
  std::uint64_t seed_ = 0;  ///< Of the case that program_ is for.
  std::shared_ptr<const chip::Program> program_;
};

class RandomChipPrograms : public testing::TestWithParam<int> {};

TEST_P(RandomChipPrograms, LeaveWhatTheirTasksWouldHaveLeftOneByOne) {
  const std::uint64_t programs = number_from("STRATA_PROPERTY_PROGRAMS", 400);
  const std::uint64_t first = number_from("STRATA_PROPERTY_SEED", 1);
  test::Guard guard("the property test of chips");
  Chips chips;
  for (auto i = static_cast<std::uint64_t>(GetParam()); i < programs; i += kShards) {
    const ChipCase chip_case = generate(first + i);
    const std::vector<std::uint32_t> expected = run_serially(chip_case);
    Random random(test::mix(first + i));
    for (int w = 0; w < kWays; ++w) {
      const WayToRun way = draw(random);
      std::vector<std::uint32_t> memory = chip_case.memory;
      const std::string what = "STRATA_PROPERTY_SEED=" + std::to_string(first + i) +
                               " STRATA_PROPERTY_PROGRAMS=1, way " + std::to_string(w) + ": " +
                               way.to_text();
      guard.restart(what);
      try {
        chips.run(chip_case, way, memory);
      } catch (const std::exception& error) {
        FAIL() << what << "\n" << error.what() << "\n" << chip_case.to_text();
      }
      if (memory == expected) continue;
      const auto at = std::mismatch(memory.begin(), memory.end(), expected.begin()).first;
      FAIL() << what << "\nword " << at - memory.begin() << " is not as expected\n"
             << chip_case.to_text();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shard, RandomChipPrograms, testing::Range(0, kShards));

}  // namespace
}  // namespace strata::property::chip_cases
