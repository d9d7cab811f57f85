// OpenMP `task depend`; built once with g++ (libgomp) and once with clang++ (libomp).
#include <omp.h>

#include "peer.hpp"

namespace strata::bench {

// Waiting threads spin for good: both runtimes are fastest so.
const std::vector<EnvironmentSetting> kEnvironment = {
    {"OMP_WAIT_POLICY", "active"},  {"OMP_PROC_BIND", "true"},     {"OMP_DYNAMIC", "false"},
    {"GOMP_SPINCOUNT", "infinite"}, {"KMP_BLOCKTIME", "infinite"},
};

namespace {

/// What stands for a region: its address is all that OpenMP looks at.
struct alignas(64) Line {
  char byte;
};

class OpenMpAdapter final : public Adapter {
 public:
  explicit OpenMpAdapter(unsigned threads) : threads_(static_cast<int>(threads)) {
    // A team of one may run each task at once and infer nothing.
    if (threads_ == 1) deferred_ = tasks_of_a_team_of_one_are_deferred();
  }
  bool infers() override { return deferred_; }
  std::string note() override {
    return deferred_ ? "" : "a team of one runs each task at once and looks at no dependency";
  }

  void prepare(const Workload& workload) override {
    lines_ = std::vector<Line>(workload.regions);
    regions_.clear();
    tasks_.clear();
    for (std::size_t i = 0; i < workload.tasks(); ++i) {
      Task task{.first = static_cast<std::uint32_t>(regions_.size())};
      for (const WorkAccess a : workload.accesses_of(i)) {
        if (a.mode == Mode::read) regions_.push_back(a.region), ++task.reads;
      }
      for (const WorkAccess a : workload.accesses_of(i)) {
        if (a.mode != Mode::read) regions_.push_back(a.region), ++task.writes;
      }
      tasks_.push_back(task);
    }
  }

  void run() override {
#pragma omp parallel num_threads(threads_)
#pragma omp single
    submit_all();
  }

 private:
  /// `reads` regions that are read, then `writes` that are written, from regions_[first] on.
  struct Task {
    std::uint32_t first = 0, reads = 0, writes = 0;
  };

  static bool tasks_of_a_team_of_one_are_deferred() {
    bool deferred = true;
    [[maybe_unused]] Line line;
#pragma omp parallel num_threads(1)
#pragma omp single
    {
      bool executed = false;
#pragma omp task shared(executed) depend(out : line)
      executed = true;
      deferred = !executed;
#pragma omp taskwait
    }
    return deferred;
  }

  void submit_all() {
    const auto count = static_cast<std::uint32_t>(tasks_.size());
    for (std::uint32_t i = 0; i < count; ++i)
      submit(i, tasks_[i]);
  }

  // The common counts are spelt out: both compilers then fill an array on the stack without a loop.
  void submit(std::uint32_t i, Task task) {
    [[maybe_unused]] Line* const line = lines_.data();  // depend clauses count as no use
    const std::uint32_t* const read = regions_.data() + task.first;
    const std::uint32_t* const write = read + task.reads;
    if (task.writes == 1 && task.reads == 0) {
#pragma omp task firstprivate(i) depend(inout : line[write[0]])
      execute(i);
    } else if (task.writes == 1 && task.reads == 1) {
#pragma omp task firstprivate(i) depend(in : line[read[0]]) depend(inout : line[write[0]])
      execute(i);
    } else if (task.writes == 1 && task.reads == 2) {
#pragma omp task firstprivate(i) depend(in                                           \
                                        : line[read[0]], line[read[1]]) depend(inout \
                                                                               : line[write[0]])
      execute(i);
    } else if (task.writes == 1 && task.reads == 3) {
#pragma omp task firstprivate(i) depend(in                                             \
                                        : line[read[0]], line[read[1]], line[read[2]]) \
    depend(inout                                                                       \
           : line[write[0]])
      execute(i);
    } else {
#pragma omp task firstprivate(i) depend(iterator(unsigned k = 0                          \
                                                 : task.reads),                          \
                                        in                                               \
                                        : line[read[k]]) depend(iterator(unsigned k = 0  \
                                                                         : task.writes), \
                                                                inout                    \
                                                                : line[write[k]])
      execute(i);
    }
  }

  int threads_;
  bool deferred_ = true;
  std::vector<Line> lines_;
  std::vector<std::uint32_t> regions_;
  std::vector<Task> tasks_;
};

}  // namespace

std::unique_ptr<Adapter> make_adapter(unsigned threads) {
  return std::make_unique<OpenMpAdapter>(threads);
}

}  // namespace strata::bench
