// A user's program whose workers are itself.
#include <cstdio>
#include <strata/strata.hpp>

const strata::WorkerFunction add_one("add_one",
                                     [](strata::WorkerTask& task) { ++*task.data<int>(0); });

int main(int argc, char** argv) {
  const strata::ProcessScope scope(argc, argv);
  strata::Worker worker({.subs = {{.count = 2, .program = strata::WorkerProgram::this_program}}});
  const auto id = worker.add(strata::Callable::in_program("add_one"));
  const strata::Buffer memory = worker.create_buffer(sizeof(int));
  const strata::Tensor number = memory.tensor(strata::DType::int32, {1});
  worker.init();
  worker.run([&](strata::Orchestration& run) {
    for (int i = 0; i < 10; ++i)
      run.submit(strata::Call(id), inout(number));
  });
  worker.close();
  std::printf("counted to %d\n", memory.as<int>()[0]);
  return memory.as<int>()[0] == 10 ? 0 : 1;
}
