// Bytes, lines, words and pairs of bytes in a file, counted by several chips:
//
//   text_statistics FILE -p cpu -d 0-3
//
//   text     ------part-------|------part-------|------part-------|------part-------
//   chips      count, merge       count, merge      count, merge      count, merge
//              all_reduce ------- all_reduce ------ all_reduce ------ all_reduce
//   sub        make_table
//
// The text lies in memory that all processes share. The chip program of each part is one task here
// and many on the chip (orchestration.cpp); the dependencies between all of them are found from the
// tensors that they name. In the end this process counts with a plain loop, and compares.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include <strata/collectives.hpp>
#include <strata/strata.hpp>

#include "base/duration_text.hpp"
#include "command_line.hpp"
#include "recorded_tasks.hpp"
#include "statistics.hpp"

namespace statistics {
namespace {

using strata::DType;
using strata::Tensor;

constexpr std::int64_t kLeastPiece = 4096;
constexpr std::int64_t kMostPiece = std::int64_t{1} << 20;
constexpr std::int64_t kPiecesPerPart = 8;  ///< Of small texts.

struct Options {
  distributed::ChipChoice chips{.platform = "cpu", .devices = "0-1"};
  std::string file = {};
  std::int64_t piece = 0;  ///< Bytes; 0: by the size of the text.
  std::int64_t top = 10;
};

void describe(CLI::App& app, Options& options) {
  app.add_option("file", options.file, "The text, or any other file")->required();
  distributed::describe_chips(app, options.chips);
  app.add_option("--piece", options.piece, "Bytes that one task counts; by the size of the file")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30).description(""));
  app.add_option("--top", options.top, "How many pairs of bytes are printed")
      ->check(CLI::Range(std::int64_t{0}, kPairKinds).description(""))
      ->capture_default_str();
}

std::string read_file(const std::string& name) {
  std::ifstream file(name, std::ios::binary);
  if (!file || std::filesystem::is_directory(name)) {
    const int why = std::filesystem::is_directory(name) ? EISDIR : errno;
    throw strata::Error("can't read '" + name + "': " + std::generic_category().message(why));
  }
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (file.bad()) throw strata::Error("can't read '" + name + "' to its end");
  return text;
}

/// What the chips have found: the table, and what each rank has of the counts.
struct Result {
  std::string table;
  std::vector<std::vector<std::int64_t>> shared;
};

class Job {
 public:
  Job(const Options& options, std::size_t ranks, const std::string& text);
  Result run();
  void write_timeline() const {
    distributed::write_timeline(options_.chips.trace, distributed::recorded_tasks(worker_), names_);
  }

 private:
  [[nodiscard]] static strata::WorkerOptions worker_options(const Options& options,
                                                            std::size_t ranks);
  void submit(strata::Orchestration& run);
  void submit_part(strata::Orchestration& run, std::size_t rank, const Tensor& counts);

  const Options& options_;
  const std::size_t ranks_;
  const std::int64_t bytes_;
  strata::Worker worker_;
  strata::CallableId program_;
  strata::CallableId make_table_;
  strata::Buffer memory_;
  Tensor text_;
  strata::Domain domain_;
  strata::TaskId table_;
  std::vector<strata::TensorHandle> totals_;
  distributed::TaskNames names_;
};

Job::Job(const Options& options, std::size_t ranks, const std::string& text)
    : options_(options),
      ranks_(ranks),
      bytes_(static_cast<std::int64_t>(text.size())),
      worker_(worker_options(options, ranks)),
      program_(worker_.add(strata::Callable::chip_program(
          distributed::beside_this_program("text_statistics.strata")))),
      make_table_(worker_.add(strata::Callable::in_library(
          distributed::beside_this_program("libtext_statistics_tasks.so"), "make_table"))),
      memory_(worker_.create_buffer(std::max<std::size_t>(text.size(), 1))),
      text_(memory_.tensor(DType::uint8, {bytes_})) {
  std::memcpy(memory_.data(), text.data(), text.size());
  worker_.init();
  strata::DomainOptions domain{.name = "counts"};
  for (std::size_t rank = 0; rank < ranks; ++rank)
    domain.chips.push_back(worker_.chip(rank));
  domain_ = worker_.create_domain(domain);
}

strata::WorkerOptions Job::worker_options(const Options& options, std::size_t ranks) {
  strata::WorkerOptions worker;
  worker.chips = distributed::chips_of(options.chips, ranks);
  worker.subs = {{.count = 1}};
  return worker;
}

