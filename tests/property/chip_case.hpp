// ChipCase: a random chip program as data, and the two ways to run it: on a chip, and step by step
// on plain memory.
//
// All tensors are of uint32 and lie in one piece of host memory or are allocated by tasks. A task
// mixes what it reads into what it writes, so that any task that saw or left something else than it
// should shows in the bytes at the end.
//
// Thread safety: none; `current` is set before a run.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "chip/program/kernel_set.hpp"
#include "strata/chip.hpp"

namespace strata::property::chip_cases {

/// One step from a tensor to a view of it.
struct ViewOp {
  enum class Kind : std::uint8_t { slice, tile, select, transpose } kind = Kind::slice;
  int dim = 0;
  int other = 0;
  std::int64_t start = 0, stop = 0, step = 1;
  std::vector<std::int64_t> tile_start = {}, tile_size = {};
};

/// A view of an argument or of a temporary.
struct ViewRef {
  bool temporary = false;
  std::size_t index = 0;
  std::vector<ViewOp> ops = {};
};

/// A view as plain memory has it: `base` counts words.
struct PlainView {
  std::int64_t base = 0;
  std::vector<std::int64_t> shape = {};
  std::vector<std::int64_t> strides = {};
  [[nodiscard]] std::int64_t elements() const;
  /// Where element e is, counted row by row.
  [[nodiscard]] std::int64_t at(std::int64_t e) const;
  [[nodiscard]] PlainView with(const ViewOp& op) const;
};

enum class Way : std::uint8_t { aic, aiv, mixed1, mixed2, barrier };

struct TaskArgument {
  ViewRef view = {};
  Access access = Access::in;
  bool allocates = false;  ///< The task makes the temporary: `shape`, filled if `fill` is set.
  std::vector<std::int64_t> shape = {};
  bool fill = false;
  std::uint32_t fill_value = 0;
};

struct Step {
  enum class Kind : std::uint8_t { task, open, close, graph, read, write, wait } kind = Kind::task;
  // Of tasks.
  Way way = Way::aiv;
  std::uint32_t blocks = 1;
  std::uint32_t salt = 0;
  std::vector<TaskArgument> arguments = {};
  bool conditional = false;
  ViewRef condition = {};
  Compare compare = Compare::less;
  std::int64_t operand = 0;
  // Of graphs: two views; of reads and writes: the tensor whose first element it is.
  std::vector<ViewRef> views = {};
  std::uint32_t variant = 0;
  std::uint32_t times = 0;
};

struct ArgumentCase {
  PlainView view = {};
  Access access = Access::inout;
};

struct ChipCase {
  std::uint64_t seed = 0;
  std::vector<std::uint32_t> memory = {};  ///< At first.
  std::vector<ArgumentCase> arguments = {};
  std::vector<Step> steps = {};
  std::size_t temporaries = 0;
  [[nodiscard]] std::string to_text() const;
};

/// Chips that run cases have so many clusters.
inline constexpr unsigned kClusters = 2;

[[nodiscard]] ChipCase generate(std::uint64_t seed);
/// The memory after all steps, one by one.
[[nodiscard]] std::vector<std::uint32_t> run_serially(const ChipCase& chip_case);

/// What orchestrate() runs.
extern const ChipCase* current;
void orchestrate(ChipOrchestration& chip);
[[nodiscard]] std::vector<chip::KernelEntry> kernels();

/// The arithmetic that kernels and the serial way share.
[[nodiscard]] constexpr std::uint32_t combine(std::uint32_t h, std::uint32_t value) noexcept {
  h ^= value + 0x9e3779b9U + (h << 6) + (h >> 2);
  return h * 0x85ebca6bU ^ h >> 13;
}
[[nodiscard]] constexpr bool holds(Compare compare, std::int64_t value,
                                   std::int64_t operand) noexcept {
  switch (compare) {
    case Compare::equal:
      return value == operand;
    case Compare::not_equal:
      return value != operand;
    case Compare::greater:
      return value > operand;
    case Compare::greater_or_equal:
      return value >= operand;
    case Compare::less:
      return value < operand;
    case Compare::less_or_equal:
      return value <= operand;
  }
  return false;
}

}  // namespace strata::property::chip_cases
