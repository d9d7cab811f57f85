// A program with a Worker, for tests that kill it: does what its arguments say, one step after the
// other, and prints a line when each is done.
//
//   tree=full|subs|deep|eight   which Worker (default: full)
//   scope=cancel|terminate      signals cancel the Worker (default: no SignalScope)
//   start-limit=MS  close-limit=MS  replace=no
//   run-limit=MS                deadline of each run, and how long its tasks may go on after that
//   init                        "ready N" with the number of its own worker processes
//   run:TASK[:ARGUMENT]@PLACE   runs a task (kTaskNames) and waits: "ran TASK"
//   submit:TASK[:ARGUMENT]@PLACE  submits it and waits for its begin: "begun TASK PID"
//                               PLACE: sub, sub0, chip1, next0, next0+1 (a level further down)
//   close  cancel  pause  line (waits for a line of stdin)
//   cycle                       init, a run on each worker, close; for ever
//   signal-in:STATE:US          from now on a thread waits for a worker to be in that state, then
//   US
//                               microseconds, then prints "hit STATES" and sends SIGTERM to itself
//   cancel-in:STATE:US          the same with Worker::cancel, again and again
//
// A step that throws ends the program: "cancelled STEP" and status 30, "error STEP TYPE" with the
// text behind it and status 31.
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <exception>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <typeinfo>
#include <vector>

#include "base/fault_point.hpp"
#include "programs/task_names.hpp"
#include "strata/process_scope.hpp"
#include "strata/signal_scope.hpp"
#include "strata/worker.hpp"
#include "strata/worker_error.hpp"

namespace {

using namespace strata;
using test::number_of_task;

constexpr int kCancelled = 30;
constexpr int kFailed = 31;

void say(const std::string& text) {
  std::fprintf(stdout, "%s\n", text.c_str());
  std::fflush(stdout);
}

Callable in_library(const std::string& symbol) {
  return Callable::in_library(STRATA_TEST_LIBRARIES "/libstrata_test_tasks.so", symbol);
}

WorkerOptions options_of(std::string_view tree) {
  // What a setup does is told by STRATA_TEST_SETUP; without that it does nothing.
  const Callable setup = in_library("setup_as_told");
  WorkerOptions options;
  if (tree == "full") {
    WorkerOptions below;
    below.subs = {{.count = 2}};
    options.chips = {{}, {}};
    options.subs = {{.count = 2}};
    options.next_level = {below};
  } else if (tree == "subs") {
    options.subs = {{.count = 1}, {.count = 1, .setup = setup}};
  } else if (tree == "deep") {
    WorkerOptions third;
    third.subs = {{.count = 1, .setup = setup}};
    WorkerOptions second;
    second.next_level = {third};
    options.next_level = {second};
  } else if (tree == "eight") {
    options.subs = {{.count = 8}};
  } else {
    throw std::invalid_argument("no such tree");
  }
  return options;
}

/// "a:b" -> "a", and "b" or nothing.
std::pair<std::string, std::string> split(const std::string& text, char at) {
  const std::size_t position = text.find(at);
  if (position == std::string::npos) return {text, {}};
  return {text.substr(0, position), text.substr(position + 1)};
}

class Driver {
 public:
  explicit Driver(const std::vector<std::string>& steps) {
    std::string tree = "full";
    for (const std::string& step : steps) {
      const auto [name, value] = split(step, '=');
      if (name == "tree") tree = value;
    }
    options_ = options_of(tree);
    for (const std::string& step : steps) {
      const auto [name, value] = split(step, '=');
      if (name == "start-limit") {
        options_.start_time_limit = std::chrono::milliseconds(std::stol(value));
      } else if (name == "close-limit") {
        options_.close_time_limit = std::chrono::milliseconds(std::stol(value));
      } else if (name == "run-limit") {
        run_limit_ = options_.cancel_grace = std::chrono::milliseconds(std::stol(value));
      } else if (name == "replace") {
        options_.replace_dead_workers = value != "no";
      } else if (name == "scope") {
        scope_.emplace(value == "cancel" ? SignalScope::Then::cancel
                                         : SignalScope::Then::terminate);
      } else if (name != "tree") {
        steps_.push_back(step);
      }
    }
    worker_ = std::make_unique<Worker>(options_);
  }
  ~Driver() {
    over_ = true;
    if (watcher_.joinable()) watcher_.join();
  }
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  int play() {
    for (const std::string& step : steps_) {
      if (const int code = guarded(step); code != 0) return code;
      if (signalled()) {
        say("cancelled after " + step);
        return kCancelled;
      }
    }
    return 0;
  }

 private:
  /// A signal that comes between two calls interrupts none: a program has to ask.
  [[nodiscard]] bool signalled() const { return scope_ && scope_->received() != 0; }

  int guarded(const std::string& step) {
    try {
      perform(step);
      return 0;
    } catch (const Cancelled& error) {
      say("cancelled " + step);
      return kCancelled;
    } catch (const std::exception& error) {
      say("error " + step + " " + typeid(error).name());
      say(error.what());
      return kFailed;
    }
  }

