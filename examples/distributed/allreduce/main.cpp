// The sum of one vector from each of several chips, on every one of them:
//
//   allreduce_distributed -p a2a3sim -d 0-1
//   allreduce_distributed -p cpu -d 0-3 --input 'rank{rank}.npy' --output sum.npy
//
// The chips become ranks of a domain, and either a kernel on each calls all_reduce with the others,
// or the ready-made task does it. The result of every rank is compared with what this process
// computes in float64.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <strata/collectives.hpp>
#include <strata/strata.hpp>

#include "base/duration_text.hpp"
#include "chip/npy.hpp"
#include "comm/algorithms.hpp"
#include "options.hpp"
#include "recorded_tasks.hpp"
#include "vectors.hpp"

namespace allreduce {
namespace {

using std::chrono::nanoseconds;
using strata::Tensor;
using strata::chip::HostTensor;

/// The chips, the vectors in memory that they use, and what runs on them.
class Job {
 public:
  Job(const Options& options, const std::vector<HostTensor>& vectors);

  /// Does it once; the time that it took on each rank.
  std::vector<nanoseconds> run();
  /// What a rank has now.
  [[nodiscard]] std::vector<std::byte> result(std::size_t rank) const;
  void write_timeline() const;
  [[nodiscard]] std::string process(std::size_t rank) const;

 private:
  [[nodiscard]] std::size_t ranks() const { return options_.devices.size(); }
  [[nodiscard]] strata::WorkerOptions worker_options() const;
  [[nodiscard]] strata::DomainOptions domain_options() const;
  strata::TaskId submit_kernels(strata::Orchestration& run);
  [[nodiscard]] std::vector<nanoseconds> times_of_kernels() const;
  [[nodiscard]] std::vector<nanoseconds> times_of_task(strata::TaskId task) const;

  const Options& options_;
  const std::size_t bytes_;
  strata::Worker worker_;
  strata::CallableId program_;
  strata::Domain domain_;
  std::vector<strata::Buffer> buffers_;
  std::vector<strata::Buffer> times_;  ///< By rank: [blocks, begin and end], of kernels.
  std::vector<Tensor> mine_;
  std::vector<Tensor> results_;
  distributed::TaskNames names_;
};

Job::Job(const Options& options, const std::vector<HostTensor>& vectors)
    : options_(options), bytes_(vectors[0].bytes.size()), worker_(worker_options()) {
  if (options_.method == Method::kernel) {
    program_ = worker_.add(strata::Callable::chip_program(
        distributed::beside_this_program("allreduce_distributed.strata")));
  }
  worker_.init();
  domain_ = worker_.create_domain(domain_options());
  const auto count = static_cast<std::int64_t>(options_.count);
  for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
    times_.push_back(worker_.create_buffer(options_.blocks * 2 * sizeof(std::int64_t)));
    if (options_.memory == Memory::window) {
      domain_.copy_from_host(rank, "mine", vectors[rank].bytes);
      mine_.push_back(domain_.slice(rank, "mine"));
      results_.push_back(domain_.slice(rank, "result"));
      continue;
    }
    strata::Buffer mine = worker_.create_buffer(bytes_);
    strata::Buffer result = worker_.create_buffer(bytes_);
    std::memcpy(mine.data(), vectors[rank].bytes.data(), bytes_);
    mine_.push_back(mine.tensor(options_.dtype, {count}));
    results_.push_back(result.tensor(options_.dtype, {count}));
    buffers_.push_back(std::move(mine));
    buffers_.push_back(std::move(result));
  }
}

strata::WorkerOptions Job::worker_options() const {
  strata::WorkerOptions options;
  options.chips = distributed::chips_of(options_.chips, ranks());
  return options;
}

strata::DomainOptions Job::domain_options() const {
  strata::DomainOptions options;
  options.name = "allreduce";
  options.channels = std::max(options_.blocks, 1U);
  for (std::size_t rank = 0; rank < ranks(); ++rank)
    options.chips.push_back(worker_.chip(rank));
  if (options_.memory == Memory::window) {
    options.slices = {{"mine", options_.dtype, options_.count},
                      {"result", options_.dtype, options_.count}};
  }
  return options;
}

std::vector<nanoseconds> Job::run() {
  strata::TaskId task;
  worker_.run([&](strata::Orchestration& run) {
    task = options_.method == Method::kernel
               ? submit_kernels(run)
               : strata::all_reduce(run, domain_, mine_, results_, options_.op,
                                    {.algorithm = options_.algorithm});
  });
  names_.emplace(task, "all_reduce");
  return options_.method == Method::kernel ? times_of_kernels() : times_of_task(task);
}

/// A group: the kernels of all ranks wait for each other, so all must be there.
strata::TaskId Job::submit_kernels(strata::Orchestration& run) {
  const strata::Scalar scalars[] = {strata::scalar(options_.op),
                                    strata::scalar(options_.algorithm)};
  std::vector<Tensor> contexts;
  std::vector<Tensor> times;
  std::vector<std::array<strata::TensorArg, 4>> arguments(ranks());
  std::vector<strata::GroupMember> members;
  contexts.reserve(ranks());
  times.reserve(ranks());
  members.reserve(ranks());
  for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
    contexts.push_back(domain_.context(rank));
    times.push_back(times_[rank].tensor(strata::DType::int64, {options_.blocks, 2}));
    arguments[rank] = {in(contexts[rank]), in(mine_[rank]), out(results_[rank]), out(times[rank])};
    members.push_back({.lane = domain_.chip(rank),
                       .body = strata::Call(program_),
                       .tensors = arguments[rank],
                       .scalars = scalars});
  }
  return run.submit_group({.members = members, .name = "all_reduce"});
}

