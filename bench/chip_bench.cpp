// Group "chip": chip programs beside other task runtimes, and beside the same kernels without one.
//
// What is measured is in programs of its own: peers/chip (its measures.hpp says what), the OpenMP
// peers, and a bare thread pool.
#include <fmt/format.h>

#include <string>
#include <utility>

#include "child.hpp"
#include "groups.hpp"

namespace strata::bench {
namespace {

struct Maker {
  double budget_ms;

  [[nodiscard]] Contender program(std::string name, std::string_view program,
                                  std::string_view package, std::string measure) const {
    const auto call = [program, package, measure = std::move(measure), budget = budget_ms] {
      return measure_peer(program, package, measure, 2, budget);
    };
    return {std::move(name), call};
  }
  [[nodiscard]] Contender strata(std::string measure) const {
    return program("", "chip", "the strata library", std::move(measure));
  }
  [[nodiscard]] std::vector<Contender> with_peers(const std::string& measure) const {
    return {strata(measure), program("libomp", "libomp", "clang and libomp-dev", "run:" + measure),
            program("libgomp", "libgomp", "g++", "run:" + measure),
            program("thread-pool", "thread_pool", "the strata library", measure)};
  }
};

}  // namespace

void add_chip_series(std::vector<Series>& all, double budget_ms) {
  const Maker make{budget_ms};
  const auto add = [&](std::string name, std::string says, std::vector<Contender> contenders) {
    all.push_back({.name = "chip/" + std::move(name),
                   .says = std::move(says),
                   .contenders = std::move(contenders)});
  };
  add("independent", "independent empty kernels on a2a3sim", make.with_peers("independent"));
  add("chain", "a chain of empty kernels on a2a3sim", make.with_peers("chain"));
  add("submission", "orchestration throughput: a task of two tensors submitted on a2a3sim",
      {make.strata("submission")});
  add("mixed", "empty kernels on the three lanes of a cluster", {make.strata("mixed")});
  add("spmd", "a task of 24 blocks after the other", {make.strata("spmd")});
  add("spmd-together", "the same, blocks started together", {make.strata("spmd-together")});
  add("replay", "the independent kernels as a recorded sub-graph", {make.strata("replay")});
  for (const int size : {64, 128}) {
    add(fmt::format("matmul/{}", size),
        fmt::format("product in 500 tasks of {0}x{0}x{0} float32", size),
        {make.strata(fmt::format("matmul:{}", size))});
  }
  for (const int keys : {24, 256}) {  // Some 10 and 100 us a kernel.
    add(fmt::format("attention/{}", keys), fmt::format("paged attention, {} keys a task", keys),
        {make.strata(fmt::format("attention:{}", keys))});
  }
  add("run", "a run of one task on a2a3sim, the chip in its own process", {make.strata("run")});
  add("load", "a chip program, read and loaded", {make.strata("load")});
  all.push_back({.name = "chip/memory",
                 .says = "private memory of a chip worker after all 72 cores have run",
                 .contenders = {make.strata("memory")},
                 .rounds = 1});
  add("close", "the close of 8 such chips", {make.strata("close")});
}

}  // namespace strata::bench