  void perform(const std::string& step) {
    const auto [name, rest] = split(step, ':');
    if (name == "init") {
      worker_->init();
      say("ready " + std::to_string(worker_->processes().size()));
    } else if (name == "run" || name == "submit") {
      task(name == "run", rest);
    } else if (name == "close") {
      worker_->close();
      say("closed");
    } else if (name == "cancel") {
      worker_->cancel();
      say("told");
    } else if (name == "pause") {
      say("pausing");
      while (true)
        ::pause();
    } else if (name == "line") {
      say("waiting");
      std::string line;
      std::getline(std::cin, line);
    } else if (name == "cycle") {
      cycle();
    } else if (name == "signal-in" || name == "cancel-in") {
      const auto [state, delay] = split(rest, ':');
      watcher_ = std::thread([this, by_signal = name == "signal-in", state = state,
                              us = std::stol(delay)] { watch(by_signal, state, us); });
    } else {
      throw std::invalid_argument("no such step");
    }
  }

  /// TASK[:ARGUMENT]@PLACE
  Run submit(const std::string& text, const Tensor* flag) {
    // Named anew, since clang 14 does not let lambdas capture structured bindings.
    const std::string place = split(text, '@').second;
    const std::string what = split(text, '@').first;
    const std::string name = split(what, ':').first;
    const std::string argument_text = split(what, ':').second;
    const std::int64_t argument = argument_text.empty() ? 0 : std::stoll(argument_text);
    const bool next = place.rfind("next", 0) == 0;
    const CallableId callable =
        worker_->add(next ? in_library("descend").as_orchestration() : in_library(name));
    const std::size_t index = place.find_first_of("0123456789");
    const std::size_t number = index == std::string::npos ? 0 : std::stoul(place.substr(index));
    const auto target = [&] {
      if (next) return on(worker_->next(number));
      if (place.rfind("chip", 0) == 0) return on(worker_->chip(number));
      return index == std::string::npos ? on(worker_->any_sub()) : on(worker_->sub(number));
    }();
    const std::string levels = split(place, '+').second;
    RunOptions limits;
    if (run_limit_.count() > 0) limits.deadline = std::chrono::steady_clock::now() + run_limit_;
    return worker_->submit(
        [=, tensor = flag == nullptr ? Tensor() : *flag,
         with_flag = flag != nullptr](Orchestration& run) {
          std::vector<Scalar> scalars{scalar(argument)};
          if (next) {
            scalars = {scalar(levels.empty() ? std::int64_t{0} : std::stoll(levels)),
                       scalar(number_of_task(name)), scalar(argument)};
          }
          std::vector<TensorArg> tensors;
          if (with_flag) tensors.push_back(inout(tensor));
          TaskSpec spec;
          spec.body = Call(callable);
          spec.name = "task of the driver";
          spec.target = target;
          spec.scalars = scalars;
          spec.tensors = tensors;
          run.submit_task(spec);
        },
        std::move(limits));
  }

  void task(bool wait, const std::string& text) {
    const std::string name = split(split(text, '@').first, ':').first;
    if (wait) {
      submit(text, nullptr).result();
      say("ran " + name);
      return;
    }
    Buffer& flag = flags_.emplace_back(worker_->create_buffer(sizeof(std::int32_t)));
    const Tensor tensor = flag.tensor(DType::int32, {1});
    runs_.push_back(submit(text, &tensor));
    std::atomic_ref<std::int32_t> value(flag.as<std::int32_t>()[0]);
    while (value.load(std::memory_order_acquire) == 0) {
      if (runs_.back().done()) runs_.back().result();
      ::usleep(200);
    }
    say("begun " + name + " " + std::to_string(value.load()));
  }

  void cycle() {
    while (true) {
      worker_->init();
      for (const char* place : {"sub", "chip0", "chip1", "next0"}) {
        if (options_.chips.empty() && place[0] == 'c') continue;
        if (options_.next_level.empty() && place[0] == 'n') continue;
        if (options_.subs.empty() && place[0] == 's') continue;
        submit(std::string("nothing@") + place, nullptr).result();
      }
      worker_->close();
      if (signalled()) return;
      say("cycle");
    }
  }

  void watch(bool by_signal, const std::string& state, long us) {
    // The signal is for the main thread or the scope's.
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
    while (!over_) {
      bool found = false;
      for (const ProcessStatus& process : worker_->processes())
        found = found || process.state == state;
      if (!found) continue;
      if (us > 0) {
        timespec pause{.tv_sec = 0, .tv_nsec = us * 1000};
        ::nanosleep(&pause, nullptr);
      }
      std::string states;
      for (const ProcessStatus& process : worker_->processes())
        states += " " + process.state;
      say("hit" + states);
      if (by_signal) {
        ::kill(::getpid(), SIGTERM);
        return;
      }
      // The close may have been over by now, and then there was nothing to cancel: once more.
      worker_->cancel();
    }
  }

  WorkerOptions options_;
  std::chrono::milliseconds run_limit_{0};
  std::optional<SignalScope> scope_;
  std::vector<std::string> steps_;
  std::unique_ptr<Worker> worker_;
  std::deque<Buffer> flags_;
  std::vector<Run> runs_;
  std::thread watcher_;
  std::atomic<bool> over_{false};
  std::atomic<int> cycles_{0};
};

}  // namespace

int main(int argc, char** argv) {
  const ProcessScope process(argc, argv);
  base::set_fault_scope("node");
  std::optional<Driver> driver;
  try {
    driver.emplace(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    say(std::string("error options ") + error.what());
    return 2;
  }
  const int code = driver->play();
  driver.reset();
  say("over");
  return code;
}
