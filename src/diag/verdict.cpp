#include "diag/verdict.hpp"

#include <fmt/format.h>
#include <sys/syscall.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "base/duration_text.hpp"
#include "diag/runtime_findings.hpp"
#include "diag/source_places.hpp"
#include "diag/tree_report.hpp"
#include "os/child_process.hpp"
#include "strata/ids.hpp"

namespace strata::diag {
namespace {

/// A thread that wanted a CPU for this much of the time between two looks computes or spins.
constexpr double kBusy = 0.5;

std::string short_time(std::chrono::nanoseconds time) {
  return base::duration_text(std::chrono::duration_cast<std::chrono::milliseconds>(time));
}

/// "node/chip[1] (pid 12)", "pid 12 (./train --steps 3)"
std::string name_of(const ProcessReport& process) {
  return process.strata ? fmt::format("{} (pid {})", process.title(), process.pid)
                        : fmt::format("pid {} ({})", process.pid, process.title());
}

std::string name_of(const ThreadReport& thread, const ProcessReport& process) {
  if (process.threads.size() == 1) return name_of(process);
  return fmt::format("thread {} '{}' of {}", thread.thread, thread.name, name_of(process));
}

/// Files whose functions every program waits in.
bool is_library_of_the_system(std::string_view path) {
  std::string_view file = path.substr(path.rfind('/') + 1);
  constexpr std::string_view kBegins[] = {"libc.so",   "libc-",    "libpthread", "ld-linux",
                                          "libstdc++", "libgcc_s", "libc++",     "[vdso"};
  return std::ranges::any_of(kBegins,
                             [&](std::string_view begin) { return file.starts_with(begin); });
}

/// Functions by which a program enters the kernel, should they be linked into it.
bool is_a_way_to_wait(const ThreadReport& thread, std::string_view function) {
  while (function.starts_with('_'))
    function.remove_prefix(1);
  if (thread.call && function == name_of_call(thread.call->number)) return true;
  constexpr std::string_view kNames[] = {"syscall", "sleep", "usleep", "nanosleep", "waitpid",
                                         "wait",    "raise", "kill",   "pause"};
  return function.starts_with("pthread_") || function.starts_with("lll_") ||
         function.starts_with("futex_") || function.starts_with("GI_") ||
         function.starts_with("sem_") || std::ranges::find(kNames, function) != std::end(kNames);
}

bool begins_like_a_library(std::string_view function) {
  return function.starts_with("std::") || function.starts_with("__") ||
         function.starts_with("_start");
}

/// The innermost frame of the program's own Python code; of any where it has none.
const PythonFrame* own_frame(const std::vector<PythonFrame>& frames) {
  const auto own = std::ranges::find_if(frames, [](const PythonFrame& frame) {
    const bool in_library = frame.file.find("/lib/python3") != std::string::npos &&
                            frame.file.find("/site-packages/") == std::string::npos &&
                            frame.file.find("/dist-packages/") == std::string::npos;
    return !in_library && !frame.file.starts_with("<frozen");
  });
  if (own != frames.end()) return &*own;
  return frames.empty() ? nullptr : &frames.front();
}

/// Strata's own code, by the names it has inside; what users write takes public names only.
bool is_inside_strata(std::string_view function) {
  constexpr std::string_view kInside[] = {"strata::os::",   "strata::ipc::",  "strata::graph::",
                                          "strata::node::", "strata::chip::", "strata::comm::"};
  return std::ranges::any_of(kInside, [&](std::string_view name) {
    return function.find(name) != std::string_view::npos;
  });
}

/// Where a thread is in the code of the program; in that of libraries where it is in no other.
struct OwnCode {
  std::string text;  ///< "in f() at a.cpp:3"; "" if nothing has a name.
  bool of_the_program = false;
};

OwnCode own_code(const ThreadReport& thread) {
  if (const PythonFrame* const frame = own_frame(thread.python)) {
    return {fmt::format("in {}() at {}:{}", frame->function, frame->file, frame->line), true};
  }
  std::string second_best;
  for (const trace::StackFrame& frame : thread.stack.frames) {
    if (frame.function.empty() || is_library_of_the_system(frame.module)) continue;
    for (const SourcePlace& place : places_of(frame)) {
      if (second_best.empty()) second_best = "in " + to_text(place);
      if (is_a_way_to_wait(thread, place.function) || begins_like_a_library(place.function) ||
          is_inside_strata(frame.function) || place.file.starts_with("/usr/include/")) {
        continue;
      }
      return {"in " + to_text(place), true};
    }
  }
  return {second_best, false};
}

/// A process of Strata's that waits for the end of another (node/janitor.hpp).
bool is_janitor(const ProcessReport& process) {
  return process.command_line.size() > 1 && process.command_line[0] == "strata-worker" &&
         process.command_line[1] == "--janitor";
}

/// Everything that a report says, by number.
class Findings {
 public:
  explicit Findings(const TreeReport& report) : report_(report) {
    for (const ProcessReport& process : report.processes) {
      processes_[process.pid] = &process;
      for (const ThreadReport& thread : process.threads)
        threads_[thread.thread] = {&process, &thread};
      if (!process.ended()) parents_.insert(process.ppid);
    }
  }

