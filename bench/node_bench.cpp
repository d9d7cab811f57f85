// Group "node": worker processes beside what one would write by hand.
//
// What is measured is in programs of its own: peers/node (Worker), peers/by_hand, mailbox and
// trace. Each prints its figures; see peers/node/measures.hpp and peers/by_hand/main.cpp.
#include <fmt/format.h>

#include <string>
#include <utility>

#include "child.hpp"
#include "groups.hpp"

namespace strata::bench {
namespace {

constexpr unsigned kChips = 8;

/// Makes contenders of the programs with the budget of this call.
struct Maker {
  double budget_ms;

  [[nodiscard]] Contender program(std::string name, std::string_view program, std::string measure,
                                  unsigned workers) const {
    const auto call = [program, measure = std::move(measure), workers, budget = budget_ms] {
      return measure_peer(program, "the strata library", measure, workers, budget);
    };
    return {std::move(name), call};
  }
  [[nodiscard]] Contender strata(std::string measure, unsigned workers) const {
    return program("", "node", std::move(measure), workers);
  }
  /// Strata in another setting, to compare with.
  [[nodiscard]] Contender other(std::string name, std::string measure, unsigned workers) const {
    return program(std::move(name), "node", std::move(measure), workers);
  }
  [[nodiscard]] Contender by_hand(std::string name, std::string measure, unsigned workers) const {
    return program(std::move(name), "by_hand", std::move(measure), workers);
  }
};

void add_start(std::vector<Series>& all, const Maker& make) {
  const Contender trivial = make.by_hand("trivial", "start", kChips);
  all.push_back({.name = "node/start/8-chips",
                 .says = "from nothing to 8 chip workers ready, and their close",
                 .contenders = {make.strata("start:chips", kChips), trivial}});
  all.push_back({.name = "node/start/8-subs",
                 .says = "from nothing to 8 sub workers ready, and their close",
                 .contenders = {make.strata("start:subs", kChips), trivial}});
  all.push_back({.name = "node/start/1-gib",
                 .says = "the start of 8 chip workers by a program with 1 GiB resident",
                 .contenders = {make.strata("start-large:chips", kChips),
                                make.other("small", "start:chips", kChips)}});
}

void add_warm(std::vector<Series>& all, const Maker& make) {
  all.push_back({.name = "node/run",
                 .says = "a run of one task, and one without tasks",
                 .contenders = {make.strata("one", 1)}});
  for (const unsigned workers : {1u, 2u}) {
    all.push_back({.name = fmt::format("node/independent/{}w", workers),
                   .says = fmt::format("independent empty tasks to {} worker(s)", workers),
                   .contenders = {make.strata("independent:chips", workers),
                                  make.by_hand("pipe-pool", "pool:independent", workers)}});
  }
  all.push_back({.name = "node/independent-tensor/1w",
                 .says = "the same to 1 worker, each with a tensor of its own",
                 .contenders = {make.strata("independent-tensor:chips", 1)}});
  all.push_back({.name = "node/chain/1w",
                 .says = "a dependent chain through one worker",
                 .contenders = {make.strata("chain:chips", 1), make.by_hand("ring", "ring", 1),
                                make.by_hand("pipe-pool", "pool:chain", 1)}});
  all.push_back({.name = "node/chain/2w",
                 .says = "a dependent chain that two workers take turns on",
                 .contenders = {make.strata("chain:chips", 2), make.by_hand("ring", "ring", 1)}});
}

void add_crowded(std::vector<Series>& all, const Maker& make) {
  all.push_back({.name = "node/crowded/8-on-2",
                 .says = "independent empty tasks to 8 workers, beside 2",
                 .contenders = {make.strata("independent:chips", 8),
                                make.other("uncrowded", "independent:chips", 2)}});
  all.push_back({.name = "node/crowded/4-on-1",
                 .says = "the same, 4 workers and their owner on one CPU, beside 1 with its own",
                 .contenders = {make.strata("independent:chips:one-cpu", 4),
                                make.other("uncrowded", "independent:chips", 1)}});
  all.push_back({.name = "node/crowded/chain-4-on-1",
                 .says = "a chain that 4 workers on one CPU take turns on",
                 .contenders = {make.strata("chain:chips:one-cpu", 4)}});
}

void add_life(std::vector<Series>& all, const Maker& make) {
  all.push_back({.name = "node/idle",
                 .says = "the whole tree of 8 chip workers over 10 s; a burst before and after",
                 .contenders = {make.strata("idle", kChips)},
                 .rounds = 3});
  all.push_back({.name = "node/memory",
                 .says = "private memory of an idle chip worker, and of the tree of 8",
                 .contenders = {make.strata("memory", kChips)},
                 .rounds = 1});
  all.push_back({.name = "node/death/child",
                 .says = "from SIGKILL of a worker in a task to the error at the caller",
                 .contenders = {make.strata("death:child", 2)}});
  all.push_back({.name = "node/death/root",
                 .says = "from SIGKILL of the owner of 8 idle workers to the end of the last",
                 .contenders = {make.strata("death:root", kChips)}});
}

void add_dump(std::vector<Series>& all, const Maker& make) {
  constexpr unsigned kProcesses = 10;
  all.push_back({.name = "node/dump/10x20",
                 .says =
                     "a report of 10 workers with 20 threads each: stacks by themselves, beside "
                     "those from outside",
                 .contenders = {make.strata("dump:own", kProcesses),
                                make.other("outside", "dump:outside", kProcesses)},
                 .rounds = 3});
}

}  // namespace

void add_node_series(std::vector<Series>& all, double budget_ms) {
  const Maker make{budget_ms};
  add_start(all, make);
  add_warm(all, make);
  all.push_back({.name = "node/mailbox",
                 .says = "a frame there and back, beside a raw ring of 64 bytes and an eventfd",
                 .contenders = {{"", [budget = fmt::format("{}", 10 * budget_ms)] {
                                   return measure_lines("mailbox", {budget}, "ns");
                                 }}}});
  add_crowded(all, make);
  add_life(all, make);
  add_dump(all, make);
  all.push_back({.name = "node/recorder",
                 .says = "what recording costs: an event, a task with its two events",
                 .contenders = {{"", [] { return measure_lines("trace", {}, "ns"); }}}});
}

}  // namespace strata::bench
