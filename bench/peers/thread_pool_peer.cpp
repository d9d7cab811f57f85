// A bare thread pool: a queue behind a mutex and a condition variable, as one writes it in an
// afternoon. It knows no dependencies; a chain is tasks that each put the next into the queue.
//
//   thread_pool independent|chain THREADS [BUDGET_MS]
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "figures.hpp"

namespace strata::bench {
namespace {

constexpr int kTasks = 10'000;

class ThreadPool {
 public:
  explicit ThreadPool(unsigned threads) {
    for (unsigned i = 0; i < threads; ++i)
      threads_.emplace_back([this] { work(); });
  }
  ~ThreadPool() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
  }
  void put(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(task));
      ++unfinished_;
    }
    changed_.notify_one();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    finished_.wait(lock, [this] { return unfinished_ == 0; });
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return over_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const auto task = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      task();
      lock.lock();
      if (--unfinished_ == 0) finished_.notify_all();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_, finished_;
  std::deque<std::function<void()>> queue_;
  int unfinished_ = 0;
  bool over_ = false;
  std::vector<std::jthread> threads_;
};

void run_chain(ThreadPool& pool, int left) {
  if (left > 0) pool.put([&pool, left] { run_chain(pool, left - 1); });
}

Values measure(bool chain, unsigned threads, double budget_ns) {
  ThreadPool pool(threads);
  const auto run = [&] {
    if (chain) {
      run_chain(pool, kTasks);
    } else {
      for (int i = 0; i < kTasks; ++i)
        pool.put([] {});
    }
    pool.wait();
  };
  run();
  return {{"", summary(sample_for(budget_ns, 3, [&] { return timed(run) / kTasks; }), "ns/task")}};
}

}  // namespace
}  // namespace strata::bench

int main(int argc, char** argv) {
  using namespace strata::bench;
  if (argc < 3 || argc > 4) {
    std::fprintf(stderr, "usage: %s independent|chain THREADS [BUDGET_MS]\n", argv[0]);
    return 2;
  }
  const auto threads = static_cast<unsigned>(std::max(1, std::atoi(argv[2])));
  const double budget_ns = (argc > 3 ? std::atof(argv[3]) : 100) * 1e6;
  print_values(measure(std::strcmp(argv[1], "chain") == 0, threads, budget_ns), false, "");
  return 0;
}