  std::vector<std::string> all() {
    if (report_.processes.empty()) return {"there is no such process any more"};
    dead();
    stopped();
    circles();
    runtimes();
    busy();
    tasks();
    waiting();
    if (!explained_)
      lines_.emplace_back("no wait explains this: slow, or outside what can be seen");
    return std::move(lines_);
  }

 private:
  struct Place {
    const ProcessReport* process = nullptr;
    const ThreadReport* thread = nullptr;
  };

  void say(std::string line) {
    explained_ = true;
    lines_.push_back(std::move(line));
  }

  void dead() {
    for (const ProcessReport& process : report_.processes) {
      if (process.strata && process.strata->crash) {
        say(fmt::format("{} crashed: {}", name_of(process), process.strata->crash->headline()));
      } else if (process.ended()) {
        const auto status = os::ExitStatus::from_wait_status(process.wait_status.value_or(0));
        const std::string line =
            fmt::format("{} has {}, and its parent, pid {}, has not waited for it",
                        name_of(process), status.to_string(), process.ppid);
        // Many a healthy parent looks late; a child that failed may be what is missed.
        if (status.clean()) {
          lines_.push_back(line);
        } else {
          say(line);
        }
      }
    }
  }

  void stopped() {
    for (const ProcessReport& process : report_.processes) {
      if (process.state == 'T') {
        say(fmt::format("{} is stopped by a signal; `kill -CONT {}` lets it go on",
                        name_of(process), process.pid));
      } else if (process.state == 't') {
        say(fmt::format("{} is stopped by a debugger", name_of(process)));
      }
    }
  }

  /// Threads each of which holds a lock that the one before it waits for.
  void circles() {
    std::set<pid_t> told;
    for (const auto& [id, place] : threads_) {
      std::vector<pid_t> way;
      pid_t at = id;
      while (at != 0 && std::ranges::find(way, at) == way.end()) {
        way.push_back(at);
        const auto next = threads_.find(at);
        at = next == threads_.end() ? 0 : awaited_thread(*next->second.thread);
      }
      if (at == 0 || told.contains(at)) continue;
      way.erase(way.begin(), std::ranges::find(way, at));
      std::string line = "deadlock: ";
      for (const pid_t member : way) {
        told.insert(member);
        const Place& in = threads_.at(member);
        line += fmt::format("{}{} waits{} for {}", member == way.front() ? "" : "; ",
                            name_of(*in.thread, *in.process), own_place(*in.thread),
                            what_of_thread(*in.thread));
      }
      say(line);
      for (const pid_t member : way)
        told_.insert(member);
    }
  }

  /// Of Strata: what the runtimes say themselves.
  void runtimes() {
    for (const ProcessReport& process : report_.processes) {
      for (RuntimeFinding& finding :
           runtime_findings(process, name_of(process), [&](const ThreadReport& thread) {
             return thread.busy < kBusy ? reason_of(process, thread) : spins(thread);
           })) {
        say(std::move(finding.line));
        told_.insert(finding.threads.begin(), finding.threads.end());
      }
    }
  }

  void busy() {
    for (const ProcessReport& process : report_.processes) {
      for (const ThreadReport& thread : process.threads) {
        if (thread.busy < kBusy || told_.contains(thread.thread)) continue;
        say(name_of(thread, process) + " " + spins(thread));
      }
    }
  }

