#include "chip/cores/explorer.hpp"

#include "chip/cores/core_pool_impl.hpp"
#include "chip/cores/kernel_services.hpp"

namespace strata::chip {

/// splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
std::uint64_t Explorer::draw() noexcept {
  std::uint64_t x = state_ += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

Explorer::Choices Explorer::choices() {
  Choices all;
  all.jobs = pool_.schedule_.startable();
  for (Place* place = pool_.schedule_.first_due(); place != nullptr; place = place->next_due)
    all.due.push_back(place);
  for (Place& place : pool_.schedule_.places()) {
    Runner* const runner = place.runner.load(std::memory_order_relaxed);
    if (place.job == nullptr || runner == nullptr || runner->place != &place || !runner->stands) {
      continue;
    }
    if (runner->stirred.load(std::memory_order_relaxed) || signal_has_come(place)) {
      all.standing.push_back(runner);
    }
  }
  return all;
}

/// The number of one of the choices: lanes that stand, then those that are due, then tasks.
std::size_t Explorer::choose(const Choices& all) {
  const std::size_t count = all.standing.size() + all.due.size() + all.jobs.size();
  if (!in_order_) return draw() % count;
  // What has begun comes before what has not, of one task.
  std::size_t number = 0;
  std::size_t first = 0;
  std::uint64_t oldest = ~std::uint64_t{0};
  const auto look = [&](const Job& job) {
    const std::uint64_t task = job.context->task().value;
    if (task < oldest) {
      oldest = task;
      first = number;
    }
    ++number;
  };
  for (const Runner* const runner : all.standing)
    look(*runner->place->job);
  for (const Place* const place : all.due)
    look(*place->job);
  for (const Job* const job : all.jobs)
    look(*job);
  return first;
}

bool Explorer::run() {
  CorePool::Impl::Lock lock(pool_);
  if (conducting_) return false;
  conducting_ = true;
  bool any = false;
  for (;;) {
    while (active_ != nullptr) {
      lock.unlock();
      parker_.park();
      lock.lock();
    }
    const Choices all = choices();
    const std::size_t begun = all.due.size() + all.standing.size();
    if (begun + all.jobs.size() == 0 || (any && begun == 0)) break;
    any = true;
    std::size_t drawn = choose(all);
    if (drawn < all.standing.size()) {
      Runner& runner = *all.standing[drawn];
      active_ = &runner;
      runner.turn.store(true, std::memory_order_relaxed);
      wake_signal_wait(*runner.place);
      runner.parker.unpark();
      continue;
    }
    drawn -= all.standing.size();
    Place* const place =
        drawn < all.due.size()
            ? pool_.schedule_.take_due(*all.due[drawn])
            : pool_.schedule_.start(*all.jobs[drawn - all.due.size()], in_order_ ? 0 : draw());
    ++pool_.awake_;
    ++pool_.looking_;
    const CorePool::Impl::Wake wake = pool_.next_thread(false);
    wake.runner->given = place;
    active_ = wake.runner;
    lock.unlock();
    pool_.perform(wake);
    lock.lock();
  }
  conducting_ = false;
  return any;
}

/// Somebody else's turn. With the mutex.
void Explorer::turn_over(Runner& runner) noexcept {
  if (active_ != &runner) return;
  active_ = nullptr;
  if (conducting_) {
    parker_.unpark();
    return;
  }
  // Nobody conducts: what can go on does so by itself, one after the other.
  for (Place& place : pool_.schedule_.places()) {
    Runner* const other = place.runner.load(std::memory_order_relaxed);
    if (place.job == nullptr || other == nullptr || other == &runner || !other->stands) continue;
    if (other->stirred.load(std::memory_order_relaxed)) other->parker.unpark();
  }
}

void Explorer::lane_returned(Runner& runner) noexcept { turn_over(runner); }

void Explorer::stand(Runner& runner) {
  const CorePool::Impl::Lock lock(pool_);
  runner.stands = true;
  turn_over(runner);
}

void Explorer::await_turn(Runner& runner) {
  for (;;) {
    {
      const CorePool::Impl::Lock lock(pool_);
      const bool free = !conducting_ && active_ == nullptr;
      if (runner.turn.load(std::memory_order_relaxed) ||
          (free && runner.stirred.load(std::memory_order_relaxed))) {
        active_ = &runner;
        runner.turn.store(false, std::memory_order_relaxed);
        runner.stirred.store(false, std::memory_order_relaxed);
        runner.stands = false;
        return;
      }
    }
    runner.parker.park();
  }
}

}  // namespace strata::chip
