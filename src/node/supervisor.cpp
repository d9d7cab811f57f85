// The supervisor's loop: what can happen, and how it becomes events of the table. What the table
// asks for is in supervisor_actions.cpp.

#include "node/supervisor.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <utility>

#include "base/fault_point.hpp"
#include "node/child.hpp"
#include "node/json_fields.hpp"
#include "node/protocol.hpp"
#include "node/this_program.hpp"
#include "node/worker_process.hpp"
#include "os/procfs.hpp"
#include "strata/chip_error.hpp"
#include "strata/error.hpp"
#include "trace/crash_handler.hpp"
#include "trace/recorder.hpp"
#include "trace/state_board.hpp"

namespace strata::node {

namespace {

using namespace std::chrono_literals;

/// A process of the user's executable must run the code that this one runs.
void check_build(const std::string& theirs) {
  const std::string& ours = own_build_id();
  if (theirs != ours) {
    throw InvalidArgument("its executable has build id " + theirs + ", this one " + ours +
                          ": the file was replaced");
  }
}

/// What the kernel says of a process that does not answer, for the end of a message.
std::string state_text(const Child& child) {
  const auto info = os::read_process(child.of_process.process.pid());
  if (!info) return "";
  const std::string state = std::string(" (process state ") + info->state;
  switch (info->state) {
    case 'T':
      return state + ": it was stopped, by SIGSTOP or a like signal)";
    case 't':
      return state + ": a debugger has stopped it)";
    case 'D':
      return state + ": it waits in the kernel)";
    default:
      return state + ")";
  }
}

}  // namespace

Supervisor::Supervisor(SupervisorOptions options, SupervisorClient& client)
    : options_(std::move(options)), client_(client) {
  for (std::size_t i = 0; i < options_.children.size(); ++i) {
    children_.push_back(std::make_unique<Child>(i, options_.children[i]));
    status_.push_back({.path = options_.children[i].path,
                       .role = options_.children[i].role,
                       .state = std::string(name_of(ChildState::absent))});
  }
  epoll_.add(wake_.fd(), EPOLLIN, static_cast<std::uint64_t>(Source::wake));
  epoll_.add(completion_event_.fd(), EPOLLIN, static_cast<std::uint64_t>(Source::completions));
  // In a worker process the service thread answers.
  if (const int requests = trace::StateBoard::of_process().request_fd();
      requests >= 0 && !is_worker_process()) {
    epoll_.add(requests, EPOLLIN, static_cast<std::uint64_t>(Source::report));
  }
  thread_ = std::thread([this] { main(); });
}

Supervisor::~Supervisor() {
  post([this] { quit_ = true; });
  thread_.join();
}

// ---- Commands -----------------------------------------------------------------------------------

void Supervisor::post(std::function<void()> command) {
  {
    const std::lock_guard lock(mutex_);
    commands_.push_back(std::move(command));
  }
  wake_.signal();
}

void Supervisor::timers_changed() noexcept { wake_.signal(); }

void Supervisor::start(StartPlan plan) {
  post([this, plan = std::move(plan)]() mutable {
    plan_ = std::move(plan);
    phase_ = Phase::starting;
    hurry_.reset();
    first_fault_.reset();
    problems_.clear();
    for (auto& child : children_) {
      child->failed_starts = 0;
      child->replace = false;
      child->start_deadline = plan_.deadline;
      apply(*child, ChildEvent::start);
      if (phase_ != Phase::starting) break;  // It failed already, and is being rolled back.
    }
    check_all_gone();
  });
}

void Supervisor::stop(std::chrono::milliseconds limit) {
  post([this, limit] {
    if (phase_ == Phase::closed) {
      client_.stopped({});
      return;
    }
    phase_ = Phase::stopping;
    begin_stop(std::min(limit, hurry_.value_or(limit)));
    check_all_gone();
  });
}

void Supervisor::hasten(std::chrono::milliseconds limit) {
  post([this, limit] {
    if (phase_ == Phase::stopping) {
      begin_stop(limit);
    } else {
      hurry_ = std::min(limit, hurry_.value_or(limit));
    }
  });
}

void Supervisor::replace(std::size_t child, std::string reason) {
  post([this, child, reason = std::move(reason)] {
    if (phase_ != Phase::running) return;
    Child& target = *children_[child];
    target.replace = true;
    target.failed_starts = 0;
    if (!has_process(target.state)) {
      target.start_deadline = os::Deadline::after(options_.start_time_limit);
      apply(target, ChildEvent::start);
      return;
    }
    if (target.reason.empty()) target.reason = reason;
    apply(target, ChildEvent::end);
  });
}

void Supervisor::broadcast(Letter letter) {
  post([this, letter = std::move(letter)] {
    for (auto& child : children_) {
      if (has_process(child->state) && child->control_open) send(*child, letter);
    }
  });
}

void Supervisor::registrations_changed() {
  if (registrations_posted_.exchange(true, std::memory_order_seq_cst)) return;
  post([this] {
    registrations_posted_.store(false, std::memory_order_seq_cst);
    for (auto& child : children_) {
      if (has_process(child->state) && child->control_open) register_more(*child);
    }
  });
}

std::vector<ProcessStatus> Supervisor::processes() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

// ---- The loop -----------------------------------------------------------------------------------

void Supervisor::main() {
  std::optional<trace::AlternateStack> stack;
  try {
    stack.emplace();
  } catch (const std::exception& error) {
    log_error("making a stack for signal handlers, does without", error.what());
  }
  while (!quit_)
    turn();
}

void Supervisor::turn() {
  std::array<epoll_event, 64> room{};
  const auto events = epoll_.wait(room, next_timer());
  // What a process has said comes before its end.
  for (const bool ends : {false, true}) {
    for (const epoll_event& event : events) {
      if ((static_cast<Source>(event.data.u64 & 0xff) == Source::process) != ends) continue;
      try {
        handle(event);
      } catch (const std::exception& error) {
        log_error("handling an event", error.what());
      }
    }
  }
  run_commands();
  try {
    check_timers();
  } catch (const std::exception& error) {
    log_error("looking at timers", error.what());
  }
}

/// What goes wrong here must not end the user's program.
void Supervisor::log_error(const char* doing, const std::string& what) {
  log(LogLevel::error, options_.path, std::string("the supervisor, ") + doing + ": " + what);
}

void Supervisor::run_commands() {
  std::vector<std::function<void()>> commands;
  {
    const std::lock_guard lock(mutex_);
    commands.swap(commands_);
  }
  for (const auto& command : commands) {
    try {
      command();
    } catch (const std::exception& error) {
      log_error("doing as asked", error.what());
    }
  }
}

void Supervisor::handle(const epoll_event& event) {
  const auto source = static_cast<Source>(event.data.u64 & 0xff);
  if (source == Source::wake) {
    wake_.drain();
    return;
  }
  if (source == Source::completions) {
    completion_event_.drain();
    client_.completions();
    return;
  }
  if (source == Source::report) {
    trace::StateBoard::of_process().answer();
    return;
  }
  Child& child = *children_[(event.data.u64 >> 8U) & 0xffffffff];
  if (child.tag(source) != event.data.u64 || !has_process(child.state)) return;
  switch (source) {
    case Source::process: {
      const int pidfd = child.of_process.process.pidfd();
      // Readable, yet not to be had: looked at again soon, without spinning on the descriptor.
      if (!read_exit(child)) epoll_.remove(pidfd);
      break;
    }
    case Source::control:
      if ((event.events & EPOLLOUT) != 0) {
        (void)child.of_process.control->flush();
        if (!child.of_process.control->wants_write()) {
          epoll_.modify(child.of_process.control->fd(), EPOLLIN, child.tag(Source::control));
          register_more(child);
        }
      }
      if ((event.events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0) read_control(child);
      break;
    case Source::log:
      (void)child.of_process.log->read_some();
      break;
    case Source::wake:
    case Source::completions:
    case Source::report:
      break;
  }
}

void Supervisor::read_control(Child& child) {
  const unsigned incarnation = child.incarnation;
  // A bounded number at a time, so that one that talks much keeps nobody waiting; all of it once
  // the process has ended and will say no more.
  const bool has_ended = child.of_process.process.status().has_value();
  for (int i = 0; (i < 256 || has_ended) && child.control_open && has_process(child.state); ++i) {
    auto received = child.of_process.control->receive();
    if (std::holds_alternative<ipc::ControlChannel::Nothing>(received)) return;
    if (auto* message = std::get_if<ipc::Message>(&received)) {
      hear(child, *message);
      if (child.incarnation != incarnation) return;
      continue;
    }
    epoll_.remove(child.of_process.control->fd());
    child.control_open = false;
    if (auto* broken = std::get_if<ipc::ControlChannel::Broken>(&received)) {
      if (child.reason.empty()) child.reason = "sent what is no message: " + broken->reason;
      apply(child, ChildEvent::broken);
    } else {
      // A process that dies closes its descriptors before it can be waited for, and how it died is
      // the better story.
      child.hung_up = os::Deadline::after(100ms);
    }
  }
}

/// One message of a process.
void Supervisor::hear(Child& child, ipc::Message& message) {
  try {
    const nlohmann::json& body = message.body();
    const std::string type = body.at("type").get<std::string>();
    trace::record(trace::EventKind::message, child.index, type.size());
    if (type == "hello") {
      if (body.at("protocol").get<int>() != kProtocol) {
        throw InvalidArgument("it speaks protocol " + body.at("protocol").dump() +
                              ", this program " + std::to_string(kProtocol) +
                              ": its Strata is of another version");
      }
      apply(child, ChildEvent::hello);
    } else if (type == "step") {
      child.step = JsonFields(body, "the message").text("text");
      apply(child, ChildEvent::step);
    } else if (type == "ready") {
      if (child.spec.program == WorkerProgram::this_program) {
        check_build(body.at("build_id").get<std::string>());
      }
      apply(child, ChildEvent::ready);
    } else if (type == "failed") {
      if (!child.own_words) child.own_words = fault_from(body.at("fault"));
      apply(child, ChildEvent::failed);
    } else if (!is_ending(child.state) || type == "task_failed" || type == "task_value") {
      client_.child_message(child.index, message);
    }
  } catch (const std::exception& error) {
    if (child.reason.empty()) {
      child.reason = std::string("sent a message that makes no sense: ") + error.what();
    }
    apply(child, ChildEvent::broken);
  }
}

/// Sees to a process that has ended. False if it has not, or the kernel does not give it back.
bool Supervisor::read_exit(Child& child) {
  // What is left of its process group goes too, while the number is still its own.
  if (!child.of_process.group) ::kill(-child.of_process.process.pid(), SIGKILL);
  if (base::fault_error("supervisor.wait") != 0 || !child.of_process.process.try_wait()) {
    child.wait_again = os::Deadline::after(20ms);
    return false;
  }
  child.wait_again = os::Deadline::never();
  if (child.control_open) read_control(child);
  // Reading may have been what ended it: then it is still ours to bury.
  if (has_process(child.state)) apply(child, ChildEvent::exited);
  return true;
}

os::Deadline Supervisor::next_timer() const {
  os::Deadline next;
  for (const auto& child : children_)
    next = os::earlier(os::earlier(next, child->hung_up),
                       os::earlier(child->timer, child->wait_again));
  return next;
}

void Supervisor::check_timers() {
  for (auto& each : children_) {
    Child& child = *each;
    if (child.wait_again.passed()) (void)read_exit(child);
    if (child.hung_up.passed()) {
      child.hung_up = os::Deadline::never();
      apply(child, ChildEvent::disconnected);
    }
    if (child.state == ChildState::absent && child.timer.passed()) {
      child.timer = os::Deadline::never();
      if (phase_ != Phase::running) continue;
      child.start_deadline = os::Deadline::after(options_.start_time_limit);
      apply(child, ChildEvent::start);
    } else if (child.state == ChildState::ready) {
      std::optional<std::string> end;
      child.timer = client_.look_at_limits(child.index, end);
      if (end) {
        if (child.reason.empty()) {
          child.reason = *end + state_text(child);
          if (child.is_chip()) child.code = name_of(ErrorCode::chip_not_answering);
        }
        child.replace = true;
        apply(child, ChildEvent::end);
      }
    } else if (child.timer.passed()) {
      child.timer = os::Deadline::never();
      apply(child, ChildEvent::timeout);
    }
  }
}

// ---- The table ----------------------------------------------------------------------------------

void Supervisor::apply(Child& child, ChildEvent event) {
  const ChildState from = child.state;
  const ChildTransition to = transition(from, event);
  [[maybe_unused]] const auto point = [&](std::string_view side) {
    if constexpr (base::kFaultPoints) {
      base::fault_point("supervisor." + std::string(name_of(from)) + "." +
                        std::string(name_of(event)) + "." + std::string(side));
    }
  };
  point("before");
  trace::record(trace::EventKind::state_transition, static_cast<std::uint64_t>(from),
                static_cast<std::uint64_t>(to.next), static_cast<std::uint32_t>(child.index));
  if (to.action == ChildAction::blame) blame(child, event, from);
  child.state = to.next;
  if (to.next != from) set_timer(child);
  act(child, to.action, from);
  publish(child);
  point("after");
}

void Supervisor::set_timer(Child& child) {
  switch (child.state) {
    case ChildState::spawned:
    case ChildState::connected:
    case ChildState::initialising:
      // The one who is late shall be the one who is named: those above wait a little longer.
      child.timer = child.start_deadline.is_never()
                        ? os::Deadline::never()
                        : os::Deadline::from_monotonic_ns(child.start_deadline.monotonic_ns() +
                                                          100'000'000LL * child.spec.height);
      return;
    case ChildState::asked:
      child.timer = stop_plan_.ask;
      return;
    case ChildState::terminating:
      child.timer = stop_plan_.term;
      return;
    case ChildState::killing:
      child.timer = os::Deadline::after(500ms);
      return;
    case ChildState::absent:
    case ChildState::ready:
    case ChildState::abandoned:
      child.timer = os::Deadline::never();
      return;
  }
}

void Supervisor::begin_stop(std::chrono::milliseconds limit) {
  // Most of the time is for the asking; insisting gets a quarter.
  const os::Deadline term = os::Deadline::after(limit);
  const os::Deadline ask = os::Deadline::after(limit * 3 / 4);
  if (stop_plan_.term.is_never() || limit < stop_plan_.limit) stop_plan_.limit = limit;
  stop_plan_.term = os::earlier(stop_plan_.term, term);
  stop_plan_.ask = os::earlier(stop_plan_.ask, ask);
  for (auto& child : children_) {
    child->replace = false;
    apply(*child, ChildEvent::stop);
    if (is_ending(child->state) && child->state != ChildState::killing) set_timer(*child);
  }
}

void Supervisor::publish(const Child& child) {
  const std::lock_guard lock(mutex_);
  ProcessStatus& status = status_[child.index];
  status.state = std::string(name_of(child.state));
  status.pid = has_process(child.state) && child.of_process.process
                   ? static_cast<int>(child.of_process.process.pid())
                   : 0;
  status.incarnation = child.incarnation;
  status.step = child.step;
}

}  // namespace strata::node
