// The command line of allreduce_distributed.
//
// Thread safety: plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <strata/domain_context.hpp>

#include "command_line.hpp"

namespace allreduce {

/// Who does the all_reduce on each chip.
enum class Method : std::uint8_t {
  kernel,  ///< A kernel of a chip program.
  task,    ///< The ready-made task strata::all_reduce.
};

/// Where the vectors are.
enum class Memory : std::uint8_t {
  own,     ///< Buffers: copied through the windows piece by piece.
  window,  ///< Slices of the windows: not copied.
};

struct Options {
  distributed::ChipChoice chips{.platform = "a2a3sim", .devices = "0-1"};
  Method method = Method::kernel;
  Memory memory = Memory::own;
  std::uint32_t blocks = 1;
  std::uint64_t count = std::uint64_t{1} << 20;
  bool count_given = false;
  strata::DType dtype = strata::DType::float32;
  bool dtype_given = false;
  strata::ReduceOp op = strata::ReduceOp::sum;
  strata::CollectiveAlgorithm algorithm = strata::CollectiveAlgorithm::automatic;
  std::uint64_t seed = 1;
  unsigned repeat = 5;
  std::string input = {};   ///< With {rank} in it, or empty.
  std::string output = {};  ///< Likewise, or one file for the result of rank 0.
  bool spoil = false;       ///< Expect something wrong, to see that it is found.
  std::vector<unsigned> devices = {};
};

/// Adds the options to `app`.
void describe(CLI::App& app, Options& options);
/// What can be said only once all are known. Throws CLI::ValidationError.
void finish(const CLI::App& app, Options& options);

/// "rank{rank}.npy" for one rank.
[[nodiscard]] std::string for_rank(std::string pattern, std::size_t rank);

}  // namespace allreduce
