// What the table of child_machine.hpp asks for: making processes, asking them to stop, killing and
// burying them.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "base/duration_text.hpp"
#include "base/fault_point.hpp"
#include "ipc/lifeline.hpp"
#include "ipc/spinner_budget.hpp"
#include "node/child.hpp"
#include "node/janitor.hpp"
#include "node/protocol.hpp"
#include "node/reaper.hpp"
#include "node/supervisor.hpp"
#include "node/this_program.hpp"
#include "os/procfs.hpp"
#include "os/spawn.hpp"
#include "os/system_error.hpp"
#include "strata/chip_error.hpp"
#include "strata/error.hpp"
#include "trace/process_record_reader.hpp"
#include "trace/recorder.hpp"
#include "trace/symboliser.hpp"

namespace strata::node {

namespace {

using namespace std::chrono_literals;

/// Of the flight recorder, in each error of a worker that died.
constexpr std::size_t kLastEvents = 8;
/// Of dead processes, for `strata dump`; each is a descriptor and less than a MiB.
constexpr std::size_t kKeptRecords = 16;

/// "killed by signal 11 (segmentation fault) while running task 5: at address 0x0": the task put in
/// behind the signal, if there are both; behind the status of one that has exited.
std::string killed_text(std::string text, const std::string& task) {
  if (task.empty()) return text;
  const bool killed = text.starts_with("killed by signal");
  if (!killed && !text.starts_with("exited")) return text;
  const std::size_t end = killed ? text.find(')') : std::string::npos;
  return text.insert(end == std::string::npos ? text.size() : end + 1, " while running " + task);
}

/// Puts the code where a reader and a program look for it.
void give_code(WorkerFault& fault, ErrorCode code) {
  if (code == ErrorCode::none) return;
  fault.code = std::string(name_of(code));
  fault.cause = "[" + fault.code + "] " + fault.cause;
}

/// A note begins with the code of such a crash in brackets.
void take_note(WorkerFault& fault, const std::string& note) {
  const std::size_t end = note.starts_with('[') ? note.find("] ") : std::string::npos;
  const ErrorCode code =
      end == std::string::npos ? ErrorCode::none : error_code(note.substr(1, end - 1));
  fault.note = code == ErrorCode::none ? note : note.substr(end + 2);
  give_code(fault, code);
}

/// What the death of a chip's process that left no word comes from.
std::string guess_of(const os::ExitStatus& status) {
  if (status.kind == os::ExitStatus::Kind::exited) {
    return ": a kernel, the orchestration, or a library of theirs has called _exit()";
  }
  if (status.kind != os::ExitStatus::Kind::signalled || status.value != SIGKILL) return "";
  return ", and not by Strata: by somebody, or by the system for want of memory (its log and"
         " `dmesg` would say so)";
}

std::pair<os::UniqueFd, os::UniqueFd> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) os::throw_errno("making a log pipe");
  return {os::UniqueFd(ends[0]), os::UniqueFd(ends[1])};
}

}  // namespace

void Supervisor::log(LogLevel level, const std::string& path, const std::string& text) {
  if (options_.log != nullptr) options_.log->message(level, path, text);
}

void Supervisor::act(Child& child, ChildAction action, ChildState from) {
  switch (action) {
    case ChildAction::ignore:
    case ChildAction::note:
      return;
    case ChildAction::spawn:
      spawn(child);
      return;
    case ChildAction::announce:
      announce(child);
      return;
    case ChildAction::fail_spawn:
      settle(child, fault_of(child, from), false);
      return;
    case ChildAction::ask:
      child.task_when_ended = client_.task_in_hand(child.index);
      // One that can't be asked is closing down already, or will hear the next, firmer word.
      (void)ipc::send_stop(child.of_process.lifeline.get(),
                           from == ChildState::ready ? ipc::StopKind::drain : ipc::StopKind::now);
      return;
    case ChildAction::insist:
      (void)ipc::send_stop(child.of_process.lifeline.get(), ipc::StopKind::now);
      (void)child.of_process.process.send(SIGTERM);
      return;
    case ChildAction::blame:
    case ChildAction::kill:
      if (!child.failed_in) child.failed_in = from;
      // Its end is looked for by the clock too, should its descriptor not be watched.
      child.wait_again = os::Deadline::after(20ms);
      (void)child.of_process.process.send(SIGKILL);
      return;
    case ChildAction::bury:
      bury(child, from);
      return;
    case ChildAction::abandon:
      abandon(child);
      return;
  }
}

