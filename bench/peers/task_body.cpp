#include "task_body.hpp"

#include <atomic>
#include <memory>
#include <vector>

namespace strata::bench {
namespace {

/// What the tasks of one checked run compare with and count in.
struct OrderState {
  const Workload* workload = nullptr;
  std::vector<std::uint32_t> expected;  // for each access: writes of its region before it
  std::vector<std::atomic<std::uint32_t>> writes;
  std::atomic<std::uint64_t> executed{0};
  std::atomic<std::uint64_t> wrong{0};
};
std::unique_ptr<OrderState> g_order;

// Relaxed: two accesses of one region that no dependency orders both count as errors anyway; for
// those that one orders, the runtime under test provides the happens-before.
void check_order(OrderState& order, std::uint32_t task) noexcept {
  const std::uint32_t begin = order.workload->first[task];
  const std::uint32_t end = order.workload->first[task + 1];
  for (std::uint32_t i = begin; i < end; ++i) {
    const WorkAccess access = order.workload->accesses[i];
    std::atomic<std::uint32_t>& writes = order.writes[access.region];
    const std::uint32_t found = access.mode == Mode::read
                                    ? writes.load(std::memory_order_relaxed)
                                    : writes.fetch_add(1, std::memory_order_relaxed);
    if (found != order.expected[i]) order.wrong.fetch_add(1, std::memory_order_relaxed);
  }
  order.executed.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

namespace detail {

TaskBody g_task_body;

void execute_body(std::uint32_t task) noexcept {
  if (g_order) check_order(*g_order, task);
  compute(g_task_body.iterations);
}

}  // namespace detail

void compute(std::uint64_t iterations) noexcept {
  std::uint64_t x = 1;
  for (std::uint64_t i = 0; i < iterations; ++i) {
    // A step of a linear congruential generator: each needs the one before it.
    x = x * 6364136223846793005u + 1442695040888963407u;
    asm volatile("" : "+r"(x));
  }
}

void set_iterations(std::uint64_t iterations) noexcept {
  detail::g_task_body = {.trivial = iterations == 0, .iterations = iterations};
}

OrderCheck::OrderCheck(const Workload& workload) {
  g_order = std::make_unique<OrderState>();
  g_order->workload = &workload;
  g_order->writes = std::vector<std::atomic<std::uint32_t>>(workload.regions);
  std::vector<std::uint32_t> writes(workload.regions);
  for (const WorkAccess access : workload.accesses) {
    g_order->expected.push_back(writes[access.region]);
    if (access.mode != Mode::read) ++writes[access.region];
  }
  detail::g_task_body.trivial = false;
}

OrderCheck::~OrderCheck() {
  detail::g_task_body.trivial = detail::g_task_body.iterations == 0;
  g_order.reset();
}

bool OrderCheck::passed() const noexcept {
  return g_order->wrong == 0 && g_order->executed == g_order->workload->tasks();
}

}  // namespace strata::bench
