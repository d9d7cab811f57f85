// Worker processes: tasks from a shared library on two chips and two subs, memory that all of them
// share, values that tasks return, a task that fails, and a process that dies and is replaced.
//
// The tasks are in libs/vectors.cpp.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <strata/strata.hpp>
#include <string>

namespace {

/// A file in the folder of this program.
std::string beside(const char* name) {
  return std::filesystem::read_symlink("/proc/self/exe").replace_filename(name).string();
}

}  // namespace

int main() {
  constexpr std::int64_t kSize = 100'000;
  const std::string library = beside("libvectors.so");

  // Each chip and each sub is a process that runs one task at a time: functions like these, and on
  // chips also chip programs. Callables and buffers may be made before or after init().
  strata::Worker worker({.chips = {{}, {}}, .subs = {{.count = 2}}});
  const auto axpy = worker.add(strata::Callable::in_library(library, "axpy"));
  const auto sum = worker.add(strata::Callable::in_library(library, "sum"));
  const auto root = worker.add(strata::Callable::in_library(library, "root"));
  const auto die = worker.add(strata::Callable::in_library(library, "die"));
  const auto where = worker.add(strata::Callable::in_library(library, "where"));
  strata::Buffer x_memory = worker.create_buffer(kSize * sizeof(float));
  strata::Buffer y_memory = worker.create_buffer(kSize * sizeof(float));
  const strata::Tensor x = x_memory.tensor(strata::DType::float32, {kSize});
  const strata::Tensor y = y_memory.tensor(strata::DType::float32, {kSize});
  for (float& element : x_memory.as<float>())
    element = 1;  // The memory is this program's as well.
  worker.init();  // Now there are four processes.

  // 1. Halves on any chip, then the sum on any sub. Who waits for whom follows from the memory, as
  //    it does in one process.
  strata::TaskId total;
  const strata::Run run = worker.run([&](strata::Orchestration& graph) {
    for (std::int64_t begin = 0; begin < kSize; begin += kSize / 2) {
      const std::int64_t end = begin + kSize / 2;
      graph.submit(strata::Call(axpy), in(x.slice(0, begin, end)), inout(y.slice(0, begin, end)),
                   strata::scalar(3.0F), on(worker.any_chip()), strata::named("axpy"));
    }
    total = graph.submit(strata::Call(sum), in(y), on(worker.any_sub()), strata::named("sum"));
  });
  std::printf("sum of y: %s\n", run.value(total).value_or("none").c_str());
  if (run.value(total) != "300000.000000") return 1;

  // 2. A task throws in its process: the run fails, and the error says all of it. The process goes
  //    on.
  y_memory.as<float>()[7] = -1;
  try {
    worker.run([&](strata::Orchestration& graph) {
      graph.submit(strata::Call(root), inout(y), on(worker.sub(1)), strata::named("root"));
    });
    return 1;  // Not reached.
  } catch (const strata::RunFailed& failed) {
    try {
      std::rethrow_exception(failed.failed().front().exception);
    } catch (const strata::RemoteError& error) {
      std::printf("\n%s\n", error.what());
      if (error.fault().path != "node/sub[1]" || error.fault().type != "std::domain_error") {
        return 1;
      }
    }
  }

  // 3. A process dies. Its task fails with the cause; another process takes its place, and later
  //    runs find the same lane again.
  try {
    worker.run([&](strata::Orchestration& graph) {
      graph.submit(strata::Call(die), on(worker.chip(0)), strata::named("die"));
    });
    return 1;  // Not reached.
  } catch (const strata::RunFailed& failed) {
    try {
      std::rethrow_exception(failed.failed().front().exception);
    } catch (const strata::WorkerDied& error) {
      std::printf("\n%s\n", error.what());
    }
  }
  const strata::Run after = worker.run(
      [&](strata::Orchestration& graph) { graph.submit(strata::Call(where), on(worker.chip(0))); });
  std::printf("\nafterwards:\n");
  for (const strata::ProcessStatus& process : worker.processes()) {
    std::printf("  %-12s %-10s process %u in this place\n", process.path.c_str(),
                process.state.c_str(), process.incarnation);
  }
  worker.close();
  return after.values().size() == 1 && after.values()[0].second == "node/chip[0]" ? 0 : 1;
}
