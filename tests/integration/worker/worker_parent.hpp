// WorkerParent: plays the parent of one strata-worker process, message by message, so that tests
// can look at what the process does without a supervisor in between.
//
// Thread safety: one thread.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ipc/control_channel.hpp"
#include "ipc/lifeline.hpp"
#include "ipc/mailbox.hpp"
#include "ipc/spinner_budget.hpp"
#include "node/protocol.hpp"
#include "node/slab_store.hpp"
#include "node/worker_program.hpp"
#include "os/child_process.hpp"
#include "os/event_fd.hpp"
#include "os/spawn.hpp"
#include "trace/process_record.hpp"
#include "trace/process_record_reader.hpp"

namespace strata::test {

/// Longer than anything takes that does not hang.
inline constexpr std::chrono::seconds kGuard{60};

class WorkerParent {
 public:
  WorkerParent()
      : program(node::find_worker_program("")),
        record(trace::ProcessRecord::create({.path = "node/sub[0]", .role = "sub worker"})),
        completion(os::EventFd::make()) {
    os::UniqueFd mailbox_memory = ipc::make_mailbox();
    mailbox.emplace(mailbox_memory.get());
    auto [control_ours, control_theirs] = ipc::ControlChannel::make_pair();
    auto [lifeline_ours, lifeline_theirs] = ipc::make_lifeline();
    std::array<int, 2> log_ends{};
    EXPECT_EQ(pipe2(log_ends.data(), O_CLOEXEC), 0);
    log = os::UniqueFd(log_ends[0]);
    const os::UniqueFd log_theirs(log_ends[1]);
    const os::UniqueFd nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
    const os::UniqueFd tree = ipc::SpinnerBudget::make(0);
    control.emplace(std::move(control_ours));
    lifeline = std::move(lifeline_ours);
    os::SpawnOptions spawn;
    spawn.envp = os::current_environment();
    spawn.envp.push_back(std::string(node::kTokenVariable) + "=1");
    // A crash is the kernel's affair, not a sanitizer's; and no sanitizer delays the end.
    for (const char* name : {"ASAN_OPTIONS", "TSAN_OPTIONS"}) {
      const char* const before = getenv(name);
      std::erase_if(spawn.envp, [&](const auto& each) { return each.starts_with(name); });
      spawn.envp.push_back(std::string(name) +
                           "=handle_segv=0:atexit_sleep_ms=0:" + (before == nullptr ? "" : before));
    }
    spawn.program_fd = program.file.get();
    spawn.path = program.path;
    spawn.argv = {"strata-worker", "node/sub[0]"};
    spawn.descriptors = {{nothing.get(), 0},
                         {log_theirs.get(), 1},
                         {log_theirs.get(), 2},
                         {lifeline_theirs.get(), node::kLifelineFd},
                         {control_theirs.get(), node::kControlFd},
                         {record.fd(), node::kRecordFd},
                         {mailbox_memory.get(), node::kMailboxFd},
                         {completion.fd(), node::kCompletionFd},
                         {tree.get(), node::kTreeFd}};
    spawn.own_process_group = true;
    process = os::spawn(spawn);
  }
  ~WorkerParent() {
    if (process.try_wait()) return;
    process.send(SIGKILL);
    (void)process.wait(os::Deadline::after(kGuard));
  }
  WorkerParent(const WorkerParent&) = delete;
  WorkerParent& operator=(const WorkerParent&) = delete;

  void send(const nlohmann::json& body, const std::vector<int>& with = {}) {
    EXPECT_EQ(control->send(body, with), ipc::ControlChannel::SendResult::sent);
  }
  /// The next message of that type; those of type "step" are skipped. Null if there is none.
  nlohmann::json expect(const std::string& type) {
    const os::Deadline deadline = os::Deadline::after(kGuard);
    for (;;) {
      auto received = control->receive_until(deadline);
      auto* const message = std::get_if<ipc::Message>(&received);
      if (message == nullptr) {
        ADD_FAILURE() << "no message of type " << type << "; log: " << read_log();
        return nullptr;
      }
      descriptors = std::move(message->descriptors());
      if (message->body()["type"] == type) return message->body();
      if (message->body()["type"] == "step") continue;
      ADD_FAILURE() << message->body().dump() << " where " << type << " is expected";
      return nullptr;
    }
  }
  void configure(nlohmann::json more = nlohmann::json::object()) {
    nlohmann::json body = {{"type", "configure"},
                           {"path", "node/sub[0]"},
                           {"role", "sub worker"},
                           {"log_level", "info"},
                           {"deadline", os::Deadline::after(kGuard).monotonic_ns()},
                           {"setup", nullptr}};
    body.update(more);
    send(body);
  }
  /// As far as ready.
  void start(nlohmann::json more = nlohmann::json::object()) {
    expect("hello");
    configure(std::move(more));
    expect("ready");
  }
  void add(std::uint32_t id, const std::string& symbol) {
    nlohmann::json callable = node::to_json(node_tasks(symbol));
    callable["id"] = id;
    send({{"type", "register"}, {"callables", {callable}}});
    EXPECT_EQ(expect("registered")["ids"], nlohmann::json({id}));
  }
  static Callable node_tasks(const std::string& symbol) {
    return Callable::in_library(std::string(STRATA_TEST_LIBRARIES) + "/libstrata_test_tasks.so",
                                symbol);
  }
  void push(const ipc::Submission& submission) {
    EXPECT_EQ(mailbox->push(submission).result, ipc::MailboxParent::PushResult::pushed);
  }
  ipc::CompletionFrame pop() {
    const os::Deadline deadline = os::Deadline::after(kGuard);
    for (bool over = false; !over;) {
      over = process.try_wait() || deadline.passed();  // Before the look: it may be the last one.
      const auto popped = mailbox->pop();
      if (popped.result == ipc::MailboxParent::PopResult::completion) return popped.frame;
      std::this_thread::yield();
    }
    ADD_FAILURE() << "no completion; log: " << read_log();
    return {};
  }
  std::string read_log() {
    EXPECT_EQ(fcntl(log.get(), F_SETFL, O_NONBLOCK), 0);
    std::string text;
    std::array<char, 4096> part{};
    for (ssize_t n; (n = read(log.get(), part.data(), part.size())) > 0;) {
      text.append(part.data(), static_cast<std::size_t>(n));
    }
    return text;
  }
  std::optional<os::ExitStatus> wait() { return process.wait(os::Deadline::after(kGuard)); }
  ipc::LifelineMessage ask() {
    EXPECT_TRUE(ipc::send_query(lifeline.get(), 7));
    ipc::wait_lifeline(lifeline.get());
    return ipc::receive_lifeline(lifeline.get());
  }
  void wait_for_task() {
    const os::Deadline deadline = os::Deadline::after(kGuard);
    while (!trace::ProcessRecordReader(record).card().task && !deadline.passed()) {
      std::this_thread::yield();
    }
    EXPECT_FALSE(deadline.passed()) << "no task has begun";
  }

  node::OpenProgram program;
  trace::ProcessRecord record;
  os::EventFd completion;
  std::optional<ipc::MailboxParent> mailbox;
  std::optional<ipc::ControlChannel> control;
  os::UniqueFd lifeline;
  os::UniqueFd log;
  os::ChildProcess process;
  std::vector<os::UniqueFd> descriptors;  ///< Of the last message.
};

}  // namespace strata::test
