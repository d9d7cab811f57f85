// StarPU: a codelet without work, a data handle per region, CPU workers only.
//
// The submitting thread is not a worker: there is one thread more than in the other peers.
#include <starpu.h>

#include <stdexcept>

#include "peer.hpp"

namespace strata::bench {

// Its calibration files belong in no user's home.
const std::vector<EnvironmentSetting> kEnvironment = {
    {"STARPU_SILENT", "1"},        {"STARPU_HOME", "/tmp/strata-bench-starpu"},
    {"STARPU_NCUDA", "0"},         {"STARPU_NOPENCL", "0"},
    {"STARPU_SCHED", "eager"},     {"STARPU_CALIBRATE", "0"},
    {"STARPU_BUS_CALIBRATE", "0"},
};

namespace {

void run_codelet(void**, void* argument) {
  execute(static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(argument)));
}

class StarPuAdapter final : public Adapter {
 public:
  explicit StarPuAdapter(unsigned threads) {
    starpu_conf conf;
    starpu_conf_init(&conf);
    conf.ncpus = static_cast<int>(threads);
    conf.ncuda = 0;
    conf.nopencl = 0;
    if (starpu_init(&conf) != 0) throw std::runtime_error("starpu_init failed");
    starpu_codelet_init(&codelet_);
    codelet_.cpu_funcs[0] = run_codelet;
    codelet_.nbuffers = STARPU_VARIABLE_NBUFFERS;
  }
  ~StarPuAdapter() override {
    unregister();
    starpu_shutdown();
  }
  std::string note() override { return "workers and a submitting thread"; }

  void prepare(const Workload& workload) override {
    unregister();
    workload_ = &workload;
    memory_.assign(workload.regions, 0);
    handles_.resize(workload.regions);
    for (std::size_t i = 0; i < handles_.size(); ++i) {
      starpu_variable_data_register(&handles_[i], STARPU_MAIN_RAM,
                                    reinterpret_cast<std::uintptr_t>(&memory_[i]), sizeof(double));
    }
  }
  void run() override {
    const auto count = static_cast<std::uint32_t>(workload_->tasks());
    for (std::uint32_t i = 0; i < count; ++i)
      submit(i);
    starpu_task_wait_for_all();
  }

  bool prepare_held(const Workload& workload) override {
    // Handles can't overlap, and tiles that don't are like any other region to StarPU.
    if (workload.grid > 0) return false;
    prepare(workload);
    return true;
  }
  Tenths submit_held() override {
    starpu_pause();
    const auto count = static_cast<std::uint32_t>(workload_->tasks());
    TenthsTimer timer(workload_->timed_from, count);
    for (std::uint32_t i = 0; i < count; ++i) {
      timer.lap(i);
      submit(i);
    }
    const Tenths tenths = timer.finish();
    starpu_resume();
    starpu_task_wait_for_all();
    return tenths;
  }

 private:
  static starpu_data_access_mode mode_of(Mode mode) {
    switch (mode) {
      case Mode::read:
        return STARPU_R;
      case Mode::write:
        return STARPU_W;
      case Mode::update:
        return STARPU_RW;
    }
    return STARPU_RW;
  }

  void submit(std::uint32_t i) {
    const std::span<const WorkAccess> accesses = workload_->accesses_of(i);
    starpu_task* task = starpu_task_create();
    task->cl = &codelet_;
    task->cl_arg = reinterpret_cast<void*>(std::uintptr_t{i});
    task->nbuffers = static_cast<int>(accesses.size());
    starpu_data_handle_t* handles = task->handles;
    starpu_data_access_mode* modes = task->modes;
    if (accesses.size() > STARPU_NMAXBUFS) {  // freed with the task
      handles = task->dyn_handles =
          static_cast<starpu_data_handle_t*>(std::malloc(accesses.size() * sizeof *handles));
      modes = task->dyn_modes =
          static_cast<starpu_data_access_mode*>(std::malloc(accesses.size() * sizeof *modes));
    }
    for (std::size_t k = 0; k < accesses.size(); ++k) {
      handles[k] = handles_[accesses[k].region];
      modes[k] = mode_of(accesses[k].mode);
    }
    if (starpu_task_submit(task) != 0) throw std::runtime_error("starpu_task_submit failed");
  }

  void unregister() {
    for (const starpu_data_handle_t handle : handles_)
      starpu_data_unregister(handle);
    handles_.clear();
  }

  starpu_codelet codelet_{};
  const Workload* workload_ = nullptr;
  std::vector<double> memory_;
  std::vector<starpu_data_handle_t> handles_;
};

}  // namespace

std::unique_ptr<Adapter> make_adapter(unsigned threads) {
  return std::make_unique<StarPuAdapter>(threads);
}

}  // namespace strata::bench
