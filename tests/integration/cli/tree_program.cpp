// A program with a tree of workers on two levels, each of which writes to its log; it waits until
// its stdin ends. With the argument "hang" a task is at work meanwhile that never ends by itself.
#include <unistd.h>

#include <cstdio>
#include <string_view>

#include "strata/strata.hpp"

namespace {

const strata::WorkerFunction speak("speak", [](strata::WorkerTask&) {
  std::fputs("a line of a sub worker\nand half a line", stderr);
});

const strata::WorkerFunction hang("hang", [](strata::WorkerTask&) {
  for (;;)
    ::pause();
});

const strata::WorkerFunction speak_below("speak_below", [](strata::Worker& worker,
                                                           strata::Orchestration& run,
                                                           strata::WorkerTask&) {
  run.submit(strata::Call(worker.add(strata::Callable::in_program("speak"))));
});

}  // namespace

int main(int argc, char** argv) {
  const strata::ProcessScope scope(argc, argv);
  constexpr auto kThisProgram = strata::WorkerProgram::this_program;
  const std::vector<strata::SubWorkerOptions> sub = {{.count = 1, .program = kThisProgram}};
  strata::Worker worker(
      {.name = "tree", .subs = sub, .next_level = {{.subs = sub, .program = kThisProgram}}});
  const auto shallow = worker.add(strata::Callable::in_program("speak"));
  const auto deep = worker.add(strata::Callable::in_program("speak_below").as_orchestration());
  const auto endless = worker.add(strata::Callable::in_program("hang"));
  worker.init();
  worker.run([&](strata::Orchestration& run) {
    run.submit(strata::Call(shallow), on(worker.any_sub()));
    run.submit(strata::Call(deep), on(worker.any_next()));
  });
  if (argc > 1 && std::string_view(argv[1]) == "hang") {
    const strata::Run run = worker.submit([&](strata::Orchestration& o) {
      o.submit(strata::Call(endless), on(worker.any_sub()), strata::named("never ends"));
    });
    std::fputs("ready\n", stdout);
    std::fflush(stdout);
    char byte = 0;
    while (::read(STDIN_FILENO, &byte, 1) > 0) {
    }
    return 0;
  }
  std::fputs("line of the program\n", stderr);
  worker.close();
  return 3;
}
