#include "comm/rank_tasks.hpp"

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <memory>

#include "base/exception_text.hpp"
#include "comm/backend.hpp"
#include "comm/bring_up_board.hpp"
#include "comm/services.hpp"
#include "strata/comm_error.hpp"
#include "strata/worker_task.hpp"

namespace strata::comm {
namespace {

using Step = BringUpFailed::Step;

/// What this process is in, by list: prepared, or up.
std::map<std::uint64_t, std::unique_ptr<Backend>>& communicators() {
  static auto* const all = new std::map<std::uint64_t, std::unique_ptr<Backend>>;
  return *all;
}

/// Leaves the communicator of a list, if there is one.
void leave(std::uint64_t list) {
  const auto found = communicators().find(list);
  if (found == communicators().end()) return;
  const std::unique_ptr<Backend> backend = std::move(found->second);
  communicators().erase(found);
  backend->destroy();
}

/// The same where it has failed: what goes wrong now is of no interest.
void leave_quietly(std::uint64_t list) noexcept {
  try {
    leave(list);
  } catch (const std::exception&) {
  }
}

/// One rank's task and its place on the board.
class RankTask {
 public:
  explicit RankTask(WorkerTask& task)
      : task_(task),
        board_(task.data<std::byte>(0)),
        list_(task.scalar<std::uint64_t>(0)),
        rank_(task.scalar<std::uint32_t>(1)) {}

  /// Does `steps`. If that fails it tells the others and leaves.
  template <class Steps>
  void run(const Steps& steps) {
    try {
      steps();
    } catch (const Cancelled&) {
      leave_quietly(list_);  // It was another rank that failed.
      throw;
    } catch (...) {
      board_.fail(rank_, base::message_of(std::current_exception()));
      leave_quietly(list_);
      throw;
    }
  }
  void begin(Step step) noexcept { board_.begin(rank_, step); }
  [[nodiscard]] BringUpBoard& board() noexcept { return board_; }
  [[nodiscard]] std::uint64_t list() const noexcept { return list_; }
  [[nodiscard]] std::uint32_t rank() const noexcept { return rank_; }
  /// Waits for all ranks. Throws Cancelled if one has failed.
  void meet() {
    const auto cancelled = [](const void* task) {
      return static_cast<const WorkerTask*>(task)->cancelled();
    };
    if (board_.meet(cancelled, &task_)) return;
    const auto failed = board_.first_failed();
    throw Cancelled(failed
                        ? fmt::format("rank {} failed: {}", *failed, board_.progress(*failed).text)
                        : std::string("the bring-up was cancelled"));
  }

 private:
  WorkerTask& task_;
  BringUpBoard board_;
  const std::uint64_t list_;
  const std::uint32_t rank_;
};

}  // namespace

void prepare_rank(WorkerTask& task) {
  RankTask rank(task);
  rank.run([&] {
    if (communicators().contains(rank.list())) {
      rank.begin(Step::destroy);
      leave(rank.list());
    }
    rank.begin(Step::load_library);
    auto backend = make_backend(parse_backend(rank.board().backend()));
    if (rank.rank() == 0) {
      rank.begin(Step::root_info);
      task.set_value(backend->root_info());
    }
    communicators()[rank.list()] = std::move(backend);
    rank.board().set_through(rank.rank());
  });
}

void init_rank(WorkerTask& task) {
  RankTask rank(task);
  rank.run([&] {
    Backend& backend = *communicators().at(rank.list());
    rank.begin(Step::init);
    backend.init(rank.board().root_info(), rank.rank(), rank.board().ranks());
    rank.begin(Step::barrier);
    backend.barrier();
    rank.meet();
    rank.board().set_through(rank.rank());
  });
}

void destroy_rank(WorkerTask& task) {
  RankTask rank(task);
  rank.run([&] {
    rank.begin(Step::destroy);
    leave(rank.list());
    rank.board().set_through(rank.rank());
  });
}

void attach_rank(WorkerTask& task) {
  RankTask rank(task);
  rank.run([&] {
    rank.begin(Step::attach);
    auto& context = *task.data<DomainContext>(1);
    auto* const self = reinterpret_cast<std::byte*>(&context);
    for (std::uint32_t of = 0; of < context.size; ++of) {
      std::ptrdiff_t distance = 0;
      std::memcpy(&distance, &context.windows[of], sizeof distance);
      context.windows[of] = self + distance;
    }
    context.services = &services();
    rank.board().set_through(rank.rank());
  });
}

}  // namespace strata::comm
