#include "diag/tree_report.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

#include "diag/runtime_state.hpp"
#include "diag/verdict.hpp"
#include "os/deadline.hpp"
#include "os/procfs.hpp"
#include "strata/ids.hpp"
#include "trace/stack_board.hpp"
#include "trace/stack_request.hpp"
#include "trace/state_request.hpp"

namespace strata::diag {
namespace {

using std::chrono::nanoseconds;

nanoseconds from_ticks(std::uint64_t ticks) {
  const long per_second = std::max(1L, ::sysconf(_SC_CLK_TCK));
  return nanoseconds(static_cast<std::int64_t>(static_cast<double>(ticks) * 1e9 /
                                               static_cast<double>(per_second)));
}

nanoseconds since_boot() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return std::chrono::seconds(now.tv_sec) + nanoseconds(now.tv_nsec);
}

std::string time_of_day() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02}", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

struct Member {
  os::ProcessInfo info;
  int depth = 0;
};

/// The tree at one moment, as far as reading /proc file by file is one.
std::vector<Member> members_of(pid_t root, pid_t leave_out) {
  std::multimap<pid_t, os::ProcessInfo> by_parent;
  std::vector<Member> found;
  for (os::ProcessInfo& info : os::all_processes()) {
    if (info.pid == leave_out) continue;
    if (info.pid == root) {
      found.push_back({std::move(info), 0});
    } else {
      const pid_t parent = info.ppid;
      by_parent.emplace(parent, std::move(info));
    }
  }
  const auto add_below = [&](const auto& self, pid_t parent, int depth) -> void {
    const auto [first, last] = by_parent.equal_range(parent);
    std::vector<os::ProcessInfo> children;
    for (auto it = first; it != last; ++it)
      children.push_back(std::move(it->second));
    // What changed while we read need not be a tree: nobody is taken twice.
    by_parent.erase(first, last);
    std::ranges::sort(children, {}, &os::ProcessInfo::start_time);
    for (os::ProcessInfo& child : children) {
      const pid_t pid = child.pid;
      found.push_back({std::move(child), depth});
      self(self, pid, depth + 1);
    }
  };
  if (!found.empty()) add_below(add_below, root, 1);
  return found;
}

/// A process whose parent ended while we read hung below neither: two looks that agree missed none.
std::vector<Member> settled_members_of(pid_t root, pid_t leave_out) {
  const auto pids = [](const std::vector<Member>& members) {
    std::set<pid_t> all;
    for (const Member& member : members)
      all.insert(member.info.pid);
    return all;
  };
  std::vector<Member> members = members_of(root, leave_out);
  for (int tries = 0; tries < 5; ++tries) {
    std::vector<Member> again = members_of(root, leave_out);
    const bool same = pids(again) == pids(members);
    members = std::move(again);
    if (same) break;
  }
  return members;
}

/// What it can read from and write to, of pipes.
void find_pipes(ProcessReport& process) {
  for (const os::OpenDescriptor& open : os::open_descriptors(process.pid)) {
    if (!open.target.starts_with("pipe:[")) continue;
    const auto info =
        os::read_small_file(fmt::format("/proc/{}/fdinfo/{}", process.pid, open.fd)).value_or("");
    const std::size_t at = info.find("flags:");
    if (at == std::string::npos) continue;
    const unsigned long mode = std::strtoul(info.c_str() + at + 6, nullptr, 8) & O_ACCMODE;
    if (mode != O_WRONLY) process.reads_from.push_back(open.target);
    if (mode != O_RDONLY) process.writes_to.push_back(open.target);
  }
}

ProcessReport begin_report(const Member& member) {
  const os::ProcessInfo& info = member.info;
  ProcessReport process;
  process.pid = info.pid;
  process.ppid = info.ppid;
  process.depth = member.depth;
  process.state = info.state;
  process.name = info.comm;
  process.command_line = os::command_line(info.pid);
  process.age = std::max(nanoseconds(0), since_boot() - from_ticks(info.start_time));
  process.cpu_time = from_ticks(info.cpu_ticks);
  if (process.ended()) process.wait_status = info.exit_status;
  return process;
}

std::vector<trace::ThreadEvents> last_events(std::vector<trace::ThreadEvents> threads,
                                             std::size_t count) {
  std::vector<std::int64_t> times;
  for (const trace::ThreadEvents& thread : threads) {
    for (const trace::Event& event : thread.events)
      times.push_back(event.at.count());
  }
  std::ranges::sort(times, std::greater<>());
  const std::int64_t oldest = times.size() > count && count > 0 ? times[count - 1] : INT64_MIN;
  for (trace::ThreadEvents& thread : threads) {
    std::erase_if(thread.events, [&](const trace::Event& event) {
      return count == 0 || event.at.count() < oldest;
    });
  }
  std::erase_if(threads, [](const trace::ThreadEvents& thread) { return thread.events.empty(); });
  return threads;
}

