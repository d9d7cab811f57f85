// CorePool::Impl: threads that act as cores.
//
// One mutex guards the schedule and the counts of threads. A thread that ends a block takes the
// next in the same hold of it. A simple task that becomes ready while the thread that ended its
// predecessor tells of that end is run by this thread next, on the same core, without the mutex,
// if nothing else waits: so a chain of tasks costs no hand-over at all.
//
// Threads. `awake_` counts those that run blocks or look for one; `looking_` those that look, the
// ones on their way to it included. Whoever makes a block startable asks someone_needed(): if
// nobody looks and fewer are awake than may be, one more is woken or made. A thread that has taken
// a block asks again, so that as many wake as there is work for.
//
// Due lanes. If all threads that may run are busy while lanes are due, one more sleeps as the
// *watcher*: when no due lane was begun for kDuePatience it begins one itself, whatever the limit.
//
// Thread safety: all members, any thread. No sink, kernel or engine is called with the mutex held.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>
#include <optional>
#include <string_view>
#include <vector>

#include <pthread.h>

#include "chip/cores/core_job.hpp"
#include "chip/cores/core_pool.hpp"
#include "chip/cores/explorer.hpp"
#include "chip/cores/schedule.hpp"
#include "ipc/spinner_budget.hpp"
#include "os/adaptive_mutex.hpp"

namespace strata::chip {

class CorePool::Impl {
 public:
  explicit Impl(const CorePoolOptions& options);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void start(DispatchId dispatch, TaskContext& context, const Launch& launch, TaskSink& sink);
  bool run_one();
  [[nodiscard]] bool try_become_helper();
  void stop_helping();
  void set_held(bool held);
  void set_threads(unsigned threads);
  void explore(std::uint64_t seed);
  void stop_exploring();
  /// Wakes the waits of all lanes, or of those of one task.
  void wake_waits(const Job* job = nullptr);
  [[nodiscard]] std::vector<CoreStatus> status() const;
  [[nodiscard]] unsigned thread_count() const;
  void set_check(CheckSession* session) noexcept { check_.store(session); }

  // --- For the waits of kernels ---

  /// The thread begins to wait: another may run meanwhile. Throws SystemError if that needs a
  /// thread that can't be made.
  void enter_wait(Runner& runner);
  void leave_wait(Runner& runner) noexcept;
  /// Before a lane that is about to sleep looks whether it is still wanted. It and wake_waits()
  /// change one word: of a cancellation and a wait that begins, either the lane comes later, and
  /// sees the cancellation, or wake_waits() does, and sees the lane. Returns the word, which is
  /// another once wake_waits() has been there, and on which it wakes whoever sleeps.
  std::uint32_t look_for_cancellation() noexcept {
    return cancellations_.fetch_add(0, std::memory_order_acq_rel);
  }
  [[nodiscard]] const std::atomic<std::uint32_t>& cancellations() const noexcept {
    return cancellations_;
  }
  /// Sleeps until woken; exploring: until it is its turn.
  void sleep(Runner& runner);
  [[nodiscard]] bool exploring() const noexcept {
    return exploring_.load(std::memory_order_relaxed);
  }
  /// Exploring: the parts of sleep(), for a lane that sleeps elsewhere in between: until what it
  /// waits for has come.
  void stand(Runner& runner) { explorer_->stand(runner); }
  void await_turn(Runner& runner);
  /// Whether a CPU is free for a thread that spins.
  [[nodiscard]] bool may_spin() const noexcept;
  [[nodiscard]] ipc::SpinnerBudget* budget() const noexcept { return options_.budget; }
  void log(std::string_view text) const;

 private:
  friend class Explorer;

  /// The pool's mutex, held. What others may know of the schedule without it is brought up to date
  /// before it is let go.
  class Lock {
   public:
    explicit Lock(const Impl& pool) noexcept : pool_(const_cast<Impl&>(pool)) { lock(); }
    ~Lock() {
      if (held_) unlock();
    }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    void lock() noexcept {
      pool_.mutex_.lock();
      held_ = true;
    }
    void unlock() noexcept {
      pool_.publish();
      held_ = false;
      pool_.mutex_.unlock();
    }