  [[nodiscard]] std::string spins(const ThreadReport& thread) const {
    return fmt::format("computes or spins{}: it used or wanted {:.0f} % of a CPU in the last {}",
                       own_place(thread), 100 * thread.busy, short_time(report_.window));
  }

  /// Of Strata: who has a task in hand, or is on the way up or down, the oldest first.
  void tasks() {
    struct Item {
      std::chrono::nanoseconds since;
      std::string line;
    };
    std::vector<Item> items;
    for (const ProcessReport& process : report_.processes) {
      if (!process.strata || process.strata->crash) continue;
      const trace::Card& card = process.strata->card;
      const auto age = [&](std::chrono::nanoseconds since) {
        return short_time(report_.taken_at - since);
      };
      if (card.task) {
        items.push_back({card.task->since,
                         fmt::format("{} has had task {} '{}' in hand for {}{}", name_of(process),
                                     TaskId{card.task->task}.number(), card.task->name,
                                     age(card.task->since), what_the_task_does(process))});
      } else if (card.state == trace::ProcessState::starting ||
                 card.state == trace::ProcessState::initialising ||
                 card.state == trace::ProcessState::stopping) {
        items.push_back({card.state_since,
                         fmt::format("{} has been {} for {}; its last step: {}", name_of(process),
                                     trace::name_of(card.state), age(card.state_since),
                                     card.step.empty() ? "none" : card.step)});
      }
    }
    std::ranges::sort(items, {}, &Item::since);
    for (Item& item : items)
      say(std::move(item.line));
  }

  /// "; it waits in f() at a.cpp:3: ...": what the thread is in that runs the tasks of a worker.
  [[nodiscard]] std::string what_the_task_does(const ProcessReport& process) {
    pid_t id = process.pid;
    for (const trace::ThreadEvents& thread : process.strata->events) {
      const bool runs_tasks = std::ranges::any_of(thread.events, [](const trace::Event& event) {
        return event.kind == trace::EventKind::task_start;
      });
      if (runs_tasks) id = static_cast<pid_t>(thread.thread);
    }
    const auto place = threads_.find(id);
    if (place == threads_.end() || place->second.process != &process) return "";
    const ThreadReport& thread = *place->second.thread;
    if (!told_.insert(id).second) return "";
    if (thread.state == 'T' || thread.state == 't') return "";
    return "; it " + reason_of(process, thread);
  }

  /// Processes that do nothing: first those on whom nobody below them has an influence.
  void waiting() {
    // The deepest first; a parent that waits for its child is explained by the child.
    std::vector<const ProcessReport*> order;
    for (const ProcessReport& process : report_.processes)
      order.push_back(&process);
    std::ranges::stable_sort(order, std::greater<>(), &ProcessReport::depth);
    for (const ProcessReport* process : order) {
      if (process->ended() || process->stopped() || process->threads.empty()) continue;
      const bool all_wait = std::ranges::all_of(
          process->threads, [](const ThreadReport& thread) { return thread.busy < kBusy; });
      if (!all_wait || waits_for_child(*process)) continue;
      // A worker without a task waits for one; what it does otherwise has been told.
      if (process->strata && process->strata->card.role != "node") continue;
      if (is_janitor(*process)) continue;
      tell_of(*process);
    }
  }

  [[nodiscard]] bool waits_for_child(const ProcessReport& process) const {
    return parents_.contains(process.pid) &&
           std::ranges::any_of(process.threads, [](const ThreadReport& thread) {
             return thread.call &&
                    (thread.call->number == SYS_wait4 || thread.call->number == SYS_waitid);
           });
  }

  void tell_of(const ProcessReport& process) {
    // A pool of threads that wait in one place is told of once.
    std::map<std::string, std::vector<const ThreadReport*>> groups;
    std::vector<std::string> order;
    for (const ThreadReport& thread : process.threads) {
      if (told_.contains(thread.thread)) continue;
      // Threads of Strata's own wait most of the time, and it is never they that are waited for.
      if (process.strata && !own_code(thread).of_the_program) continue;
      const std::string what = reason_of(process, thread);
      auto& group = groups[what];
      if (group.empty()) order.push_back(what);
      group.push_back(&thread);
    }
    if (order.size() > 1) {
      lines_.push_back(
          fmt::format("{}: all its {} threads wait", name_of(process), process.threads.size()));
    }
    for (const std::string& what : order) {
      const auto& group = groups.at(what);
      const std::string who =
          group.size() == 1
              ? name_of(*group.front(), process)
              : fmt::format("{} threads of {} (the first is {} '{}')", group.size(),
                            name_of(process), group.front()->thread, group.front()->name);
      say(who + " " + what);
    }
  }