// ---- Birth --------------------------------------------------------------------------------------

void Supervisor::spawn(Child& child) {
  ++child.incarnation;
  child.own_words.reset();
  child.reason.clear();
  child.code.clear();
  child.failed_in.reset();
  child.task_when_ended.clear();
  child.step = "start the program";
  child.hung_up = os::Deadline::never();
  child.replace = false;
  try {
    make_process(child);
    greet(child);
  } catch (const std::exception& error) {
    child.reason = std::string("could not be started: ") + error.what();
    if (child.of_process.process) {
      apply(child, ChildEvent::broken);
    } else {
      apply(child, ChildEvent::spawn_failed);
    }
  }
}

void Supervisor::make_process(Child& child) {
  child.of_process = ChildResources{};
  ChildResources& made = child.of_process;
  made.record.emplace(
      trace::ProcessRecord::create({.path = child.spec.path, .role = child.spec.role}));
  os::UniqueFd mailbox = ipc::make_mailbox();
  made.mailbox = std::make_shared<ipc::MailboxParent>(mailbox.get());
  auto [control, control_theirs] = ipc::ControlChannel::make_pair();
  auto [lifeline, lifeline_theirs] = ipc::make_lifeline();
  auto [log_pipe, log_theirs] = make_pipe();
  const os::UniqueFd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!nothing) os::throw_errno("opening /dev/null");
  made.control = std::make_unique<ipc::ControlChannel>(std::move(control));
  made.lifeline = std::move(lifeline);
  if (options_.log != nullptr) {
    made.log = std::make_unique<LogCollector>(std::move(log_pipe), child.spec.path, *options_.log);
  }
  made.group = os::Cgroup::create(kGroupPrefix);

  os::SpawnOptions spawn;
  spawn.envp = plan_.environment;
  spawn.envp.push_back(std::string(kTokenVariable) + "=1");
  if (child.spec.program == WorkerProgram::this_program) {
    const ThisProgram& program = *this_program();
    spawn.program_fd = program.file;
    spawn.path = program.path;
    spawn.argv = {program.argv0, child.spec.path};
  } else {
    spawn.program_fd = plan_.worker_program;
    spawn.path = plan_.worker_program_path;
    spawn.argv = {"strata-worker", child.spec.path};
  }
  spawn.descriptors = {{nothing.get(), STDIN_FILENO},      {log_theirs.get(), STDOUT_FILENO},
                       {log_theirs.get(), STDERR_FILENO},  {lifeline_theirs.get(), kLifelineFd},
                       {control_theirs.get(), kControlFd}, {made.record->fd(), kRecordFd},
                       {mailbox.get(), kMailboxFd},        {completion_event_.fd(), kCompletionFd},
                       {options_.tree_page, kTreeFd}};
  spawn.own_process_group = true;
  spawn.cgroup_fd = made.group ? made.group->fd() : -1;
  try {
    made.process = os::spawn(spawn);
  } catch (const SystemError&) {
    if (!made.group) throw;
    made.group.reset();  // It may be the group that it can't join; one does without.
    spawn.cgroup_fd = -1;
    made.process = os::spawn(spawn);
  }
  made.record->set_pid(made.process.pid());
  trace::record(trace::EventKind::spawn, static_cast<std::uint64_t>(made.process.pid()));

  epoll_.add(made.process.pidfd(), EPOLLIN, child.tag(Source::process));
  epoll_.add(made.control->fd(), EPOLLIN, child.tag(Source::control));
  child.control_open = true;
  if (made.log) epoll_.add(made.log->fd(), EPOLLIN, child.tag(Source::log));
}

/// Sends what a new process must know. It need not be up for that.
void Supervisor::greet(Child& child) {
  nlohmann::json configure = child.spec.configure;
  configure["type"] = "configure";
  configure["deadline"] = child.start_deadline.monotonic_ns();
  if (options_.log != nullptr) configure["log_level"] = name_of(options_.log->level());
  send(child, {.body = std::move(configure)});
  for (const Letter& letter : client_.greetings())
    send(child, letter);
  child.registered = 0;
  register_more(child);
}