   private:
    Impl& pool_;
    bool held_ = false;
  };

  /// A thread to be woken or made, once the mutex is free.
  struct Wake {
    Runner* runner = nullptr;
    bool create = false;
  };

  // Tasks.
  void init(Job& job, DispatchId dispatch, TaskContext& context, const Launch& launch,
            TaskSink& sink) const;
  [[nodiscard]] Job& new_job(const Launch& launch);
  void free_job(Job& job) noexcept;
  void check_room(const Job& job) const;
  [[nodiscard]] bool take_over(Runner& runner, const Job& job);

  // Running.
  void act(Runner& runner, Place& place, Lock& lock);
  [[nodiscard]] std::exception_ptr execute(Runner& runner, Place& place);
  [[nodiscard]] Place* end_simple(Runner& runner, Place& place, const std::exception_ptr& error,
                                  Lock& lock);
  void end_lane(Runner& runner, Place& place, std::exception_ptr error, Lock& lock);

  void wait_until_empty(Lock& lock);

  // Threads.
  [[nodiscard]] Wake someone_needed();
  [[nodiscard]] Runner* take_idle();
  static Runner* unlink_idle(Runner*& link) noexcept;
  [[nodiscard]] Runner* add_carrier();
  [[nodiscard]] Wake next_thread(bool watches);
  void perform(Wake wake);
  void perform_if_possible(Wake wake) noexcept;
  static void* thread_main(void* runner);
  void carry(Runner& runner);
  void rest(Runner& runner, Lock& lock);
  void go_idle(Runner& runner, Lock& lock);
  bool spin(Lock& lock);
  void watch(Runner& runner, Lock& lock);
  void pin(const Runner& runner) const noexcept;
  [[nodiscard]] Runner& borrow_runner();

  void publish() noexcept {
    const std::uint32_t work =
        (schedule_.may_take() && !exploring() ? kMayTake : 0U) |
        (schedule_.waiting() != 0 || schedule_.first_due() != nullptr || held_ || exploring()
             ? kBusy
             : 0U);
    // Relaxed, here and where it is read: a hint; who acts on it takes the mutex.
    if (work_.load(std::memory_order_relaxed) != work) {
      work_.store(work, std::memory_order_relaxed);
    }
  }

  static constexpr std::uint32_t kMayTake = 1;  ///< A look at the schedule may find something.
  static constexpr std::uint32_t kBusy = 2;     ///< Something waits, or may not start.

  const CorePoolOptions options_;
  std::atomic<CheckSession*> check_{nullptr};

  mutable os::AdaptiveMutex mutex_;
  Schedule schedule_;
  unsigned limit_;
  std::atomic<unsigned> awake_{0};  ///< Written under the mutex.
  unsigned looking_ = 0;
  unsigned spinning_ = 0;
  bool helper_ = false;   ///< Some thread is between try_become_helper() and stop_helping().
  bool watcher_ = false;  ///< Some thread watches, or is on its way to it.
  bool held_ = false;
  bool stopping_ = false;
  Job* free_jobs_ = nullptr;
  std::deque<Job> jobs_;
  Runner* idle_ = nullptr;    ///< The last to go idle first.
  Runner* unborn_ = nullptr;  ///< Runners of threads that could not be made.
  Runner* lent_ = nullptr;    ///< Runners for run_one() that are not in use.
  std::deque<Runner> runners_;
  unsigned carriers_ = 0;
  std::vector<int> free_cpus_;  ///< Of options_.pin_to, those that no carrier has yet.
  std::vector<pthread_t> threads_;
  std::optional<Explorer> explorer_;

  alignas(64) std::atomic<std::uint32_t> work_{0};
  std::atomic<bool> exploring_{false};  ///< Written under the mutex.
  std::atomic<std::uint32_t> cancellations_{0};
};

}  // namespace strata::chip
