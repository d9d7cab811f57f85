#include "node/reaper.hpp"

#include <chrono>
#include <list>
#include <mutex>
#include <thread>

#include "base/fault_point.hpp"

namespace strata::node {

namespace {

using namespace std::chrono_literals;

class Reaper {
 public:
  /// Never destroyed: its thread may run until the process ends.
  static Reaper& instance() {
    static auto* const reaper = new Reaper;
    return *reaper;
  }

  void take(ChildResources resources) {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(resources));
    if (!running_) {
      running_ = true;
      std::thread([this] { main(); }).detach();
    }
  }

  std::size_t backlog() {
    const std::lock_guard lock(mutex_);
    return waiting_.size();
  }

 private:
  void main() {
    std::unique_lock lock(mutex_);
    while (!waiting_.empty()) {
      std::list<ChildResources> gone;
      for (auto it = waiting_.begin(); it != waiting_.end();) {
        const auto next = std::next(it);
        if (base::fault_error("reaper.wait") == 0 && it->process.try_wait()) {
          gone.splice(gone.end(), waiting_, it);
        }
        it = next;
      }
      lock.unlock();
      gone.clear();
      // Rare, and nobody waits for it: looking now and then is enough.
      std::this_thread::sleep_for(50ms);
      lock.lock();
    }
    running_ = false;
  }

  std::mutex mutex_;
  std::list<ChildResources> waiting_;  ///< Guarded by mutex_.
  bool running_ = false;               ///< Guarded by mutex_.
};

}  // namespace

void hand_to_reaper(ChildResources resources) { Reaper::instance().take(std::move(resources)); }
std::size_t reaper_backlog() { return Reaper::instance().backlog(); }

}  // namespace strata::node
