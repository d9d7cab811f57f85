#include "shrink.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "checks.hpp"
#include "runner.hpp"
#include "support/guard.hpp"

#if defined(__SANITIZE_THREAD__)
// Children of the shrinker start threads; the sanitizer does not expect that of a forked process.
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }
#endif

namespace strata::property {
namespace {

class Shrinker {
 public:
  Shrinker(const Program& program, const std::function<bool(const Program&)>& fails,
           std::chrono::seconds time)
      : best_(program), fails_(fails), until_(std::chrono::steady_clock::now() + time) {}

  Program run() {
    std::size_t before;
    do {
      before = size(best_);
      drop_steps();
      drop_recorded_steps();
      merge_runs();
      drop_parts();
      simplify();
    } while (size(best_) < before && !late());
    return best_;
  }

 private:
  bool late() const { return std::chrono::steady_clock::now() >= until_; }

  static std::size_t size(const Program& program) {
    std::size_t sum = program.steps.size() * 10 + program.runs.size() * 10;
    const auto add = [&](const std::vector<Step>& steps) {
      for (const Step& step : steps) {
        sum += step.after.size() + step.works.size() * 3;
        for (const Work& work : step.works)
          sum += work.args.size() * 3;
      }
    };
    add(program.steps);
    for (const RecordingPlan& recording : program.recordings) {
      sum += recording.steps.size() * 10 + recording.parameters.size() + 10;
      add(recording.steps);
    }
    return sum;
  }

  /// Takes the candidate if it is another program and still fails.
  bool take(Program candidate) {
    if (late()) return false;
    normalize(candidate);
    if (print(candidate) == print(best_) || !fails_(candidate)) return false;
    best_ = std::move(candidate);
    return true;
  }

  /// Drops ever smaller chunks of a list.
  template <class List>
  void drop_chunks(List list_of) {
    for (std::size_t chunk = std::max<std::size_t>(list_of(best_).size() / 2, 1); chunk >= 1;
         chunk /= 2) {
      for (std::size_t at = 0; at < list_of(best_).size() && !late();) {
        Program candidate = best_;
        auto& list = list_of(candidate);
        const auto first = list.begin() + static_cast<std::ptrdiff_t>(at);
        const auto count = static_cast<std::ptrdiff_t>(std::min(chunk, list.size() - at));
        list.erase(first, first + count);
        if (!take(std::move(candidate))) at += chunk;
      }
      if (chunk == 1) break;
    }
  }

  void drop_steps() {
    drop_chunks([](Program& program) -> std::vector<Step>& { return program.steps; });
  }

  void drop_recorded_steps() {
    for (std::size_t r = 0; r < best_.recordings.size(); ++r) {
      drop_chunks([r](Program& p) -> std::vector<Step>& { return p.recordings[r].steps; });
    }
  }

  void merge_runs() {
    for (std::size_t r = best_.runs.size(); r-- > 1;) {
      Program candidate = best_;
      candidate.runs.erase(candidate.runs.begin() + static_cast<std::ptrdiff_t>(r));
      std::erase_if(candidate.steps, [&](const Step& step) {
        return step.op == Op::cancel && step.other == static_cast<int>(r);
      });
      for (Step& step : candidate.steps) {
        if (step.run == static_cast<int>(r)) step.run = 0;
        if (step.run > static_cast<int>(r)) --step.run;
        if (step.op == Op::cancel && step.other > static_cast<int>(r)) --step.other;
      }
      take(std::move(candidate));
    }
  }

  template <class Change>
  void change(Change&& apply) {
    Program candidate = best_;
    apply(candidate);
    take(std::move(candidate));
  }

  /// Calls visit(program -> steps) for the program's list and each recording's.
  template <class Visit>
  void each_list(Visit&& visit) {
    visit([](Program& program) -> std::vector<Step>& { return program.steps; });
    for (std::size_t r = 0; r < best_.recordings.size(); ++r) {
      visit([r](Program& program) -> std::vector<Step>& { return program.recordings[r].steps; });
    }
  }

  void drop_parts() {
    each_list([&](auto list_of) {
      for (std::size_t s = 0; s < list_of(best_).size() && !late(); ++s) {
        drop_parts_of_step(list_of, s);
      }
    });
  }

