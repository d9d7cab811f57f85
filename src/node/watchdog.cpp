#include "node/watchdog.hpp"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/duration_text.hpp"
#include "diag/report_text.hpp"
#include "diag/tree_report.hpp"
#include "node/log_sink.hpp"
#include "os/procfs.hpp"
#include "os/unique_fd.hpp"
#include "strata/error.hpp"
#include "trace/state_request.hpp"

namespace strata::node {
namespace {

using namespace std::chrono_literals;

/// How long the processes below may take to say what they are at.
constexpr auto kAnswer = 100ms;

/// Of the Watchdog whose SIGQUIT is; -1: nobody's.
std::atomic<int> sigquit_wake{-1};
std::atomic<std::atomic<bool>*> sigquit_asked{nullptr};

void on_sigquit(int) {
  std::atomic<bool>* const asked = sigquit_asked.load(std::memory_order_acquire);
  const int wake = sigquit_wake.load(std::memory_order_acquire);
  if (asked == nullptr || wake < 0) return;
  asked->store(true, std::memory_order_relaxed);
  os::EventFd::signal(wake);
}

void append_to(const std::string& path, const std::string& text) {
  const os::UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  for (std::size_t done = 0; file && done < text.size();) {
    const ssize_t written = ::write(file.get(), text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    done += static_cast<std::size_t>(written);
  }
}

}  // namespace

Watchdog::Watchdog(WatchdogOptions options, Hooks hooks)
    : options_(std::move(options)),
      hooks_(std::move(hooks)),
      watches_(options_.no_progress.count() > 0 || options_.missed_deadlines) {
  if (options_.sigquit) take_sigquit();
}

Watchdog::~Watchdog() {
  if (before_) {
    ::sigaction(SIGQUIT, &*before_, nullptr);
    sigquit_wake.store(-1, std::memory_order_release);
    sigquit_asked.store(nullptr, std::memory_order_release);
  }
  stopping_.store(true, std::memory_order_release);
  wake_.signal();
  if (thread_.joinable()) thread_.join();
}

void Watchdog::take_sigquit() {
  std::atomic<bool>* nobody = nullptr;
  if (!sigquit_asked.compare_exchange_strong(nobody, &asked_, std::memory_order_acq_rel)) {
    throw InvalidState("WatchdogOptions::sigquit is set for " + hooks_.path +
                       ", but another Worker of this process has SIGQUIT already");
  }
  sigquit_wake.store(wake_.fd(), std::memory_order_release);
  struct sigaction action = {};
  action.sa_handler = on_sigquit;
  action.sa_flags = SA_RESTART;
  struct sigaction before = {};
  ::sigaction(SIGQUIT, &action, &before);
  before_ = before;
  std::call_once(started_, [this] { thread_ = std::thread([this] { main(); }); });
}

void Watchdog::watch(const Run& run, Clock::time_point deadline) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(runs_, [](const Watched& each) { return each.run.done(); });
    // A deadline that is nearer than what the thread sleeps for wakes it, too.
    first = runs_.empty() || deadline != Clock::time_point::max();
    runs_.push_back({run, deadline});
  }
  std::call_once(started_, [this] { thread_ = std::thread([this] { main(); }); });
  if (first) wake_.signal();
}

void Watchdog::main() {
  pthread_setname_np(pthread_self(), "watchdog");
  since_ = Clock::now();
  for (;;) {
    pollfd ready{.fd = wake_.fd(), .events = POLLIN, .revents = 0};
    (void)::poll(&ready, 1, sleep_ms());
    (void)wake_.drain();
    if (stopping_.load(std::memory_order_acquire)) return;
    try {
      look();
    } catch (const std::exception& error) {
      hooks_.log->message(LogLevel::error, hooks_.path,
                          std::string("the watchdog can't report: ") + error.what());
    }
  }
}

