#include "node/chip_lanes.hpp"

#include <pthread.h>

#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "os/cpu.hpp"
#include "strata/error.hpp"
#include "trace/crash_handler.hpp"

namespace strata::node {
namespace {

constexpr int kSpins = 200;  ///< Some microseconds.

}  // namespace

struct ChipLanes::Lane {
  unsigned index = 0;
  os::Parker parker;
  std::thread thread;
};

ChipLanes::ChipLanes(unsigned count, ipc::SpinnerBudget* budget) : count_(count), budget_(budget) {
  if (count == 0) throw InvalidArgument("a chip with 0 lanes can run nothing; give it at least 1");
  try {
    for (unsigned i = 1; i < count; ++i) {
      lanes_.push_back(std::make_unique<Lane>());
      Lane& lane = *lanes_.back();
      lane.index = i;
      lane.thread = std::thread([this, &lane] { lane_main(lane); });
    }
  } catch (const std::system_error& error) {
    lanes_.pop_back();
    run({});
    for (const auto& lane : lanes_)
      lane->thread.join();
    throw SystemError("can't start thread " + std::to_string(lanes_.size() + 2) + " of the " +
                          std::to_string(count) + " of a chip",
                      error.code().value());
  }
}

ChipLanes::~ChipLanes() {
  run({});
  for (const auto& lane : lanes_)
    lane->thread.join();
}

template <class Ready>
void ChipLanes::wait(os::Parker& parker, const Ready& ready) {
  if (ready()) return;
  if (budget_ != nullptr) {
    if (const auto place = budget_->try_begin()) {
      bool done = false;
      for (int i = 0; i < kSpins && !done; ++i) {
        os::cpu_relax();
        done = ready();
      }
      budget_->end(place);
    }
  }
  while (!ready())
    parker.park();
}

void ChipLanes::call(unsigned lane) noexcept {
  try {
    (*function_)(lane);
  } catch (...) {
    if (!threw_.exchange(true, std::memory_order_relaxed)) error_ = std::current_exception();
  }
}

void ChipLanes::lane_main(Lane& lane) {
  pthread_setname_np(pthread_self(), ("lane " + std::to_string(lane.index)).c_str());
  const trace::AlternateStack stack;
  for (std::uint64_t round = 1;; ++round) {
    wait(lane.parker, [&] { return round_.load(std::memory_order_acquire) >= round; });
    const bool last = !*function_;
    if (!last) call(lane.index);
    // Release: what was done here happens before run()'s return; acquire: nothing of ours moves
    // behind it, after which function_ may be gone.
    if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) caller_.unpark();
    if (last) return;
  }
}

void ChipLanes::run(const Function& function) {
  function_ = &function;
  threw_.store(false, std::memory_order_relaxed);
  left_.store(static_cast<unsigned>(lanes_.size()), std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  for (const auto& lane : lanes_)
    lane->parker.unpark();
  if (function) call(0);
  wait(caller_, [&] { return left_.load(std::memory_order_acquire) == 0; });
  if (threw_.load(std::memory_order_relaxed)) std::rethrow_exception(std::exchange(error_, {}));
}

}  // namespace strata::node
