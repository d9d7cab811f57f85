// The groups of benchmarks that the program has: one function and one file each.
#pragma once

#include <vector>

#include "harness.hpp"

namespace strata::bench {

/// The graph engine beside other task runtimes (graph_bench.cpp).
void add_graph_series(std::vector<Series>& all, double budget_ms);

/// Worker processes beside what one would write by hand (node_bench.cpp).
void add_node_series(std::vector<Series>& all, double budget_ms);

/// Collectives over shared windows beside MPI (comm_bench.cpp).
void add_comm_series(std::vector<Series>& all, double budget_ms);

/// Chip programs beside other task runtimes and plain loops (chip_bench.cpp).
void add_chip_series(std::vector<Series>& all, double budget_ms);

}  // namespace strata::bench
