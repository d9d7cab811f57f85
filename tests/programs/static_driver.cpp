// A program whose static initialiser does what STRATA_TEST_STATIC says:
//   worker        creates a Worker
//   init          creates a Worker and initialises it
//   sleep, crash  in worker processes only: sleeps for ever, writes to address zero
// Its main has a ProcessScope, and starts two workers of this executable that run a function of it.
// With the argument "line" it waits for a line of stdin before it does so; with "pause" it waits
// for ever with the Worker initialised.
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <string>
#include <typeinfo>

#include "strata/process_scope.hpp"
#include "strata/worker.hpp"
#include "strata/worker_error.hpp"

namespace {

using namespace strata;

// Set by main before it starts workers.
constexpr const char* kBelow = "STRATA_TEST_BELOW";

WorkerOptions own_program() {
  WorkerOptions options;
  options.subs = {{.count = 2, .program = WorkerProgram::this_program}};
  options.start_time_limit = std::chrono::seconds(30);
  if (const char* limit = std::getenv("STRATA_TEST_START_LIMIT"); limit != nullptr) {
    options.start_time_limit = std::chrono::milliseconds(std::atol(limit));
  }
  return options;
}

void say(const std::string& text) {
  std::fprintf(stdout, "%s\n", text.c_str());
  std::fflush(stdout);
}

struct Static {
  Static() {
    const char* told = std::getenv("STRATA_TEST_STATIC");
    const std::string what = told == nullptr ? "" : told;
    const bool below = std::getenv(kBelow) != nullptr;
    if (what == "worker" || what == "init") {
      worker = std::make_unique<Worker>(own_program());
      if (what == "init") init();
    } else if (what == "sleep" && below) {
      while (true)
        ::sleep(1000);
    } else if (what == "crash" && below) {
      volatile int* volatile nowhere = nullptr;
      *nowhere = 1;  // NOLINT: the point of it.
    }
  }
  void init() const {
    try {
      worker->init();
      say("static init: ready");
    } catch (const std::exception& error) {
      say(std::string("static init: ") + error.what());
      std::_Exit(3);
    }
  }
  std::unique_ptr<Worker> worker;
};
const Static g_static;

const WorkerFunction g_function("answer", [](WorkerTask& task) { task.set_value("42"); });

}  // namespace

int main(int argc, char** argv) {
  const ProcessScope scope(argc, argv);
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "line") {
    say("waiting");
    std::string line;
    std::getline(std::cin, line);
  }
  ::setenv(kBelow, "1", 1);
  try {
    Worker worker(own_program());
    worker.init();
    say("ready");
    const CallableId answer = worker.add(Callable::in_program("answer"));
    TaskId task;
    const Run run =
        worker.run([&](Orchestration& o) { task = o.submit(Call(answer), on(worker.any_sub())); });
    say("answer " + run.value(task).value_or("none"));
    if (mode == "pause") {
      say("pausing");
      while (true)
        ::pause();
    }
    worker.close();
    say("closed");
  } catch (const StartFailed& error) {
    say("start failed");
    say(error.what());
    return 4;
  } catch (const std::exception& error) {
    say(std::string("error ") + typeid(error).name());
    say(error.what());
    return 5;
  }
  return 0;
}
