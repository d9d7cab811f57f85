#include "options.hpp"

#include <fmt/format.h>

#include <map>

namespace allreduce {
namespace {

constexpr std::string_view kRank = "{rank}";
constexpr std::uint64_t kMostElements = std::uint64_t{1} << 32;
constexpr std::uint32_t kMostBlocks = 16;

/// By the names that the library itself gives them.
template <class T>
std::map<std::string, T> by_name(std::initializer_list<T> values) {
  std::map<std::string, T> names;
  for (const T value : values)
    names.emplace(strata::name_of(value), value);
  return names;
}

/// An option whose values have names.
template <class T>
void add_choice(CLI::App& app, const char* flags, T& value, const std::map<std::string, T>& names,
                const char* says) {
  std::string list;
  for (const auto& [name, each] : names) {
    list += (list.empty() ? "" : ", ") + name;
    if (each == value) list += " (default)";
  }
  app.add_option(flags, value, std::string(says) + ": " + list)
      ->transform(CLI::CheckedTransformer(names).description(""))
      ->default_str("");
}

}  // namespace

void describe(CLI::App& app, Options& options) {
  using strata::CollectiveAlgorithm;
  using strata::DType;
  using strata::ReduceOp;
  distributed::describe_chips(app, options.chips);
  app.add_option("--count", options.count, "Elements of each vector")
      ->check(CLI::Range(std::uint64_t{1}, kMostElements).description(""))
      ->capture_default_str();
  add_choice(app, "--dtype", options.dtype,
             by_name({DType::float32, DType::float16, DType::bfloat16, DType::int32, DType::int64,
                      DType::uint8}),
             "Type of the elements");
  add_choice(app, "--op", options.op,
             by_name({ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max}),
             "How they are combined");
  add_choice(app, "--algorithm", options.algorithm,
             by_name({CollectiveAlgorithm::automatic, CollectiveAlgorithm::one_phase,
                      CollectiveAlgorithm::two_phase, CollectiveAlgorithm::ring,
                      CollectiveAlgorithm::bidirectional_ring}),
             "How it is done");
  add_choice(app, "--by", options.method,
             std::map<std::string, Method>{{"kernel", Method::kernel}, {"task", Method::task}},
             "What runs on each chip, a kernel of a chip program or the ready-made task");
  add_choice(app, "--memory", options.memory,
             std::map<std::string, Memory>{{"own", Memory::own}, {"window", Memory::window}},
             "Where the vectors are, in memory of each rank or in the windows of the domain");
  app.add_option("--blocks", options.blocks,
                 "Blocks of the kernel; each does a part of the vector, on a channel of its own")
      ->check(CLI::Range(1U, kMostBlocks).description(""))
      ->capture_default_str();
  app.add_option("--input", options.input,
                 "Read the vectors from these files of numpy.save, {rank} being the rank: "
                 "'rank{rank}.npy'");
  app.add_option("--output", options.output,
                 "Write the result to this file; with {rank} in its name, what each rank has");
  app.add_option("--seed", options.seed, "Of the vectors that are generated")
      ->capture_default_str();
  app.add_option("--repeat", options.repeat, "How often; the time printed is the shortest")
      ->check(CLI::Range(1U, 1000000U).description(""))
      ->capture_default_str();
  app.add_flag("--spoil", options.spoil, "Expect a wrong value, to see that it is found");
}

void finish(const CLI::App& app, Options& options) {
  options.devices = distributed::parse_devices(options.chips.devices, 2, 16);
  options.count_given = app.count("--count") != 0;
  options.dtype_given = app.count("--dtype") != 0;
  if (!options.input.empty() && options.input.find(kRank) == std::string::npos) {
    throw CLI::ValidationError(
        "--input",
        fmt::format(
            "'{}' is one file for all ranks; put {{rank}} into it, as in 'rank{{rank}}.npy'",
            options.input));
  }
  if (options.method == Method::task && app.count("--blocks") != 0) {
    throw CLI::ValidationError("--blocks", "the ready-made task has no blocks");
  }
}

std::string for_rank(std::string pattern, std::size_t rank) {
  for (std::size_t at = pattern.find(kRank); at != std::string::npos; at = pattern.find(kRank)) {
    pattern.replace(at, kRank.size(), std::to_string(rank));
  }
  return pattern;
}

}  // namespace allreduce