/// Sends callables as long as the process takes them: however many there are, it is not flooded.
void Supervisor::register_more(Child& child) {
  while (has_process(child.state) && !child.of_process.control->wants_write()) {
    const auto next = client_.registrations(child.registered);
    if (!next) return;
    child.registered = next->known;
    send(child, next->letter);
  }
}

void Supervisor::send(Child& child, const Letter& letter) {
  using Result = ipc::ControlChannel::SendResult;
  const Result result = child.of_process.control->send(letter.body, letter.descriptors);
  switch (result) {
    case Result::sent:
    case Result::closed:  // Its end is on its way as an event.
      return;
    case Result::queued:
      epoll_.modify(child.of_process.control->fd(), EPOLLIN | EPOLLOUT, child.tag(Source::control));
      return;
    case Result::overflow:
    case Result::too_long:
    case Result::failed:
      break;
  }
  if (child.reason.empty()) {
    child.reason =
        "could not be sent the message '" + letter.body.at("type").get<std::string>() + "': ";
    child.reason += result == Result::overflow   ? "it does not read its control channel"
                    : result == Result::too_long ? "it is too long"
                                                 : "this process can make no descriptor for it";
  }
  apply(child, ChildEvent::broken);
}

void Supervisor::announce(Child& child) {
  child.failed_starts = 0;
  child.told_of_up = true;
  child.ready_since_ns = os::monotonic_now_ns();
  publish(child);  // Before anybody is told.
  log(LogLevel::debug, child.spec.path, "ready");
  client_.child_up(child.index, child.of_process.mailbox);
  if (phase_ != Phase::starting) return;
  const bool all = std::all_of(children_.begin(), children_.end(),
                               [](const auto& each) { return each->state == ChildState::ready; });
  if (!all) return;
  phase_ = Phase::running;
  client_.started();
}

// ---- Blame --------------------------------------------------------------------------------------

std::string Supervisor::late_text(const Child& child) const {
  const bool replaces = child.incarnation > 1 && phase_ == Phase::running;
  const std::chrono::milliseconds limit = replaces ? options_.start_time_limit : plan_.limit;
  // Further down in a tree the deadline comes from above.
  std::string text = limit.count() == 0
                         ? "was not ready by the deadline for the start of the whole tree"
                         : "was not ready within " + base::duration_text(limit);
  if (child.state == ChildState::spawned) {
    text += std::string(", and never came as far as its ") +
            (child.spec.program == WorkerProgram::this_program ? "ProcessScope" : "main()");
  }
  return text;
}

/// Writes down why a process is ended, if that is not known yet.
void Supervisor::blame(Child& child, ChildEvent event, ChildState state) {
  if (!child.failed_in) child.failed_in = state;
  if (!child.reason.empty() || child.own_words) return;
  switch (event) {
    case ChildEvent::timeout:
      child.reason = late_text(child);
      return;
    case ChildEvent::disconnected:
      child.reason = "closed its control channel";
      return;
    default:
      child.reason = "said '" + std::string(name_of(event)) + "' while it was " +
                     std::string(name_of(state)) + ", which makes no sense";
  }
}

