#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>

#include "measures.hpp"

namespace strata::bench {
namespace {

Values measure(std::string_view what, unsigned threads, double budget_ns) {
  const std::size_t colon = what.find(':');
  const std::string_view name = what.substr(0, colon);
  const int size =
      colon == std::string_view::npos ? 0 : std::atoi(std::string(what.substr(colon + 1)).c_str());
  if (name == "independent") return measure_independent(threads, budget_ns);
  if (name == "chain") return measure_chain(threads, budget_ns);
  if (name == "submission") return measure_submission(threads, budget_ns);
  if (name == "mixed") return measure_mixed(threads, budget_ns);
  if (name == "spmd") return measure_spmd(threads, false, budget_ns);
  if (name == "spmd-together") return measure_spmd(threads, true, budget_ns);
  if (name == "replay") return measure_replay(threads, budget_ns);
  if (name == "matmul" && size > 0) return measure_matmul(threads, size, budget_ns);
  if (name == "attention" && size > 0) return measure_attention(threads, size, budget_ns);
  if (name == "run") return measure_run(budget_ns);
  if (name == "memory") return measure_memory();
  if (name == "close") return measure_close(budget_ns);
  if (name == "load") return measure_load(budget_ns);
  throw std::invalid_argument("no measure is called '" + std::string(what) + "'");
}

}  // namespace
}  // namespace strata::bench

int main(int argc, char** argv) {
  using namespace strata::bench;
  if (argc < 3 || argc > 4) {
    std::fprintf(stderr, "usage: %s MEASURE THREADS [BUDGET_MS]    see measures.hpp\n", argv[0]);
    return 2;
  }
  try {
    const auto threads = static_cast<unsigned>(std::max(1, std::atoi(argv[2])));
    const double budget_ns = (argc > 3 ? std::atof(argv[3]) : 100) * 1e6;
    print_values(measure(argv[1], threads, budget_ns), true, "");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}
