// SupervisorRig: a real supervisor with processes that follow scripts
// (tests/programs/scripted_driver.cpp), and a client that checks what every client may rely on.
//
// Invariants of node/supervisor.hpp that it checks in every test: (2) and (3).
//
// Thread safety: the public members are for the test's thread, where they don't say otherwise.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/fault_point.hpp"
#include "ipc/control_channel.hpp"
#include "ipc/spinner_budget.hpp"
#include "node/supervisor.hpp"
#include "os/spawn.hpp"
#include "strata/error.hpp"
#include "support/guard.hpp"

namespace strata::node {

/// A limit that is never reached.
inline constexpr std::chrono::milliseconds kLong = std::chrono::minutes(10);
/// The script of a process that does all as it should.
inline const std::string kGood = "say hello say step say ready wait_stop exit 0";

/// One cell of the table.
using Cell = std::pair<ChildState, ChildEvent>;

inline std::string text_of(const Cell& cell) {
  return std::string(name_of(cell.first)) + "." + std::string(name_of(cell.second));
}

/// How often it was executed since the last base::set_faults(); 0 in builds without fault points.
inline std::uint64_t hits(const Cell& cell) {
  return base::fault_point_hits("supervisor." + text_of(cell) + ".before");
}

/// A supervisor of places "p0", "p1", ..., and all that its client hears. Processes take the
/// scripts in the order in which they are made.
class SupervisorRig final : public SupervisorClient {
 public:
  struct Options {
    std::size_t places = 1;
    bool replace = false;
    std::deque<std::string> scripts = {};
    /// Called in the supervisor's thread.
    std::function<void(SupervisorRig&)> on_up = {};
    std::function<void(SupervisorRig&)> on_message = {};
  };

  explicit SupervisorRig(Options options) : options_(std::move(options)) {
    for (std::size_t i = 0; i < options_.places; ++i)
      specs_.push_back({.path = "p" + std::to_string(i), .role = "sub worker"});
    is_up_.resize(options_.places);
    supervisor_ =
        std::make_unique<Supervisor>(SupervisorOptions{.children = specs_,
                                                       .replace_dead_workers = options_.replace,
                                                       .tree_page = tree_page_.get(),
                                                       .budget = &budget_},
                                     *this);
  }
  ~SupervisorRig() override {
    // A test that failed may have left it running.
    if (starts_ != stopped_count() + failed_count() && !stop_asked_)
      stop(std::chrono::milliseconds(100));
    wait_ends(starts_);
    supervisor_.reset();
  }
  SupervisorRig(const SupervisorRig&) = delete;
  SupervisorRig& operator=(const SupervisorRig&) = delete;

  // --- Commands ---
  void start(os::Deadline deadline = os::Deadline::never()) {
    ++starts_;
    stop_asked_ = false;
    supervisor_->start({.deadline = deadline,
                        .limit = kLong,
                        .environment = os::current_environment(),
                        .worker_program = program_,
                        .worker_program_path = "scripted_driver"});
  }
  void stop(std::chrono::milliseconds limit = kLong) {
    stop_asked_ = true;
    supervisor_->stop(limit);
  }
  void script(std::string text) {
    const std::lock_guard lock(mutex_);
    options_.scripts.push_back(std::move(text));
  }
  /// Other than the scripted program.
  void use_program(int file) { program_ = file; }
  void end_at_next_look(std::string why) {
    const std::lock_guard lock(mutex_);
    end_ = std::move(why);
  }
  [[nodiscard]] Supervisor& supervisor() { return *supervisor_; }
  void go() const { go_.signal(); }

  // --- Waiting ---
  void wait_started() {
    wait([&] { return started_ == 1; });
  }
  /// Closed, for the given number of times.
  void wait_ends(int number) {
    wait([&] { return stopped_ + failed_ == number; });
  }
  void wait_downs(int number) {
    wait([&] { return downs_ == number; });
  }
  void wait_ups(int number) {
    wait([&] { return ups_ == number; });
  }
  void wait_state(std::size_t place, ChildState state, unsigned incarnation = 1) {
    for (;;) {
      const ProcessStatus status = supervisor_->processes().at(place);
      if (status.state == name_of(state) && status.incarnation == incarnation) return;
      std::this_thread::sleep_for(kPause);
    }
  }
  /// Until a cell was executed. Nothing where that is not known.
  static void wait_cell(ChildState state, ChildEvent event) {
    while (base::kFaultPoints && hits({state, event}) == 0)
      std::this_thread::sleep_for(kPause);
  }
  /// Until a script has come to `mark`.
  void wait_mark() const {
    while (!mark_.drain())
      std::this_thread::sleep_for(kPause);
  }