  /// "waits in stuck() at a.cpp:3: read of descriptor 0 (pipe:[12]), which only pid 7 can write to"
  [[nodiscard]] std::string reason_of(const ProcessReport& process,
                                      const ThreadReport& thread) const {
    if (thread.state == 'R') return "runs" + own_place(thread);
    if (awaited_thread(thread) != 0) {
      return "waits" + own_place(thread) + " for " + what_of_thread(thread);
    }
    std::string text = "waits" + own_place(thread);
    if (!thread.doing.empty()) {
      text += ": " + thread.doing + peers_of(process, thread);
    } else if (!thread.wait_channel.empty()) {
      text += ": in the kernel's " + thread.wait_channel;
    }
    if (thread.state == 'D') text += "; it can't be interrupted there";
    return text;
  }

  static std::string own_place(const ThreadReport& thread) {
    const std::string place = own_function(thread);
    return place.empty() ? "" : " " + place;
  }

  static pid_t awaited_thread(const ThreadReport& thread) {
    return thread.lock_owner != 0 ? thread.lock_owner : thread.joins;
  }

  [[nodiscard]] std::string what_of_thread(const ThreadReport& thread) const {
    const auto other = threads_.find(awaited_thread(thread));
    const std::string name =
        other == threads_.end()
            ? fmt::format("thread {}", awaited_thread(thread))
            : fmt::format("thread {} '{}'", other->first, other->second.thread->name);
    return thread.joins != 0 ? "the end of " + name : "a lock that " + name + " holds";
  }

  /// Who could end a wait for a pipe.
  [[nodiscard]] std::string peers_of(const ProcessReport& process,
                                     const ThreadReport& thread) const {
    const std::size_t begin = thread.doing.find("(pipe:[");
    if (begin == std::string::npos || !thread.call) return "";
    const std::size_t end = thread.doing.find(')', begin);
    const std::string pipe = thread.doing.substr(begin + 1, end - begin - 1);
    const bool writes = thread.call->number == SYS_write || thread.call->number == SYS_writev;
    std::vector<std::string> names;
    bool itself = false;
    for (const ProcessReport& other : report_.processes) {
      const auto& pipes = writes ? other.reads_from : other.writes_to;
      if (std::ranges::find(pipes, pipe) == pipes.end()) continue;
      if (other.pid == process.pid) {
        itself = true;
      } else {
        names.push_back(name_of(other));
      }
    }
    const std::string what = writes ? "read from" : "write to";
    if (names.empty() && itself) return ", which only the process itself can " + what;
    if (names.empty()) return ", which nobody of this tree can " + what;
    std::string text;
    for (const std::string& name : names)
      text += (text.empty() ? ", which can be " + std::string(writes ? "read" : "written") + " by "
                            : ", ") +
              name;
    return text;
  }

  const TreeReport& report_;
  std::map<pid_t, const ProcessReport*> processes_;
  std::map<pid_t, Place> threads_;
  std::set<pid_t> parents_;  ///< Of processes that live.
  std::set<pid_t> told_;     ///< Threads of which a line says all there is.
  std::vector<std::string> lines_;
  bool explained_ = false;
};

}  // namespace

std::vector<std::string> verdict_of(const TreeReport& report) { return Findings(report).all(); }

std::string own_function(const ThreadReport& thread) { return own_code(thread).text; }

std::string doing_of(const ThreadReport& thread) {
  switch (thread.state) {
    case 'R':
      return thread.busy < kBusy ? "runs" : "runs, and wanted a CPU nearly all the time";
    case 'Z':
    case 'X':
      return "has ended";
    case 'T':
      return "is stopped by a signal";
    case 't':
      return "is stopped by a debugger";
    default:
      break;
  }
  const std::string what = !thread.doing.empty() ? thread.doing : thread.wait_channel;
  const std::string text = thread.state == 'D' ? "waits, and can't be interrupted" : "waits";
  return what.empty() ? text : text + ": " + what;
}

}  // namespace strata::diag