void Job::submit_part(strata::Orchestration& run, std::size_t rank, const Tensor& counts) {
  const auto r = static_cast<std::int64_t>(rank);
  const auto of = static_cast<std::int64_t>(ranks_);
  const std::int64_t begin = bytes_ / of * r + std::min(r, bytes_ % of);
  const std::int64_t end = begin + bytes_ / of + (r < bytes_ % of ? 1 : 0);
  // One byte more, for the pair across the border; all may read it at once.
  const std::int64_t previous = begin > 0 && end > begin ? 1 : 0;
  const std::int64_t piece =
      options_.piece != 0 ? options_.piece
                          : std::clamp((end - begin) / kPiecesPerPart, kLeastPiece, kMostPiece);
  const strata::TaskId task =
      run.submit(strata::Call(program_), in(text_.slice(0, begin - previous, end)), out(counts),
                 strata::scalar(previous), strata::scalar(r), strata::scalar(piece),
                 on(worker_.chip(rank)), strata::named("count"));
  names_.emplace(task, "count");
}

void Job::submit(strata::Orchestration& run) {
  std::vector<Tensor> counts;
  std::vector<Tensor> totals;
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    counts.push_back(run.allocate(DType::int64, {kShared}));
    totals.push_back(run.allocate(DType::int64, {kShared}));
    totals_.push_back(run.keep(totals[rank]));
    submit_part(run, rank, counts[rank]);
  }
  names_.emplace(strata::all_reduce(run, domain_, counts, totals, strata::ReduceOp::sum),
                 "all_reduce");
  table_ = run.submit(strata::Call(make_table_), in(totals[0]), strata::scalar(options_.top),
                      on(worker_.any_sub()), strata::named("make_table"));
  names_.emplace(table_, "make_table");
}

Result Job::run() {
  const strata::Run run = worker_.run([&](strata::Orchestration& graph) { submit(graph); });
  Result result{.table = run.value(table_).value_or(""), .shared = {}};
  for (const strata::TensorHandle& total : totals_) {
    const auto* const shared = reinterpret_cast<const std::int64_t*>(total.data());
    result.shared.emplace_back(shared, shared + kShared);
  }
  totals_.clear();
  return result;
}

/// Whether every rank has what a plain loop over the text finds.
bool is_right(const Result& result, const std::string& text) {
  std::vector<std::int64_t> expected(kCounts);
  count(reinterpret_cast<const unsigned char*>(text.data()), static_cast<std::int64_t>(text.size()),
        false, expected.data());
  const std::int64_t words = words_of(expected.data()).all();
  return std::all_of(result.shared.begin(), result.shared.end(), [&](const auto& shared) {
    return shared == result.shared[0] && shared[kBytes] == expected[kBytes] &&
           shared[kLines] == expected[kLines] && words_of_all(shared.data()) == words &&
           std::equal(expected.begin() + kPairs, expected.end(), shared.begin() + kPairs);
  });
}

int run(const Options& options) {
  const std::vector<unsigned> devices =
      distributed::parse_devices(options.chips.devices, 1, kMostRanks);
  const std::string text = read_file(options.file);
  Job job(options, devices.size(), text);
  const auto begin = std::chrono::steady_clock::now();
  const Result result = job.run();
  const auto time = std::chrono::steady_clock::now() - begin;
  if (!options.chips.trace.empty()) job.write_timeline();
  fmt::print("{}: counted by {} chip{} of {} in {}\n{}", options.file, devices.size(),
             devices.size() == 1 ? "" : "s", options.chips.platform,
             strata::base::duration_text(time), result.table);
  const bool right = is_right(result, text);
  fmt::print("{}\n", right ? "right: all ranks have what a plain loop counts"
                           : "WRONG: a plain loop counts otherwise");
  return right ? distributed::kRight : distributed::kWrong;
}

}  // namespace
}  // namespace statistics

int main(int argc, char** argv) {
  CLI::App app(
      "Counts bytes, lines, words and pairs of bytes of a file with several chips. A word is what\n"
      "LC_ALL=C wc -w counts: bytes without white space among them, of which at least one is\n"
      "printable.\n"
      "Exit code: 0 if all ranks are right, 1 if not or if something failed, 2 for wrong "
      "arguments\n"
      "or a platform that is not there.",
      "text_statistics");
  statistics::Options options;
  statistics::describe(app, options);
  return distributed::run_program(app, argc, argv, [&] { return statistics::run(options); });
}
