// The demo: a tiled Cholesky factorisation A = U^T U on the graph engine.
//
// All tiles are views of one matrix buffer, and each task names the tiles that it reads and writes.
// That two tiles of different block columns lie between each other's rows in memory and still share
// no byte is for the engine to see.

#include <lapacke.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <strata/strata.hpp>
#include <string>
#include <thread>
#include <vector>

#include "kernels.hpp"
#include "options.hpp"

namespace {

using demo::Options;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Symmetric, with random elements in [-1, 1); `diagonal` is added to the diagonal.
std::vector<double> random_matrix(std::int64_t n, std::uint64_t seed, double diagonal) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> element(-1.0, 1.0);
  std::vector<double> matrix(static_cast<std::size_t>(n * n));
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = i; j < n; ++j) {
      const double value = element(random);
      matrix[static_cast<std::size_t>(i * n + j)] = value;
      matrix[static_cast<std::size_t>(j * n + i)] = value;
    }
    matrix[static_cast<std::size_t>(i * n + i)] += diagonal;
  }
  return matrix;
}

/// Calls the four visitors in the order of the serial algorithm. `k`, `i`, `j` count tiles.
template <class Potrf, class Trsm, class Syrk, class Gemm>
void cholesky(std::int64_t tiles, Potrf&& potrf, Trsm&& trsm, Syrk&& syrk, Gemm&& gemm) {
  for (std::int64_t k = 0; k < tiles; ++k) {
    potrf(k);
    for (std::int64_t j = k + 1; j < tiles; ++j)
      trsm(k, j);
    for (std::int64_t i = k + 1; i < tiles; ++i) {
      syrk(k, i);
      for (std::int64_t j = i + 1; j < tiles; ++j)
        gemm(k, i, j);
    }
  }
}

// ---- The plain loop -----------------------------------------------------------------------------

void factorise_serially(std::vector<double>& matrix, std::int64_t n, std::int64_t b) {
  const auto tile = [&](std::int64_t i, std::int64_t j) {
    return demo::Tile{matrix.data() + i * b * n + j * b, std::min(b, n - i * b),
                      std::min(b, n - j * b), n};
  };
  cholesky((n + b - 1) / b, [&](auto k) { demo::potrf(tile(k, k), k * b); },
           [&](auto k, auto j) { demo::trsm(tile(k, k), tile(k, j)); },
           [&](auto k, auto i) { demo::syrk(tile(k, i), tile(i, i)); },
           [&](auto k, auto i, auto j) { demo::gemm(tile(k, i), tile(k, j), tile(i, j)); });
}

// ---- The same through the engine ----------------------------------------------------------------

demo::Tile tile_of(const strata::TaskContext& task, std::size_t argument) {
  const strata::TensorView view = task.tensor(argument);
  return {view.data_as<double>(), view.extent(0), view.extent(1), view.stride(0)};
}
void potrf_task(strata::TaskContext& task) {
  demo::potrf(tile_of(task, 0), task.scalar<std::int64_t>(0));
}
void trsm_task(strata::TaskContext& task) { demo::trsm(tile_of(task, 0), tile_of(task, 1)); }
void syrk_task(strata::TaskContext& task) { demo::syrk(tile_of(task, 0), tile_of(task, 1)); }
void gemm_task(strata::TaskContext& task) {
  demo::gemm(tile_of(task, 0), tile_of(task, 1), tile_of(task, 2));
}

void submit_cholesky(strata::Orchestration& run, const strata::Tensor& matrix, std::int64_t b) {
  const std::int64_t n = matrix.extent(0);
  const auto tile = [&](std::int64_t i, std::int64_t j) {
    return matrix.tile({i * b, j * b}, {std::min(b, n - i * b), std::min(b, n - j * b)});
  };
  cholesky((n + b - 1) / b,
           [&](auto k) {
             run.submit(potrf_task, inout(tile(k, k)), strata::scalar(k * b),
                        strata::named("potrf"));
           },
           [&](auto k, auto j) {
             run.submit(trsm_task, in(tile(k, k)), inout(tile(k, j)), strata::named("trsm"));
           },
           [&](auto k, auto i) {
             run.submit(syrk_task, in(tile(k, i)), inout(tile(i, i)), strata::named("syrk"));
           },
           [&](auto k, auto i, auto j) {
             run.submit(gemm_task, in(tile(k, i)), in(tile(k, j)), inout(tile(i, j)),
                        strata::named("gemm"));
           });
}

// ---- Checking -----------------------------------------------------------------------------------