  /// A step of the program that is the best at this moment; it may shrink under the caller.
  template <class List>
  void drop_parts_of_step(List list_of, std::size_t s) {
    const auto there = [&](const Program&) { return s < list_of(best_).size(); };
    for (std::size_t a = list_of(best_)[s].after.size(); a-- > 0 && there(best_);) {
      if (a >= list_of(best_)[s].after.size()) continue;
      change([&](Program& p) {
        auto& after = list_of(p)[s].after;
        after.erase(after.begin() + static_cast<std::ptrdiff_t>(a));
      });
    }
    for (std::size_t w = list_of(best_)[s].works.size(); w-- > 0 && there(best_);) {
      if (w >= list_of(best_)[s].works.size()) continue;
      if (list_of(best_)[s].works.size() > 1) {
        change([&](Program& p) {
          auto& works = list_of(p)[s].works;
          works.erase(works.begin() + static_cast<std::ptrdiff_t>(w));
        });
      }
      if (!there(best_) || w >= list_of(best_)[s].works.size()) continue;
      for (std::size_t a = list_of(best_)[s].works[w].args.size(); a-- > 0;) {
        if (!there(best_) || w >= list_of(best_)[s].works.size() ||
            a >= list_of(best_)[s].works[w].args.size()) {
          continue;
        }
        change([&](Program& p) {
          auto& args = list_of(p)[s].works[w].args;
          args.erase(args.begin() + static_cast<std::ptrdiff_t>(a));
        });
      }
    }
  }

  void simplify() {
    change([](Program& p) { p.keep_graph = false; });
    change([](Program& p) { p.sequential = false; });
    change([](Program& p) { p.direct = false; });
    change([](Program& p) { p.tight_heap = false; });
    change([](Program& p) { p.window = 4096; });
    change([](Program& p) { p.held = false; });
    if (best_.meet_a < 0) {
      change([](Program& p) { p.kinds = {KindPlan{.threads = 2}}; });
      change([](Program& p) { p.kinds.resize(1); });
    }
    for (std::size_t r = 0; r < best_.runs.size(); ++r) {
      change([r](Program& p) { p.runs[r].raw_only = false; });
    }
    each_step([](Step& step) { step.pause = 0; });
    each_step([](Step& step) { step.priority = 0; });
    each_step([](Step& step) { step.exact = false; });
    each_step([](Step& step) { step.manual = false; });
    each_work([](Work& work) { work.delay = 0; });
    each_work([](Work& work) { work.fault = Fault::none; });
    each_work([](Work& work) {
      for (Arg& arg : work.args)
        arg.tracking = arg.tensor_tracking = Tracking::full;
    });
  }

  /// Applies the change everywhere, or, if that can't be, step by step.
  template <class Apply>
  void each_step(Apply&& apply) {
    each_list([&](auto list_of) {
      const std::string before = print(best_);
      change([&](Program& p) {
        for (Step& step : list_of(p))
          apply(step);
      });
      if (print(best_) != before) return;
      for (std::size_t s = 0; s < list_of(best_).size() && !late(); ++s) {
        change([&](Program& p) { apply(list_of(p)[s]); });
      }
    });
  }
  template <class Apply>
  void each_work(Apply&& apply) {
    each_step([&](Step& step) {
      for (Work& work : step.works)
        apply(work);
    });
  }

  Program best_;
  const std::function<bool(const Program&)>& fails_;
  std::chrono::steady_clock::time_point until_;
};

/// What the child does; never returns.
[[noreturn]] void try_and_exit(const Program& program, int attempts, std::chrono::seconds limit) {
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere >= 0) {
    dup2(nowhere, STDOUT_FILENO);
    dup2(nowhere, STDERR_FILENO);
  }
  test::Guard guard("a try of the shrinker", limit);
  for (int i = 0; i < attempts; ++i) {
    const Model model(program);
    if (!model.can_meet()) _exit(0);
    const Trace trace = run_program(program, model);
    if (!check(program, model, trace).empty()) _exit(1);
  }
  _exit(0);
}

}  // namespace

Program shrink(const Program& program, const std::function<bool(const Program&)>& fails,
               std::chrono::seconds time) {
  return Shrinker(program, fails, time).run();
}

bool fails_in_child(const Program& program, int attempts, std::chrono::seconds limit) {
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    try_and_exit(program, attempts, limit);
  }
  if (child < 0) return false;
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return false;
  }
  return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

}  // namespace strata::property