/// Until the next look; -1 while there is nothing to look at.
int Watchdog::sleep_ms() {
  const std::lock_guard lock(mutex_);
  std::erase_if(runs_, [&](const Watched& each) {
    // A run that ended in time has missed nothing.
    return each.run.done();
  });
  if (runs_.empty()) return -1;
  const Clock::time_point now = Clock::now();
  Clock::duration sleep = options_.no_progress.count() > 0
                              ? Clock::duration(options_.no_progress) / 4
                              : Clock::duration::max();
  if (options_.missed_deadlines) {
    for (const Watched& each : runs_) {
      if (each.deadline != Clock::time_point::max())
        sleep = std::min(sleep, std::max(each.deadline - now, Clock::duration::zero()));
    }
  }
  if (sleep == Clock::duration::max()) return -1;
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(sleep).count();
  return static_cast<int>(std::clamp<std::int64_t>(ms, 1, 60'000));
}

void Watchdog::look() {
  if (asked_.exchange(false, std::memory_order_relaxed)) report("it got SIGQUIT");
  if (options_.missed_deadlines) {
    if (const auto why = missed_deadline()) report(*why);
  }
  if (options_.no_progress.count() > 0 && is_hung()) {
    told_ = true;
    report("tasks are in flight, and nothing has moved for " +
           base::duration_text(Clock::now() - since_));
  }
}

std::optional<std::string> Watchdog::missed_deadline() {
  const Clock::time_point now = Clock::now();
  const std::lock_guard lock(mutex_);
  for (Watched& each : runs_) {
    if (each.deadline > now || each.run.done()) continue;
    each.deadline = Clock::time_point::max();  // Told once.
    return each.run.name() + " has not ended by its deadline";
  }
  return std::nullopt;
}

/// Whether nothing has moved for so long, and that was not told yet.
bool Watchdog::is_hung() {
  const EngineStats stats = hooks_.stats();
  const std::pair now{stats.tasks, stats.window_used};
  const Clock::time_point when = Clock::now();
  const auto moved = [&] {
    seen_ = now;
    since_ = when;
    told_ = false;
    return false;
  };
  if (now != seen_ || stats.window_used == 0) return moved();
  // A task of ours may be a whole program of a chip, or an orchestration.
  std::map<pid_t, std::string> below = progress_below();
  if (below != seen_below_) {
    seen_below_ = std::move(below);
    return moved();
  }
  return !told_ && when - since_ >= options_.no_progress;
}

/// What changes as long as tasks are submitted and end in the engines of the processes below. A
/// process that does not answer does not move.
std::map<pid_t, std::string> Watchdog::progress_below() const {
  std::vector<std::pair<pid_t, trace::StateRequest>> requests;
  for (const pid_t pid : os::descendants_of(::getpid())) {
    if (auto request = trace::StateRequest::ask(pid))
      requests.emplace_back(pid, *std::move(request));
  }
  std::map<pid_t, std::string> progress;
  for (const auto& [pid, request] : requests) {
    const auto before = seen_below_.find(pid);
    if (before != seen_below_.end()) progress.insert(*before);
  }
  const Clock::time_point until = Clock::now() + kAnswer;
  while (!requests.empty() && Clock::now() < until) {
    std::erase_if(requests, [&](const auto& each) {
      const auto text = each.second.answer();
      if (!text) return false;
      const auto state = nlohmann::json::parse(*text, nullptr, false);
      if (!state.is_object() || !state.contains("engine")) return true;
      std::string& counts = progress[each.first];
      counts.clear();
      for (const auto& engine : state["engine"]) {
        if (!engine.contains("submitted") || !engine.contains("window")) continue;
        counts += engine["submitted"].dump() + " " + engine["window"].dump() + "\n";
      }
      return true;
    });
    std::this_thread::sleep_for(1ms);
  }
  return progress;
}

void Watchdog::report(const std::string& why) {
  const diag::TreeReport report = diag::collect(::getpid(), {});
  const std::string text = "a report of " + hooks_.path + ", since " + why + "\n\n" +
                           diag::to_text(report) + "\nend of the report of " + hooks_.path + "\n";
  if (!options_.file.empty()) append_to(options_.file, text);
  hooks_.log->message(LogLevel::error, hooks_.path, text);
  if (options_.then == WatchdogOptions::Then::cancel_runs) hooks_.cancel_runs();
}

}  // namespace strata::node