/// Largest difference of the upper triangles, relative to the largest element of `expected`.
double difference(const std::vector<double>& result, const std::vector<double>& expected,
                  std::int64_t n) {
  double worst = 0;
  double largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = i; j < n; ++j) {
      const auto at = static_cast<std::size_t>(i * n + j);
      const double apart = std::abs(result[at] - expected[at]);
      if (!(apart <= worst)) worst = apart;  // A NaN stays.
      largest = std::max(largest, std::abs(expected[at]));
    }
  }
  return worst / largest;
}

int run_demo(const Options& options) {
  const std::int64_t n = options.size;
  const std::int64_t b = options.tile;
  const double flops = static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n) / 3;
  const std::vector<double> matrix =
      random_matrix(n, options.seed, options.diagonal.value_or(static_cast<double>(n)));

  const unsigned lanes =
      options.lanes != 0 ? options.lanes : std::max(1U, std::thread::hardware_concurrency());
  strata::Engine engine({.kinds = {{.name = "cpu", .threads = lanes - 1, .callers = 1}}});
  std::printf("Cholesky of a %lld x %lld matrix (float64) in %lld x %lld tiles\n",
              static_cast<long long>(n), static_cast<long long>(n), static_cast<long long>(b),
              static_cast<long long>(b));
  std::printf("  lanes            %zu\n", engine.lanes(engine.kind("cpu")).size());

  std::vector<double> result = matrix;
  std::vector<double> serial;
  const strata::Tensor tensor = engine.tensor(result, {n, n});
  double engine_time = std::numeric_limits<double>::max();
  double serial_time = engine_time;
  strata::Graph graph;
  for (int round = 0; round < options.repeat; ++round) {
    std::copy(matrix.begin(), matrix.end(), result.begin());
    auto begin = Clock::now();
    const strata::Run run = engine.run(
        [&](strata::Orchestration& orchestration) { submit_cholesky(orchestration, tensor, b); },
        {.name = "cholesky", .keep_graph = true});
    engine_time = std::min(engine_time, seconds_since(begin));
    // Later rounds also have edges from the tasks of the round before.
    if (round == 0) graph = run.graph();

    serial = matrix;
    begin = Clock::now();
    factorise_serially(serial, n, b);
    serial_time = std::min(serial_time, seconds_since(begin));
  }
  std::printf("  tasks            %zu\n", graph.nodes.size());
  std::printf("  edges            %zu\n", graph.edges.size());
  std::printf("  time             %.4f s, %.2f GFLOP/s\n", engine_time, flops / engine_time / 1e9);
  std::printf("  plain loop       %.4f s, %.2f GFLOP/s on one core: %.2f times as long\n",
              serial_time, flops / serial_time / 1e9, serial_time / engine_time);

  // Row-major upper is column-major lower: the same bytes.
  std::vector<double> expected = matrix;
  const auto order = static_cast<lapack_int>(n);
  const lapack_int info = LAPACKE_dpotrf(LAPACK_COL_MAJOR, 'L', order, expected.data(), order);
  if (info != 0) {
    std::fprintf(stderr, "demo: LAPACKE_dpotrf says %lld; there is nothing to compare with\n",
                 static_cast<long long>(info));
    return 1;
  }
  const double apart = difference(result, expected, n);
  const double allowed = static_cast<double>(n) * std::numeric_limits<double>::epsilon();
  const bool same_as_serial = result == serial;
  const bool right = apart <= allowed && same_as_serial;
  std::printf("  against LAPACK   max relative difference %.2e (allowed %.2e)\n", apart, allowed);
  std::printf("  against the loop %s\n", same_as_serial ? "the same, bit by bit" : "DIFFERENT");

  const std::string dot =
      options.dot.empty()
          ? (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "cholesky.dot")
                .string()
          : options.dot;
  std::ofstream file(dot);
  file << graph.to_dot();
  file.close();
  if (!file) {
    std::fprintf(stderr, "demo: can't write '%s'\n", dot.c_str());
    return 1;
  }
  std::printf("  graph            %s (dot -Tsvg draws it)\n", dot.c_str());
  std::printf("%s\n", right ? "right" : "WRONG");
  return right ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = demo::parse(argc, argv);
    if (options.help) {
      std::fputs(demo::help_text(), stdout);
      return 0;
    }
    return run_demo(options);
  } catch (const demo::UsageError& error) {
    std::fprintf(stderr, "demo: %s\nTry 'demo --help'.\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "demo: %s\n", error.what());
    return 1;
  }
}
