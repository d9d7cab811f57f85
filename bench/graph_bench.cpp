// Group "graph": the engine beside other task runtimes, on the same workloads.
//
// Every runtime, Strata too, is a program of its own (peers/); what is measured, and with which
// workload, is said by the measures that those programs take (peers/peer.hpp).
#include <fmt/format.h>

#include <string>
#include <string_view>

#include "child.hpp"
#include "groups.hpp"

namespace strata::bench {
namespace {

/// A peer program and what has to be installed for it to be built.
struct Peer {
  std::string_view name;
  std::string_view package;
};
constexpr Peer kStrata{"strata", "the strata library"};
constexpr Peer kLibgomp{"libgomp", "g++"};
constexpr Peer kLibomp{"libomp", "clang and libomp-dev"};
constexpr Peer kStarPu{"starpu", "libstarpu-dev"};
constexpr Peer kOneTbb{"onetbb", "libtbb-dev"};
constexpr Peer kTaskflow{"taskflow",
                         "Taskflow (-DTASKFLOW_ROOT=DIR, with taskflow/taskflow.hpp in DIR)"};
constexpr Peer kPeers[] = {kLibgomp, kLibomp, kStarPu, kOneTbb, kTaskflow};

constexpr std::string_view kWorkloads[] = {"independent", "chain", "fan",     "tree",
                                           "stencil",     "2r1w",  "cholesky"};

/// Makes contenders of peers with the options of this call.
struct Maker {
  double budget_ms;

  [[nodiscard]] Contender named(std::string name, const Peer& peer, std::string measure,
                                unsigned threads) const {
    const auto call = [peer, measure = std::move(measure), threads, budget = budget_ms] {
      return measure_peer(peer.name, peer.package, measure, threads, budget);
    };
    return {std::move(name), call};
  }
  [[nodiscard]] Contender peer(const Peer& peer, std::string measure, unsigned threads) const {
    return named(std::string(peer.name), peer, std::move(measure), threads);
  }
  [[nodiscard]] Contender strata(std::string measure, unsigned threads) const {
    return named("", kStrata, std::move(measure), threads);
  }
  /// Strata and all peers.
  [[nodiscard]] std::vector<Contender> everyone(const std::string& measure,
                                                unsigned threads) const {
    std::vector<Contender> contenders{strata(measure, threads)};
    for (const Peer& p : kPeers)
      contenders.push_back(peer(p, measure, threads));
    return contenders;
  }
};

void add_runs(std::vector<Series>& all, const Maker& make) {
  for (const std::string_view workload : kWorkloads) {
    for (const unsigned threads : {1u, 2u}) {
      all.push_back({.name = fmt::format("graph/{}/{}t", workload, threads),
                     .says = "build and run of empty tasks",
                     .contenders = make.everyone(fmt::format("run:{}", workload), threads)});
    }
  }
}

void add_submission(std::vector<Series>& all, const Maker& make) {
  for (const int arguments : {1, 2, 4, 8}) {
    const std::string measure = fmt::format("submit:args-{}", arguments);
    all.push_back({.name = fmt::format("graph/submit/args-{}", arguments),
                   .says = fmt::format("submission alone, {} argument(s)", arguments),
                   .contenders = {make.strata(measure, 2), make.peer(kStarPu, measure, 2),
                                  make.peer(kTaskflow, measure, 2)}});
  }
  all.push_back({.name = "graph/replay-submit",
                 .says = "replay alone, beside submission of the same tasks",
                 .contenders = {make.strata("replay-submit:args-2", 2),
                                make.named("submit", kStrata, "submit:args-2", 2)}});
}

void add_replays(std::vector<Series>& all, const Maker& make) {
  for (const std::string_view workload : kWorkloads) {
    const std::string measure = fmt::format("replay:{}", workload);
    all.push_back({.name = fmt::format("graph/replay/{}/2t", workload),
                   .says = "replay and run of what was built before",
                   .contenders = {make.strata(measure, 2), make.peer(kTaskflow, measure, 2)}});
  }
}

void add_growth(std::vector<Series>& all, const Maker& make) {
  all.push_back(
      {.name = "graph/readers",
       .says = "submission while up to 40,000 readers of one region are pending",
       .contenders = {make.strata("growth:readers", 2), make.peer(kStarPu, "growth:readers", 2)}});
  all.push_back({.name = "graph/readers-others",
                 .says = "the same, half of the tasks on other regions",
                 .contenders = {make.strata("growth:readers-others", 2),
                                make.peer(kStarPu, "growth:readers-others", 2)}});
  constexpr std::pair<std::string_view, std::string_view> kAccesses[] = {
      {"same", "a tile again"},
      {"new", "a tile not seen before"},
      {"overlap", "a box over four tiles"}};
  for (const auto& [access, says] : kAccesses) {
    all.push_back(
        {.name = fmt::format("graph/tiles-{}", access),
         .says = fmt::format("cost of an argument, {}, with 10,000 live tiles and with 100", says),
         .contenders = {
             make.strata(fmt::format("submit:tiles-{}-10000", access), 2),
             make.named("100-tiles", kStrata, fmt::format("submit:tiles-{}-100", access), 2)}});
  }
}

}  // namespace

void add_graph_series(std::vector<Series>& all, double budget_ms) {
  const Maker make{budget_ms};
  add_runs(all, make);
  add_submission(all, make);
  add_replays(all, make);
  add_growth(all, make);
  all.push_back({.name = "graph/metg/2t",
                 .says = "METG(50 %) of the stencil, two tasks a thread wide",
                 .contenders = make.everyone("metg", 2)});
  all.push_back({.name = "graph/engine/2t",
                 .says = "start-up to the end of the first task; memory then, and after 2r1w",
                 .contenders = make.everyone("engine", 2)});
}

}  // namespace strata::bench
