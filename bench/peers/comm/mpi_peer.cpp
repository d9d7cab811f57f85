// Collectives as an MPI library does them. Compiled once for each library that is installed.
//
//   PEER MEASURE RANKS [BUDGET_MS]     see measure.hpp
//
// Called by itself it starts the ranks with the launcher of its library; with STRATA_BENCH_MPI_SM
// defined it asks Open MPI for its shared memory collectives.
#include <mpi.h>

#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "measure.hpp"

namespace {

using namespace strata::bench;

[[noreturn]] void start_ranks(int argc, char** argv) {
  std::vector<std::string> words = {STRATA_BENCH_MPIRUN};
#if defined(OMPI_MAJOR_VERSION)
  words.insert(words.end(), {"--allow-run-as-root", "--oversubscribe"});
#if defined(STRATA_BENCH_MPI_SM)
  words.insert(words.end(), {"--mca", "coll_sm_priority", "90"});
#endif
#endif
  words.insert(words.end(), {"-n", argc > 2 ? argv[2] : "2"});
  words.insert(words.end(), argv, argv + argc);
  std::vector<char*> pointers;
  for (std::string& word : words)
    pointers.push_back(word.data());
  pointers.push_back(nullptr);
  setenv("STRATA_BENCH_RANK", "1", 1);
  execv(pointers[0], pointers.data());
  std::perror(pointers[0]);
  std::exit(1);
}

void call(const CommMeasure& measure, const float* in, float* out) {
  const int all = static_cast<int>(measure.bytes / sizeof(float));
  const int part = all / static_cast<int>(measure.ranks);
  const std::string& name = measure.collective;
  if (name == "all_reduce") {
    MPI_Allreduce(in, out, all, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  } else if (name == "reduce") {
    MPI_Reduce(in, out, all, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
  } else if (name == "broadcast") {
    MPI_Bcast(out, all, MPI_FLOAT, 0, MPI_COMM_WORLD);
  } else if (name == "reduce_scatter") {
    MPI_Reduce_scatter_block(in, out, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  } else if (name == "all_gather") {
    MPI_Allgather(in, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD);
  } else if (name == "all_to_all") {
    MPI_Alltoall(in, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD);
  } else if (name == "barrier") {
    MPI_Barrier(MPI_COMM_WORLD);
  } else {
    throw std::invalid_argument("no collective is called '" + name + "'");
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  if (std::getenv("STRATA_BENCH_RANK") == nullptr) start_ranks(argc, argv);
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const CommMeasure measure = parse_measure(argc, argv);
  bind_rank(static_cast<unsigned>(rank), measure.ranks);
  const std::size_t count = measure.bytes / sizeof(float) + 16;
  std::vector<float> in(count, 1), out(count, 0);
  const auto samples = time_calls(
      repetitions(measure), [] { MPI_Barrier(MPI_COMM_WORLD); },
      [&] { call(measure, in.data(), out.data()); });
  if (rank == 0) print_values({{"", microseconds(samples)}}, true, bus_note(measure, samples));
  MPI_Finalize();
  return 0;
}
