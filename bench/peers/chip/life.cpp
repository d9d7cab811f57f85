// Chips in processes of their own: a run, memory, the close; and the load of a program.
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "chip/program/program.hpp"
#include "measures.hpp"
#include "strata/chip_worker.hpp"

namespace strata::bench {
namespace {

constexpr double kMs = 1e6;
constexpr std::int64_t kElements = 1024;

/// The program in program/, from the cache unless it has changed.
const std::string& program_file() {
  static const std::string file =
      build_chip_program(ChipProgramSource::load(STRATA_BENCH_CHIP_PROGRAM)).string();
  return file;
}

WorkerOptions options(unsigned chips) {
  WorkerOptions options{.log_level = LogLevel::off, .worker_program = STRATA_BENCH_WORKER};
  options.chips.resize(chips, {.platform = "a2a3sim"});
  return options;
}

/// A Worker of some chips, with the program and its arguments.
class Node {
 public:
  explicit Node(unsigned chips) : worker_(options(chips)) {
    program_ = worker_.add(Callable::chip_program(program_file()));
    buffer_ = worker_.create_buffer(3 * kElements * sizeof(float));
    for (float& value : buffer_.as<float>())
      value = 1;
    worker_.init();
  }
  void run(int what) {
    (void)worker_.run([&](Orchestration& run) {
      run.submit(Call(program_), in(part(0)), in(part(1)), out(part(2)), scalar(what),
                 on(worker_.chip(0)));
    });
  }
  /// All lanes of each chip have run.
  void use_all_cores(unsigned chips) {
    (void)worker_.run([&](Orchestration& run) {
      for (unsigned chip = 0; chip < chips; ++chip) {
        run.submit(Call(program_), in(part(0)), in(part(1)), out(part(2)), scalar(1),
                   on(worker_.chip(chip)));
      }
    });
  }
  void check() const {
    if (buffer_.as<float>()[2 * kElements] != 2) throw std::runtime_error("a wrong sum");
  }
  Worker& worker() { return worker_; }

 private:
  [[nodiscard]] Tensor part(std::size_t i) const {
    return buffer_.tensor(DType::float32, {kElements}, i * kElements * sizeof(float));
  }
  Worker worker_;
  CallableId program_;
  Buffer buffer_;
};

/// Private memory of a process in MB.
double private_mb(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/smaps_rollup");
  double kb = 0;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("Private_Clean:") && !line.starts_with("Private_Dirty:")) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    double value = 0;
    words >> value;
    kb += value;
  }
  return kb / 1024;
}

}  // namespace

Values measure_run(double budget_ns) {
  (void)program_file();
  std::vector<double> first;
  std::vector<double> warm;
  const auto start_to_result = [&] {
    return timed([&] {
             Node node(1);
             node.run(0);
             node.check();
           }) /
           1000;
  };
  std::vector<double> whole = sample_for(budget_ns / 2, 3, start_to_result);
  Node node(1);
  first.push_back(timed([&] { node.run(0); }) / 1000);
  constexpr int kRuns = 200;
  const auto runs = [&] {
    for (int i = 0; i < kRuns; ++i)
      node.run(0);
  };
  runs();
  warm = sample_for(budget_ns / 2, 3, [&] { return timed(runs) / kRuns / 1000; });
  node.check();
  return {{"warm", summary(warm, "us")},
          {"first", summary(first, "us")},
          {"start-to-result", summary(whole, "us")}};
}

Values measure_memory() {
  Node node(1);
  node.use_all_cores(1);
  return {{"", summary({private_mb(node.worker().processes().at(0).pid)}, "MB")}};
}

Values measure_close(double budget_ns) {
  constexpr unsigned kChips = 8;
  const auto sample = [] {
    Node node(kChips);
    node.use_all_cores(kChips);
    return timed([&] { node.worker().close(); }) / kMs;
  };
  return {{"", summary(sample_for(budget_ns, 3, sample), "ms")}};
}

Values measure_load(double budget_ns) {
  const auto sample = [] { return timed([] { (void)chip::Program::load(program_file()); }) / kMs; };
  (void)sample();
  return {{"", summary(sample_for(budget_ns, 5, sample), "ms")}};
}

}  // namespace strata::bench
