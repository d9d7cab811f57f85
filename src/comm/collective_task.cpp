#include "comm/collective_task.hpp"

#include <chrono>
#include <thread>

#include "comm/plain_waits.hpp"
#include "os/deadline.hpp"
#include "strata/comm_error.hpp"

namespace strata::comm {
namespace {

struct What {
  detail::CollectiveKind kind;
  ReduceOp op;
  DType dtype;
  CollectiveAlgorithm algorithm;
  std::uint32_t root;
};
struct Where {
  std::uint32_t channel;
  std::uint32_t to;
};

void pass_message(const DomainContext& domain, const detail::CommWaits& waits,
                  const CollectiveOrder& order, std::byte* data) {
  detail::MessageCall call{.dtype = order.dtype, .channel = order.channel};
  if (domain.rank == order.root) {
    call.to = order.to;
    call.out = data;
    call.out_count = order.count;
  } else {
    call.from = order.root;
    call.in = data;
    call.in_count = order.count;
  }
  domain.services->message(domain, waits, call);
}

/// How long the parent may take to cancel a rank after another one has given up.
constexpr std::chrono::milliseconds kToldWithin{500};
constexpr std::chrono::microseconds kLook{200};

bool is_cancelled_soon(const WorkerTask& task) {
  for (const os::Deadline deadline = os::Deadline::after(kToldWithin); !task.cancelled();) {
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(kLook);
  }
  return true;
}

void do_collective(WorkerTask& task) {
  const CollectiveOrder order = CollectiveOrder::of(task);
  const auto& domain = *task.data<const DomainContext>(0);
  const PlainWaits waits(
      {.is_cancelled =
           [](const void* token) { return static_cast<const WorkerTask*>(token)->cancelled(); },
       .token = &task});
  const std::size_t tensors = task.tensor_count();
  std::byte* const in = tensors > 1 ? task.data<std::byte>(1) : nullptr;
  if (order.kind == detail::CollectiveKind::none) {
    pass_message(domain, waits, order, in);
    return;
  }
  domain.services->collective(domain, waits,
                              {.kind = order.kind,
                               .op = order.op,
                               .dtype = order.dtype,
                               .algorithm = order.algorithm,
                               .root = order.root,
                               .channel = order.channel,
                               .count = order.count,
                               .in = in,
                               .out = tensors > 2 ? task.data<std::byte>(2) : in});
}

}  // namespace

CollectiveOrder::Scalars CollectiveOrder::scalars() const noexcept {
  return {scalar(What{kind, op, dtype, algorithm, root}), scalar(Where{channel, to}),
          scalar(count)};
}

CollectiveOrder CollectiveOrder::of(const TaskContext& task) noexcept {
  const auto what = task.scalar<What>(0);
  const auto where = task.scalar<Where>(1);
  return {.kind = what.kind,
          .op = what.op,
          .dtype = what.dtype,
          .algorithm = what.algorithm,
          .root = what.root,
          .channel = where.channel,
          .to = where.to,
          .count = task.scalar<std::uint64_t>(2)};
}

void run_collective_task(WorkerTask& task) {
  try {
    do_collective(task);
  } catch (const CommError& error) {
    // The other has failed, or the whole run is cancelled: the parent hears of the first, and tells
    // this rank in either case. That it knew sooner, by the windows, must not make it the one that
    // has failed.
    if (error.cause() == CommError::Cause::rank_left && is_cancelled_soon(task))
      throw Cancelled(error.what());
    throw;
  }
}

}  // namespace strata::comm