WorkerFault Supervisor::fault_of(Child& child, ChildState from) {
  ChildResources& of_process = child.of_process;
  WorkerFault fault;
  if (child.own_words) fault = *child.own_words;
  const bool deeper = !fault.path.empty() && fault.path != child.spec.path;
  if (deeper) return fault;  // It tells of a process further down.
  fault.path = child.spec.path;
  fault.role = child.spec.role;
  fault.pid = of_process.process ? of_process.process.pid() : 0;
  fault.state = std::string(name_of(child.failed_in.value_or(from)));
  if (fault.step.empty()) fault.step = child.step;

  const auto status = of_process.process ? of_process.process.status() : std::nullopt;
  std::optional<trace::CrashReport> crash;
  if (of_process.record) {
    // With less to tell the process must be buried all the same.
    try {
      const trace::ProcessRecordReader reader(*of_process.record);
      crash = reader.crash();
      const trace::Card card = reader.card();
      if (!card.step.empty() && child.own_words == std::nullopt) fault.step = card.step;
      // Steps are told during the start; later ones are of libraries that are loaded beside tasks.
      if (!is_starting(child.failed_in.value_or(from))) fault.step.clear();
      const auto now = std::chrono::nanoseconds(os::monotonic_now_ns());
      for (const trace::Event& event : trace::latest(reader.events(), kLastEvents)) {
        fault.events.push_back(
            base::duration_text(
                std::chrono::duration_cast<std::chrono::microseconds>(now - event.at)) +
            " before: " + trace::describe(event));
      }
      if (card.task && fault.task.empty()) {
        fault.task = "task " + std::to_string(TaskId{card.task->task}.number());
        if (!card.task->name.empty()) fault.task += " '" + card.task->name + "'";
        fault.callable = card.task->callable;
      }
    } catch (const std::exception& error) {
      log(LogLevel::warning, child.spec.path,
          std::string("what it was doing can't be read: ") + error.what());
    }
  }
  if (crash) {
    fault.cause = killed_text(crash->headline(), fault.task);
    if (!crash->text.empty()) fault.cause += ": " + crash->text;
    take_note(fault, crash->note);
    std::size_t number = 0;
    for (const trace::StackFrame& frame : trace::symbolise(*crash))
      fault.stack.push_back(trace::to_text(frame, number++));
  } else if (fault.cause.empty()) {
    const bool ours = status && status->kind == os::ExitStatus::Kind::signalled &&
                      status->value == SIGKILL && !child.reason.empty();
    if (ours || !status) {
      fault.cause = child.reason;
    } else {
      fault.cause = killed_text(status->to_string(), fault.task);
      if (child.is_chip() && !fault.task.empty()) fault.cause += guess_of(*status);
      if (fault.state == name_of(ChildState::spawned) && status->clean()) {
        fault.cause += " before it was a worker: is a ProcessScope the first thing in main()?";
      }
    }
  }
  if (fault.code.empty() && child.is_chip()) {
    give_code(fault, code_of_death(child, from, crash.has_value()));
  }
  if (of_process.log) fault.log = of_process.log->tail();
  return fault;
}

/// The code of a chip's death that nothing else has given one.
ErrorCode Supervisor::code_of_death(const Child& child, ChildState from, bool crashed) {
  if (!child.code.empty()) return error_code(child.code);
  // While it starts the error is another; while it is ended, or was ended for a reason, there is
  // none.
  const bool by_itself = child.failed_in.value_or(from) == ChildState::ready &&
                         child.reason.empty() && !child.own_words;
  if (!by_itself) return ErrorCode::none;
  const auto status = child.of_process.process.status();
  const bool exited = status && status->kind == os::ExitStatus::Kind::exited;
  return exited && !crashed ? ErrorCode::chip_exited : ErrorCode::chip_died;
}

// ---- Death --------------------------------------------------------------------------------------

/// Nothing more is heard of the process, and its log is read to the end.
void Supervisor::stop_watching(Child& child) {
  ChildResources& of_process = child.of_process;
  epoll_.remove(of_process.process.pidfd());
  child.wait_again = os::Deadline::never();
  child.hung_up = os::Deadline::never();
  if (child.control_open) epoll_.remove(of_process.control->fd());
  child.control_open = false;
  if (of_process.log) {
    if (of_process.log->fd() >= 0) epoll_.remove(of_process.log->fd());
    of_process.log->finish();
  }
}

void Supervisor::bury(Child& child, ChildState from) {
  ChildResources& of_process = child.of_process;
  trace::record(trace::EventKind::death, static_cast<std::uint64_t>(of_process.process.pid()),
                static_cast<std::uint64_t>(of_process.process.status()->value));
  if (options_.budget != nullptr) {
    options_.budget->reclaim(of_process.process.pid());
    if (child.spec.height != 0) options_.budget->sweep();
  }
  // What its tasks have started and left goes with it.
  if (of_process.group) {
    (void)of_process.group->kill();
    old_groups_.push_back(std::move(*of_process.group));
    of_process.group.reset();
  }
  remove_groups();
  stop_watching(child);
  // It went as it was told to, unless it crashed, complained, or had to be forced in a task.
  const os::ExitStatus status = *of_process.process.status();
  const bool as_told =
      status.kind == os::ExitStatus::Kind::unknown || status.clean() ||
      (status.kind == os::ExitStatus::Kind::signalled &&
       (status.value == SIGTERM || status.value == SIGKILL) && child.task_when_ended.empty());
  // What was killed for another reason before the stop came has been told of already.
  const bool told = from == ChildState::killing && child.failed_in && !is_ending(*child.failed_in);
  const bool gone_well =
      told || (is_ending(from) && as_told && (!child.own_words || status.clean()));
  WorkerFault fault = fault_of(child, from);
  if (from == ChildState::killing && phase_ == Phase::stopping && !gone_well) {
    fault.task = child.task_when_ended;
    fault.cause =
        "did not stop within " + base::duration_text(stop_plan_.limit) + " and was killed";
  }
  keep_record(of_process);
  child.of_process = ChildResources{};
  settle(child, std::move(fault), gone_well);
}