StrataReport strata_report(const trace::ProcessRecordReader& reader, std::size_t events) {
  return {.card = reader.card(),
          .events = last_events(reader.events(), events),
          .crash = reader.crash(),
          .state = nullptr,
          .state_note = {},
          .task_arguments = {}};
}

/// What the processes of Strata say of themselves, and what those that are dead have left with
/// their parents.
void add_records(TreeReport& report, std::size_t events) {
  const auto is_told = [&](const trace::Card& card) {
    return std::ranges::any_of(report.dead, [&](const DeadReport& dead) {
      return dead.strata.card.pid == card.pid && dead.strata.card.started == card.started;
    });
  };
  for (const ProcessReport& holder : report.processes) {
    for (const auto& reader : trace::ProcessRecordReader::held_by(holder.pid)) {
      const trace::Card card = reader.card();
      // A process that was forked has the descriptors too.
      if (card.end) {
        if (!is_told(card)) report.dead.push_back({holder.pid, strata_report(reader, events)});
        continue;
      }
      const auto process = std::ranges::find(report.processes, card.pid, &ProcessReport::pid);
      if (process == report.processes.end() || process->strata) continue;
      // What is dead and was not waited for has no descriptors left: its parent has the record.
      if (process->pid == holder.pid || process->ended())
        process->strata = strata_report(reader, events);
    }
  }
  std::ranges::sort(report.dead, {}, [](const DeadReport& dead) { return dead.strata.card.ended; });
}

using Requests = std::map<pid_t, trace::StateRequest>;

Requests ask_all(const std::vector<Member>& members) {
  Requests requests;
  for (const Member& member : members) {
    if (auto request = trace::StateRequest::ask(member.info.pid))
      requests.emplace(member.info.pid, std::move(*request));
  }
  return requests;
}

