#include "cli/output_relay.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <utility>

#include "os/event_fd.hpp"
#include "os/system_error.hpp"

namespace strata::cli {
namespace {

/// As much as a pipe holds: a program is not held up earlier than it would be without us.
constexpr std::size_t kQueueBytes = std::size_t{64} << 10;

}  // namespace

struct OutputRelay::State {
  explicit State(int given) : target(given) {}

  const int target;
  os::UniqueFd read_end;                   ///< The reader's.
  os::EventFd wake = os::EventFd::make();  ///< Wakes the reader from poll().

  mutable std::mutex mutex;  ///< For all below.
  std::condition_variable changed;
  std::string queue;
  std::string last;        ///< The last bytes that were read.
  bool in_a_line = false;  ///< What was queued last does not end with a line feed.
  std::uint64_t drains_wanted = 0;
  std::uint64_t drains_done = 0;
  bool stopping = false;  ///< The reader ends once the pipe is empty.
  bool read_all = false;  ///< The reader has ended.
  bool broken = false;    ///< Nobody can take anything any more.
  int error = 0;          ///< Why: an errno value.
  bool writing = false;   ///< The writer holds bytes that are not in the queue.
  std::uint64_t written = 0;

  void read_loop();
  void write_loop();
  void take(std::string_view bytes);
  [[nodiscard]] bool has_room() const { return queue.size() < kQueueBytes; }
  [[nodiscard]] bool all_written() const { return broken || (queue.empty() && !writing); }
};

/// Requires the mutex.
void OutputRelay::State::take(std::string_view bytes) {
  if (!broken) queue += bytes;
  in_a_line = bytes.back() != '\n';
  last += bytes;
  if (last.size() > 2 * kTailBytes) last.erase(0, last.size() - kTailBytes);
  changed.notify_all();
}

void OutputRelay::State::read_loop() {
  std::array<char, 64 << 10> bytes;
  for (;;) {
    std::uint64_t drain = 0;
    std::size_t owed = 0;  // By a drain: what was in the pipe when it began.
    {
      std::unique_lock lock(mutex);
      changed.wait(
          lock, [&] { return has_room() || broken || stopping || drains_wanted != drains_done; });
      if (broken) break;
      drain = drains_wanted;
      if (drain != drains_done || stopping) {
        int waiting = 0;
        if (::ioctl(read_end.get(), FIONREAD, &waiting) == 0)
          owed = static_cast<std::size_t>(std::max(0, waiting));
      }
    }
    bool ended = false;
    do {
      const ssize_t got = ::read(read_end.get(), bytes.data(), bytes.size());
      if (got < 0 && errno == EINTR) continue;
      ended = got == 0;
      if (got <= 0) break;
      const auto count = static_cast<std::size_t>(got);
      const std::scoped_lock lock(mutex);
      take({bytes.data(), count});
      owed -= std::min(owed, count);
      if (owed == 0) break;
    } while (owed > 0);
    {
      const std::scoped_lock lock(mutex);
      drains_done = drain;
      changed.notify_all();
      int waiting = 0;
      const bool empty = ::ioctl(read_end.get(), FIONREAD, &waiting) != 0 || waiting == 0;
      if (ended || (stopping && empty)) break;
    }
    std::array<pollfd, 2> waits = {{{.fd = read_end.get(), .events = POLLIN, .revents = 0},
                                    {.fd = wake.fd(), .events = POLLIN, .revents = 0}}};
    (void)::poll(waits.data(), waits.size(), -1);
    if (waits[1].revents != 0) wake.drain();
  }
  read_end.reset();  // If nobody takes it, the program is to know.
  const std::scoped_lock lock(mutex);
  read_all = true;
  drains_done = UINT64_MAX;
  changed.notify_all();
}

void OutputRelay::State::write_loop() {
  std::unique_lock lock(mutex);
  for (;;) {
    changed.wait(lock, [&] { return !queue.empty() || (read_all && stopping); });
    if (queue.empty()) return;
    const std::string bytes = std::exchange(queue, {});
    writing = true;
    changed.notify_all();
    lock.unlock();
    std::size_t done = 0;
    int failure = 0;
    while (done < bytes.size() && failure == 0) {
      const ssize_t got = ::write(target, bytes.data() + done, bytes.size() - done);
      if (got > 0) {
        done += static_cast<std::size_t>(got);
        const std::scoped_lock counting(mutex);
        written += static_cast<std::uint64_t>(got);
        changed.notify_all();
      } else if (errno == EAGAIN) {
        // Somebody has made the file non-blocking, for whom we share it with.
        pollfd wait{.fd = target, .events = POLLOUT, .revents = 0};
        (void)::poll(&wait, 1, -1);
      } else if (errno != EINTR) {
        failure = errno;
      }
    }
    lock.lock();
    writing = false;
    if (failure != 0) {
      broken = true;
      error = failure;
      queue.clear();
      wake.signal();
    }
    changed.notify_all();
    if (failure != 0) return;
  }
}

OutputRelay::OutputRelay(int target) : state_(std::make_shared<State>(target)) {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) os::throw_errno("make a pipe for the program's output");
  state_->read_end.reset(ends[0]);
  write_end_.reset(ends[1]);
  if (::fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) os::throw_errno("make a pipe non-blocking");
}