  // --- What was heard ---
  [[nodiscard]] int started_count() const { return read(started_); }
  [[nodiscard]] int stopped_count() const { return read(stopped_); }
  [[nodiscard]] int failed_count() const { return read(failed_); }
  [[nodiscard]] int ups() const { return read(ups_); }
  [[nodiscard]] int downs() const { return read(downs_); }
  [[nodiscard]] int lost() const { return read(lost_); }
  [[nodiscard]] std::vector<WorkerFault> causes() {
    const std::lock_guard lock(mutex_);
    return causes_;
  }
  [[nodiscard]] std::vector<WorkerFault> problems() {
    const std::lock_guard lock(mutex_);
    return problems_;
  }

  // --- SupervisorClient ---
  void started() override {
    tell([&] {
      EXPECT_EQ(answers_, 0) << "a start has one answer";
      ++answers_;
      ++started_;
    });
  }
  void start_failed(const WorkerFault& first) override {
    tell([&] {
      EXPECT_EQ(answers_, 0) << "a start has one answer";
      expect_all_gone();
      answers_ = 0;
      ++failed_;
      problems_ = {first};
    });
  }
  void stopped(const std::vector<WorkerFault>& problems) override {
    tell([&] {
      EXPECT_TRUE(stop_asked_);
      expect_all_gone();
      answers_ = 0;
      ++stopped_;
      problems_ = problems;
    });
  }
  std::vector<Letter> greetings() override {
    const std::lock_guard lock(mutex_);
    ++made_;
    std::string text = "pause";
    if (!options_.scripts.empty()) {
      text = options_.scripts.front();
      options_.scripts.pop_front();
    }
    return {{.body = {{"type", "script"}, {"text", text}}, .descriptors = {mark_.fd(), go_.fd()}}};
  }
  void child_up(std::size_t child, std::shared_ptr<ipc::MailboxParent> mailbox) override {
    tell([&] {
      EXPECT_NE(mailbox, nullptr);
      EXPECT_FALSE(is_up_.at(child)) << "up twice";
      is_up_[child] = true;
      ++ups_;
    });
    if (options_.on_up) options_.on_up(*this);
  }
  void child_down(std::size_t child, const WorkerFault& cause, bool lost) override {
    tell([&] {
      is_up_.at(child) = false;
      ++downs_;
      lost_ += static_cast<int>(lost);
      causes_.push_back(cause);
    });
  }
  void child_message(std::size_t /*child*/, ipc::Message& message) override {
    if (message.body().at("type") != "task_failed") throw InvalidArgument("unknown");
    if (options_.on_message) options_.on_message(*this);
  }
  void completions() override {}
  os::Deadline look_at_limits(std::size_t /*child*/, std::optional<std::string>& end) override {
    const std::lock_guard lock(mutex_);
    end = std::exchange(end_, std::nullopt);
    return os::Deadline::never();
  }
  std::string task_in_hand(std::size_t /*child*/) override { return {}; }

 private:
  static constexpr std::chrono::milliseconds kPause{1};

  void wait(const std::function<bool()>& until) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, until);
  }
  [[nodiscard]] int read(const int& count) const {
    const std::lock_guard lock(mutex_);
    return count;
  }
  template <typename Change>
  void tell(Change change) {
    {
      const std::lock_guard lock(mutex_);
      change();
    }
    changed_.notify_all();
  }
  void expect_all_gone() {
    for (const ProcessStatus& status : supervisor_->processes())
      EXPECT_EQ(status.pid, 0) << status.path << " is " << status.state;
    EXPECT_GE(downs_, made_) << "one child_down for each process";
    EXPECT_EQ(std::count(is_up_.begin(), is_up_.end(), true), 0);
  }

  test::Guard guard_{"a supervisor's life"};
  Options options_;
  std::vector<ChildSpec> specs_;
  os::UniqueFd program_file_{::open(STRATA_TEST_PROGRAMS "/scripted_driver", O_PATH | O_CLOEXEC)};
  int program_ = program_file_.get();
  os::UniqueFd tree_page_ = ipc::SpinnerBudget::make(0);
  ipc::SpinnerBudget budget_{tree_page_.get()};
  os::EventFd mark_ = os::EventFd::make();
  os::EventFd go_ = os::EventFd::make();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // --- Guarded by mutex_ ---
  int started_ = 0, stopped_ = 0, failed_ = 0, answers_ = 0;
  int ups_ = 0, downs_ = 0, lost_ = 0, made_ = 0;
  std::vector<bool> is_up_;
  std::vector<WorkerFault> causes_, problems_;
  std::optional<std::string> end_;

  int starts_ = 0;  ///< The test's thread.
  std::atomic<bool> stop_asked_{false};

  std::unique_ptr<Supervisor> supervisor_;  ///< Last: its thread uses all of the above.
};

}  // namespace strata::node