/// What the runtimes are at, as far as they have said so by the deadline.
void add_states(std::vector<ProcessReport>& processes, const Requests& requests,
                os::Deadline deadline) {
  const auto wants = [&](const ProcessReport& process) {
    return process.strata && process.strata->state.is_null() && requests.contains(process.pid);
  };
  for (;;) {
    for (ProcessReport& process : processes) {
      if (!wants(process)) continue;
      const auto text = requests.at(process.pid).answer();
      // Whatever it wrote, we go on.
      if (text) process.strata->state = nlohmann::json::parse(*text, nullptr, false);
      if (process.strata->state.is_discarded() || process.strata->state.is_array()) {
        process.strata->state = nlohmann::json::object();
      }
    }
    const bool all = std::ranges::none_of(processes, [&](const ProcessReport& process) {
      return wants(process) && !process.stopped() && !process.ended();
    });
    if (all || deadline.passed()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (ProcessReport& process : processes) {
    if (!process.strata || !process.strata->state.is_null()) continue;
    if (process.ended()) continue;
    process.strata->state_note = process.stopped() ? "it is stopped, and can't say"
                                 : requests.contains(process.pid)
                                     ? "it was asked and has not answered"
                                     : "it can't be asked";
  }
}

using Looks = std::map<pid_t, std::map<pid_t, ThreadLook>>;

std::map<pid_t, ThreadLook> by_id(std::vector<ThreadLook> looks) {
  std::map<pid_t, ThreadLook> result;
  for (ThreadLook& look : looks) {
    const pid_t thread = look.thread;
    result.emplace(thread, std::move(look));
  }
  return result;
}

/// Lets the time between the looks pass. What was running at the first look, and is not at any
/// moment of it, no longer counts as running.
void wait_and_watch(Looks& looks, nanoseconds window, const std::function<void()>& half_way) {
  constexpr int kSteps = 8;
  for (int step = 0; step < kSteps; ++step) {
    if (step == kSteps / 2) half_way();
    std::this_thread::sleep_for(window / kSteps);
    for (auto& [pid, threads] : looks) {
      for (auto& [id, look] : threads) {
        if (look.state == 'R') look.state = state_of_thread(pid, id);
      }
    }
  }
}

/// What a Worker says of the tasks that it has sent belongs to the processes that run them.
void add_arguments(std::vector<ProcessReport>& processes) {
  for (const ProcessReport& parent : processes) {
    if (!parent.strata) continue;
    for (ChildState& child : runtime_state(parent.strata->state).children) {
      const auto process = std::ranges::find(processes, child.pid, &ProcessReport::pid);
      if (process == processes.end() || !process->strata || !process->strata->card.task) continue;
      const TaskId in_hand{process->strata->card.task->task};
      if (in_hand.number() != child.task) continue;  // It has gone on meanwhile.
      process->strata->task_arguments = std::move(child.arguments);
    }
  }
}

/// The second look, and what has changed since the first.
void add_threads(ProcessReport& process, const std::map<pid_t, ThreadLook>& before,
                 nanoseconds window) {
  for (ThreadLook& look : look_at_threads(process.pid)) {
    ThreadReport thread;
    thread.thread = look.thread;
    thread.name = std::move(look.name);
    thread.state = look.state;
    thread.wait_channel = std::move(look.wait_channel);
    thread.call = look.call;
    if (look.call) thread.doing = describe_call(process.pid, *look.call);
    thread.cpu_time = look.cpu_time;
    if (const auto first = before.find(look.thread); first != before.end() && window.count() > 0) {
      const nanoseconds wanted = look.wanted_time - first->second.wanted_time;
      thread.busy = std::clamp(
          static_cast<double>(wanted.count()) / static_cast<double>(window.count()), 0.0, 1.0);
      // The kernel counts the time in the queue only when it has ended.
      if (look.state == 'R' && first->second.state == 'R') thread.busy = 1;
      thread.ran =
          look.switches != first->second.switches || look.cpu_time != first->second.cpu_time;
    }
    process.busy += thread.busy;
    process.threads.push_back(std::move(thread));
  }
}

/// Whether one of the innermost frames is a function of that name, whatever the C library puts in
/// front of it.
bool is_in(const ThreadReport& thread, std::initializer_list<std::string_view> functions) {
  constexpr std::size_t kDepth = 5;
  for (std::size_t i = 0; i < std::min(kDepth, thread.stack.frames.size()); ++i) {
    std::string_view name = thread.stack.frames[i].function;
    for (const std::string_view prefix : {"_", "GI_"}) {
      while (name.starts_with(prefix))
        name.remove_prefix(prefix.size());
    }
    while (name.starts_with('_'))
      name.remove_prefix(1);
    name = name.substr(0, name.find('@'));
    if (std::ranges::find(functions, name) != functions.end()) return true;
  }
  return false;
}

/// Whom a thread that waits on a futex waits for, as far as the C library writes that down.
void find_owner(const ProcessReport& process, ThreadReport& thread) {
  if (!thread.call || thread.call->number != SYS_futex) return;
  if (is_in(thread, {"pthread_mutex_lock", "pthread_mutex_timedlock", "pthread_mutex_clocklock",
                     "lll_lock_wait", "lll_mutex_lock"})) {
    // pthread_mutex_t begins with the lock word; the owner's id is the third word.
    constexpr std::uint64_t kOwner = 8;
    thread.lock_owner =
        static_cast<pid_t>(read_word(process.pid, thread.call->arguments[0] + kOwner).value_or(0));
  } else if (is_in(thread, {"pthread_join", "pthread_clockjoin_ex", "pthread_timedjoin_np",
                            "pthread_timedjoin_ex"})) {
    // It waits for the word that holds the other thread's id to become zero.
    thread.joins = static_cast<pid_t>(thread.call->arguments[2]);
  }
}

/// Why a process that takes no requests takes none. The link is one that the kernel shows to those
/// who may look at what a process has open, and to nobody else.
std::string why_not_asked(pid_t pid) {
  char first = 0;
  const ssize_t got = ::readlink(fmt::format("/proc/{}/exe", pid).c_str(), &first, 1);
  if (got < 0 && (errno == EACCES || errno == EPERM)) {
    return "what it has open may not be looked at, so it can't be asked for its own stacks: that "
           "needs the same user, or root";
  }
  return "it is no worker process of Strata, which take their own stacks";
}

using OwnStacks = std::map<pid_t, trace::StackAnswer>;

/// What the processes have copied themselves, as far as they have done so by the deadline.
OwnStacks own_stacks(std::vector<ProcessReport>& processes, os::Deadline deadline) {
  OwnStacks own;
  std::map<pid_t, trace::StackRequest> asked;
  for (ProcessReport& process : processes) {
    if (process.ended() || process.pid == ::getpid()) continue;
    if (process.stopped()) {
      process.stacks_note = "it is stopped, and can't take its own stacks";
    } else if (auto request = trace::StackRequest::ask(process.pid)) {
      asked.emplace(process.pid, std::move(*request));
    } else {
      process.stacks_note = why_not_asked(process.pid);
    }
  }
  while (!asked.empty()) {
    std::erase_if(asked, [&](const auto& each) {
      auto answer = each.second.answer();
      if (!answer) return false;
      own.emplace(each.first, std::move(*answer));
      return true;
    });
    if (asked.empty() || deadline.passed()) break;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  for (ProcessReport& process : processes) {
    if (asked.contains(process.pid)) {
      process.stacks_note = "it was asked for its own stacks, and has not answered in time";
    } else if (const auto found = own.find(process.pid);
               found != own.end() && found->second.signal == 0) {
      process.stacks_note =
          fmt::format("the program uses signal {} itself, by which it would take its own stacks",
                      trace::stack_signal());
      own.erase(found);
    }
  }
  return own;
}

void add_stacks(ProcessReport& process, os::Deadline deadline, FrameNames& names,
                const OwnStacks& own, nanoseconds& copying) {
  if (process.ended() || process.pid == ::getpid()) return;
  const auto copies = own.find(process.pid);
  ProcessStacks stacks =
      stacks_of(process.pid, deadline, names, copies == own.end() ? nullptr : &copies->second);
  copying += stacks.copied_in;
  process.note = std::move(stacks.note);
  for (ThreadReport& thread : process.threads) {
    const auto found = stacks.threads.find(thread.thread);
    if (found == stacks.threads.end()) continue;
    thread.stack = std::move(found->second);
    find_owner(process, thread);
  }
  PythonStacks python = python_stacks_of(process.pid, deadline);
  process.is_python = python.is_python;
  process.python = std::move(python.text);
  process.python_note = std::move(python.note);
  auto frames = python_frames(process.python);
  for (ThreadReport& thread : process.threads) {
    const auto found = frames.find(thread.stack.thread_pointer);
    if (found != frames.end()) thread.python = std::move(found->second);
  }
}

/// All looks come before all stacks: what we do to a process is not what it does.
void add_all_stacks(TreeReport& report, const CollectOptions& options, os::Deadline deadline) {
  const std::int64_t begin = os::monotonic_now_ns();
  FrameNames names;
  OwnStacks own;
  if (options.stacks == StackTaker::process) {
    own = own_stacks(report.processes,
                     os::earlier(deadline, os::Deadline::after(options.stacks_limit)));
  }
  report.copying_took = nanoseconds(os::monotonic_now_ns() - begin);
  for (ProcessReport& process : report.processes)
    add_stacks(process, deadline, names, own, report.copying_took);
  report.stacks_took = nanoseconds(os::monotonic_now_ns() - begin);
}

}  // namespace

std::string ProcessReport::title() const {
  if (strata) return strata->card.path;
  std::string text;
  for (const std::string& word : command_line)
    text += (text.empty() ? "" : " ") + word;
  return text.empty() ? name : text;
}

TreeReport collect(pid_t root, const CollectOptions& options) {
  const nanoseconds begin(os::monotonic_now_ns());
  const os::Deadline deadline = os::Deadline::after(options.limit);
  TreeReport report;
  report.when = time_of_day();
  Looks first;
  const std::vector<Member> members = members_of(root, options.leave_out);
  for (const Member& member : members)
    first.emplace(member.info.pid, by_id(look_at_threads(member.info.pid)));
  const nanoseconds looked(os::monotonic_now_ns());
  // Half-way: what they say has lasted since the first look can't have just begun, and they have
  // the time to the second to say it.
  Requests requests;
  wait_and_watch(first, options.window, [&] { requests = ask_all(members); });
  for (const Member& member : settled_members_of(root, options.leave_out)) {
    ProcessReport process = begin_report(member);
    const nanoseconds now(os::monotonic_now_ns());
    report.window = std::max(report.window, now - looked);
    add_threads(process, first[process.pid], now - looked);
    find_pipes(process);
    report.processes.push_back(std::move(process));
  }
  add_records(report, options.events);
  add_states(report.processes, requests,
             os::earlier(deadline, os::Deadline::after(options.answer_limit)));
  add_arguments(report.processes);
  add_all_stacks(report, options, deadline);
  report.taken_at = begin;
  report.took = nanoseconds(os::monotonic_now_ns()) - begin;
  report.verdict = verdict_of(report);
  return report;
}

TreeReport collect_below(pid_t root, const CollectOptions& options) {
  TreeReport report = collect(root, options);
  std::erase_if(report.processes, [](const ProcessReport& process) { return process.depth == 0; });
  for (ProcessReport& process : report.processes)
    --process.depth;
  report.verdict = verdict_of(report);
  return report;
}

}  // namespace strata::diag
