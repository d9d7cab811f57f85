// Turns: lets the orchestrations of several runs submit in one fixed order.
//
// Thread safety: all members may be called from any thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <set>

#include "program.hpp"

namespace strata::property {

class Turns {
 public:
  explicit Turns(const Program& program) : program_(program) {}

  /// Called once, after the last step, by the thread that did it.
  void on_last(std::function<void()> act) { last_ = std::move(act); }

  /// Lets the first step begin: all runs are open.
  void open() {
    {
      const std::lock_guard lock(mutex_);
      open_ = true;
    }
    changed_.notify_all();
  }
  /// Waits until all steps before step `s` are done.
  void await(std::size_t s) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return open_ && next_ == s; });
  }
  void done(std::size_t s) {
    std::unique_lock lock(mutex_);
    next_ = s + 1;
    move_on(lock);
  }
  /// The run does none of its further steps.
  void abandon(int run) {
    std::unique_lock lock(mutex_);
    abandoned_.insert(run);
    move_on(lock);
  }

 private:
  void move_on(std::unique_lock<std::mutex>& lock) {
    while (next_ < program_.steps.size() && abandoned_.contains(program_.steps[next_].run)) {
      ++next_;
    }
    const bool over = next_ >= program_.steps.size() && !over_;
    over_ = over_ || over;
    lock.unlock();
    changed_.notify_all();
    if (over && last_) last_();
  }

  const Program& program_;
  std::function<void()> last_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t next_ = 0;
  std::set<int> abandoned_;
  bool open_ = false;
  bool over_ = false;
};

}  // namespace strata::property
