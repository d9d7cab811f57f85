// Group "comm": collectives over shared windows beside MPI libraries and the least that could do
// the work.
//
// What is measured is in programs of its own: peers/comm. All figures are times of one call; the
// note of a figure has the bus bandwidth as nccl-tests define it.
#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "child.hpp"
#include "groups.hpp"

namespace strata::bench {
namespace {

struct Size {
  std::string_view name;
  std::size_t bytes;
};
constexpr Size kSizes[] = {{"8B", 8},
                           {"4KiB", 4096},
                           {"64KiB", 65536},
                           {"1MiB", std::size_t{1} << 20},
                           {"16MiB", std::size_t{16} << 20},
                           {"64MiB", std::size_t{64} << 20}};
constexpr std::string_view kOthers[] = {"reduce_scatter", "all_gather", "broadcast", "all_to_all",
                                        "reduce"};
struct Mpi {
  std::string_view name;
  std::string_view package;
};
constexpr Mpi kMpi[] = {{"openmpi", "openmpi-bin and libopenmpi-dev"},
                        {"openmpi-sm", "openmpi-bin and libopenmpi-dev"},
                        {"mpich", "mpich and libmpich-dev"}};

/// Makes contenders of the programs with the budget of this call.
struct Maker {
  double budget_ms;

  [[nodiscard]] Contender strata(std::string measure, unsigned ranks) const {
    return {"", [measure = std::move(measure), ranks, budget = budget_ms] {
              return measure_peer("comm", "the strata library", measure, ranks, budget);
            }};
  }
  [[nodiscard]] std::vector<Contender> everyone(const std::string& measure, unsigned ranks) const {
    std::vector<Contender> contenders = {strata(measure, ranks)};
    for (const Mpi& mpi : kMpi) {
      const auto call = [mpi, measure, ranks, budget = budget_ms] {
        return measure_peer(mpi.name, mpi.package, measure, ranks, budget);
      };
      contenders.push_back({std::string(mpi.name), call});
    }
    return contenders;
  }
};

void add_sizes(std::vector<Series>& all, const Maker& make, std::string_view collective,
               unsigned ranks) {
  for (const Size& size : kSizes) {
    all.push_back(
        {.name = fmt::format("comm/{}/{}/{}r", collective, size.name, ranks),
         .says = fmt::format("{} of {}, {} processes; tensors in windows; own: in own memory",
                             collective, size.name, ranks),
         .contenders = make.everyone(fmt::format("{}:{}", collective, size.bytes), ranks)});
  }
}

/// As tasks of a node.
void add_tasks(std::vector<Series>& all, double budget_ms) {
  for (const unsigned ranks : {2u, 4u}) {
    const auto call = [ranks, budget_ms] {
      return measure_peer("node", "the strata library", "collective:1024", ranks, budget_ms);
    };
    all.push_back({.name = fmt::format("comm/task/{}r", ranks),
                   .says = fmt::format("all_reduce of 256 floats over {} chips of a node: a run, a "
                                       "task, a call in a running task, and task less call",
                                       ranks),
                   .contenders = {{"", call}}});
  }
}

/// What CollectiveAlgorithm::automatic chooses from; the table in src/comm/algorithm_table.cpp.
void add_table(std::vector<Series>& all, const Maker& make) {
  for (const unsigned ranks : {2u, 4u}) {
    for (std::size_t bytes = 512; bytes <= 65536; bytes *= 2) {
      Series series{.name = fmt::format("comm/table/{}B/{}r", bytes, ranks),
                    .says = fmt::format("all_reduce of {} bytes by each algorithm", bytes),
                    .contenders = {}};
      for (const char* const name : {"one_phase", "two_phase", "ring", "bidirectional_ring"}) {
        Contender contender = make.strata(fmt::format("all_reduce_{}:{}", name, bytes), ranks);
        contender.name = name;
        series.contenders.push_back(std::move(contender));
      }
      all.push_back(std::move(series));
    }
  }
}

/// Real worker processes: program `node`.
void add_domains(std::vector<Series>& all, double budget_ms) {
  const auto add = [&](std::string_view name, std::string measure, std::string_view says) {
    for (const unsigned ranks : {2u, 8u}) {
      const auto call = [measure, ranks, budget_ms] {
        return measure_peer("node", "the strata library", measure, ranks, budget_ms);
      };
      all.push_back({.name = fmt::format("comm/{}/{}r", name, ranks),
                     .says = fmt::format("{}, {} chips", says, ranks),
                     .contenders = {{"", call}}});
    }
  };
  add("bring_up", "bring-up", "the first domain of a Worker, from the call until it is there");
  add("create_domain", "create-domain", "a later domain of the same chips");
}

}  // namespace

void add_comm_series(std::vector<Series>& all, double budget_ms) {
  const Maker make{budget_ms};
  for (const unsigned ranks : {2u, 4u}) {
    add_sizes(all, make, "all_reduce", ranks);
    all.push_back({.name = fmt::format("comm/barrier/{}r", ranks),
                   .says = fmt::format("barrier of {} processes", ranks),
                   .contenders = make.everyone("barrier", ranks)});
  }
  for (const unsigned ranks : {2u, 4u}) {
    for (const std::string_view collective : kOthers)
      add_sizes(all, make, collective, ranks);
  }
  all.push_back({.name = "comm/put_notify",
                 .says = "a word put and a notification, there and back, beside a raw line",
                 .contenders = {make.strata("put_notify", 2)}});
  add_tasks(all, budget_ms);
  add_table(all, make);
  add_domains(all, budget_ms);
}

}  // namespace strata::bench