/// From the first block's begin to the last one's end, by the clock of the kernels.
std::vector<nanoseconds> Job::times_of_kernels() const {
  std::vector<nanoseconds> times;
  for (const strata::Buffer& buffer : times_) {
    const auto stamps = buffer.as<std::int64_t>();
    std::int64_t begin = stamps[0];
    std::int64_t end = stamps[1];
    for (std::size_t block = 1; block < options_.blocks; ++block) {
      begin = std::min(begin, stamps[2 * block]);
      end = std::max(end, stamps[2 * block + 1]);
    }
    times.emplace_back(end - begin);
  }
  return times;
}

/// As the processes have recorded it.
std::vector<nanoseconds> Job::times_of_task(strata::TaskId task) const {
  std::vector<nanoseconds> times(ranks(), nanoseconds{0});
  for (const distributed::RecordedTask& recorded : distributed::recorded_tasks(worker_)) {
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      if (recorded.task == task && recorded.process == process(rank)) times[rank] = recorded.time();
    }
  }
  return times;
}

std::vector<std::byte> Job::result(std::size_t rank) const {
  std::vector<std::byte> bytes(bytes_);
  if (options_.memory == Memory::window) {
    domain_.copy_to_host(static_cast<std::uint32_t>(rank), "result", bytes);
  } else {
    std::memcpy(bytes.data(), buffers_[2 * rank + 1].data(), bytes_);
  }
  return bytes;
}

void Job::write_timeline() const {
  distributed::write_timeline(options_.chips.trace, distributed::recorded_tasks(worker_), names_);
}

std::string Job::process(std::size_t rank) const { return fmt::format("node/chip[{}]", rank); }

void print_head(const Options& options) {
  const std::size_t ranks = options.devices.size();
  const std::uint64_t bytes = options.count * strata::size_of(options.dtype);
  std::string algorithm(strata::name_of(options.algorithm));
  if (options.algorithm == strata::CollectiveAlgorithm::automatic) {
    // Each block does one all_reduce of its part.
    const auto chosen =
        strata::comm::choose_all_reduce(static_cast<std::uint32_t>(ranks), bytes / options.blocks);
    algorithm = fmt::format("{} (chosen by size)", strata::name_of(chosen));
  }
  fmt::print("all_reduce of {} x {} ({} bytes), {}, over {} chips of {}\n", options.count,
             strata::name_of(options.dtype), bytes, strata::name_of(options.op), ranks,
             options.chips.platform);
  fmt::print("  by {}, vectors in {}, algorithm {}\n",
             options.method == Method::task
                 ? std::string("the ready-made task")
                 : fmt::format("a kernel of {} block{} on each", options.blocks,
                               options.blocks == 1 ? "" : "s"),
             options.memory == Memory::window ? "windows" : "own memory", algorithm);
  fmt::print("  {:>4}  {:>6}  {:<13}  {:>10}  {:>12}  {:>14}\n", "rank", "device", "process",
             "max error", "time", "bus bandwidth");
}