OutputRelay::~OutputRelay() {
  for (std::thread* const thread : {&reader_, &writer_}) {
    if (!thread->joinable()) continue;
    const bool done = [&] {
      const std::scoped_lock lock(state_->mutex);
      return state_->read_all && state_->stopping && state_->all_written();
    }();
    if (done) {
      thread->join();
    } else {
      thread->detach();
    }
  }
}

void OutputRelay::start() {
  const auto run = [this](void (State::*loop)()) {
    return std::thread([state = state_, loop] {
      sigset_t all;
      sigfillset(&all);
      (void)pthread_sigmask(SIG_BLOCK, &all, nullptr);
      ((*state).*loop)();
    });
  };
  reader_ = run(&State::read_loop);
  writer_ = run(&State::write_loop);
}

void OutputRelay::drain() {
  std::unique_lock lock(state_->mutex);
  if (state_->read_all) return;
  const std::uint64_t wanted = ++state_->drains_wanted;
  state_->changed.notify_all();
  state_->wake.signal();
  state_->changed.wait(lock, [&] { return state_->drains_done >= wanted; });
}

std::string OutputRelay::tail(std::size_t lines) const {
  const std::scoped_lock lock(state_->mutex);
  std::string_view text = state_->last;
  if (text.size() > kTailBytes) text.remove_prefix(text.size() - kTailBytes);
  std::size_t begin = text.size();
  if (begin > 0 && text.back() == '\n') --begin;
  for (std::size_t found = 0; begin > 0; --begin) {
    if (text[begin - 1] == '\n' && ++found == lines) break;
  }
  return lines == 0 ? "" : std::string(text.substr(begin));
}

void OutputRelay::insert(const std::string& text) {
  const std::scoped_lock lock(state_->mutex);
  if (state_->broken) return;
  if (state_->in_a_line) state_->queue += '\n';
  state_->in_a_line = false;
  state_->queue += text;
  state_->changed.notify_all();
}

bool OutputRelay::finish(std::chrono::milliseconds patience) {
  std::unique_lock lock(state_->mutex);
  state_->stopping = true;
  state_->wake.signal();
  state_->changed.notify_all();
  for (;;) {
    const std::uint64_t before = state_->written;
    const bool done = state_->changed.wait_for(lock, patience, [&] {
      return (state_->read_all && state_->all_written()) || state_->written != before;
    });
    if (state_->read_all && state_->all_written()) return true;
    if (!done) return false;
  }
}

int OutputRelay::error() const {
  const std::scoped_lock lock(state_->mutex);
  return state_->error;
}

}  // namespace strata::cli