void Supervisor::keep_record(ChildResources& of_process) {
  if (!of_process.record) return;
  of_process.record->set_end(*of_process.process.status());
  if (dead_.size() == kKeptRecords) dead_.erase(dead_.begin());
  dead_.push_back(std::move(*of_process.record));
}

void Supervisor::abandon(Child& child) {
  ChildResources& of_process = child.of_process;
  WorkerFault fault = fault_of(child, ChildState::killing);
  const auto info = os::read_process(of_process.process.pid());
  fault.cause = "got SIGKILL and the kernel has not given it back";
  if (info) fault.cause += std::string(" (process state ") + info->state;
  const std::string where = os::wait_channel(of_process.process.pid());
  if (!where.empty()) fault.cause += ", waits in " + where;
  if (info) fault.cause += ")";
  if (fault.task.empty()) fault.task = child.task_when_ended;
  stop_watching(child);
  hand_to_reaper(std::move(of_process));
  child.of_process = ChildResources{};
  settle(child, std::move(fault), false);
}

/// Removes the control groups of those buried, as far as what was in them has gone by now.
void Supervisor::remove_groups() {
  std::erase_if(old_groups_, [](os::Cgroup& group) { return group.remove(); });
}

/// A process is gone: tells whoever must know, and sees to what comes next.
void Supervisor::settle(Child& child, WorkerFault fault, bool gone_well) {
  publish(child);  // Before anybody hears of it.
  const bool had_been_ready = child.told_of_up;
  child.told_of_up = false;
  if (phase_ == Phase::running) {
    if (!had_been_ready) ++child.failed_starts;
    const bool again = (options_.replace_dead_workers || child.replace) && child.failed_starts < 3;
    log(again ? LogLevel::warning : LogLevel::error, child.spec.path,
        fault.to_string() +
            (again ? "\nanother process takes its place" : "\nno other process takes its place"));
    client_.child_down(child.index, fault, !again);
    if (!again) return;
    // One that keeps dying as soon as it is ready is started again more and more slowly.
    const bool quick =
        had_been_ready && os::monotonic_now_ns() - child.ready_since_ns < 1'000'000'000;
    child.quick_deaths = quick && !child.replace ? child.quick_deaths + 1 : 0;
    if (child.quick_deaths > 3) {
      child.timer = os::Deadline::after(
          std::min<std::chrono::milliseconds>(1000ms, 50ms * (1U << (child.quick_deaths - 3))));
      return;
    }
    child.start_deadline = os::Deadline::after(options_.start_time_limit);
    apply(child, ChildEvent::start);
    return;
  }
  if (phase_ == Phase::starting) {
    if (!first_fault_) first_fault_ = fault;
    client_.child_down(child.index, fault, false);
    phase_ = Phase::rolling_back;
    begin_stop(400ms);
  } else {
    client_.child_down(child.index, fault, false);
    if (phase_ == Phase::stopping && !gone_well) problems_.push_back(std::move(fault));
  }
  check_all_gone();
}

void Supervisor::check_all_gone() {
  if (phase_ != Phase::rolling_back && phase_ != Phase::stopping) return;
  const bool any = std::any_of(children_.begin(), children_.end(),
                               [](const auto& each) { return has_process(each->state); });
  if (any) return;
  // Those killed with their groups are gone in a moment; a closed Worker leaves no group.
  const os::Deadline patience = os::Deadline::after(50ms);
  for (remove_groups(); !old_groups_.empty() && !patience.passed(); remove_groups())
    std::this_thread::sleep_for(1ms);
  old_groups_.clear();
  dead_.clear();  // A closed Worker has no processes to be told of.
  const Phase was = std::exchange(phase_, Phase::closed);
  stop_plan_ = StopPlan{};
  if (was == Phase::rolling_back) {
    client_.start_failed(*first_fault_);
  } else {
    client_.stopped(std::exchange(problems_, {}));
  }
}

}  // namespace strata::node