/// Bytes over each link that any all_reduce needs, as nccl-tests count them, in GB/s.
double bus_bandwidth(const Options& options, nanoseconds time) {
  const auto ranks = static_cast<double>(options.devices.size());
  const auto bytes = static_cast<double>(options.count * strata::size_of(options.dtype));
  return 2 * (ranks - 1) / ranks * bytes / static_cast<double>(time.count());
}

void print_rank(const Options& options, std::size_t rank, const Comparison& comparison,
                nanoseconds time) {
  const std::string seconds =
      time.count() > 0 ? strata::base::duration_text(time) : std::string("?");
  const std::string bandwidth =
      time.count() > 0 ? fmt::format("{:.2f} GB/s", bus_bandwidth(options, time)) : "?";
  fmt::print("  {:>4}  {:>6}  {:<13}  {:>10.2e}  {:>12}  {:>14}  {}\n", rank, options.devices[rank],
             fmt::format("node/chip[{}]", rank), comparison.max_error, seconds, bandwidth,
             comparison.right() ? std::string("ok")
                                : fmt::format("WRONG: {} elements, the first is {}",
                                              comparison.wrong, comparison.first_wrong));
}

void write_results(const Options& options, const std::vector<HostTensor>& vectors,
                   const std::vector<std::vector<std::byte>>& results) {
  if (options.output.empty()) return;
  const bool one_file = for_rank(options.output, 0) == options.output;
  for (std::size_t rank = 0; rank < (one_file ? 1 : results.size()); ++rank) {
    HostTensor tensor = vectors[rank];
    tensor.bytes = results[rank];
    strata::chip::write_npy(for_rank(options.output, rank), tensor);
  }
}

int run(Options options) {
  const std::vector<HostTensor> vectors = make_vectors(options);
  Job job(options, vectors);
  std::vector<nanoseconds> best(options.devices.size(), nanoseconds::max());
  for (unsigned i = 0; i < options.repeat; ++i) {
    const std::vector<nanoseconds> times = job.run();
    for (std::size_t rank = 0; rank < best.size(); ++rank)
      best[rank] = std::min(best[rank], times[rank]);
  }
  if (!options.chips.trace.empty()) job.write_timeline();

  Reference reference(vectors, options.op);
  if (options.spoil) reference.spoil();
  std::vector<std::vector<std::byte>> results;
  bool right = true;
  print_head(options);
  for (std::size_t rank = 0; rank < best.size(); ++rank) {
    results.push_back(job.result(rank));
    const Comparison comparison = reference.compare(results[rank]);
    print_rank(options, rank, comparison, best[rank]);
    right = right && comparison.right();
  }
  const bool same = std::all_of(results.begin(), results.end(),
                                [&](const auto& result) { return result == results[0]; });
  write_results(options, vectors, results);
  fmt::print("  all ranks have {} bits\n{}\n", same ? "the same" : "DIFFERENT",
             right && same ? "right" : "WRONG");
  return right && same ? distributed::kRight : distributed::kWrong;
}

}  // namespace
}  // namespace allreduce

int main(int argc, char** argv) {
  CLI::App app(
      "Combines one vector from each of several chips, and checks what every one of them has.\n"
      "Exit code: 0 if all are right, 1 if not or if something failed, 2 for wrong arguments or a\n"
      "platform that is not there.",
      "allreduce_distributed");
  allreduce::Options options;
  allreduce::describe(app, options);
  return distributed::run_program(app, argc, argv, [&] {
    allreduce::finish(app, options);
    return allreduce::run(options);
  });
}
