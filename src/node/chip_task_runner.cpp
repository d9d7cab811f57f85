#include "node/chip_task_runner.hpp"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "chip/current_orchestration.hpp"
#include "node/chip_options.hpp"
#include "node/exit_report.hpp"
#include "node/json_fields.hpp"
#include "trace/crash_handler.hpp"

namespace strata::node {
namespace {

/// A line of the log, as one write: lines of several threads stay whole.
void write_line(std::string_view text) {
  std::string line(text);
  line += '\n';
  for (std::size_t done = 0; done < line.size();) {
    const ssize_t written = ::write(STDERR_FILENO, line.data() + done, line.size() - done);
    if (written <= 0) return;
    done += static_cast<std::size_t>(written);
  }
}

std::string stats_text(const chip::ChipRunResult& result) {
  nlohmann::json stats = {{"tasks", result.stats.tasks},
                          {"edges", result.stats.edges},
                          {"heap_peak_bytes", result.stats.heap_peak_bytes}};
  if (!result.graph.empty()) stats["graph"] = text_to_json(result.graph);
  return stats.dump();
}

/// The earlier of two limits.
void limit(ChipRunOptions& options, std::chrono::nanoseconds time_limit) {
  if (time_limit.count() == 0) return;
  options.time_limit = std::min(options.time_limit.value_or(time_limit), time_limit);
}

}  // namespace

ChipTaskRunner::ChipTaskRunner(const Configuration& configuration, WorkerShared& shared)
    : configuration_(configuration),
      shared_(shared),
      platform_(Platform::parse(configuration.platform,
                                static_cast<unsigned>(configuration.cpus.size()))) {}

chip::ChipRuntime& ChipTaskRunner::runtime() {
  if (runtime_ == nullptr) {
    runtime_ =
        std::make_unique<chip::ChipRuntime>(chip::ChipRuntimeOptions{.platform = platform_,
                                                                     .cpus = configuration_.cpus,
                                                                     .budget = shared_.budget.get(),
                                                                     .log = write_line});
    trace::set_crash_note(chip::crash_note);
    report_exit(shared_, chip::describe_current_work);
  }
  return *runtime_;
}

void ChipTaskRunner::run(const TaskCall& call, WorkerTask::Services& services) {
  if (call.callable.program == nullptr) {
    call_function(call, services);
    return;
  }
  chip::ChipRunRequest request{
      .program = call.callable.program,
      .arguments = call.arguments,
      .name = call.place.name.empty() ? std::string_view(call.callable.name) : call.place.name,
      .options = merged(call.callable.run, configuration_.run),
      .cancelled = CancelToken::look,
      .token = &call.token};
  limit(request.options, call.time_limit);
  chip::ChipRunResult result = runtime().run(request);
  if (request.options.keep_stats) {
    services.value = stats_text(result);
  } else if (request.options.keep_graph) {
    services.value = std::move(result.graph);
  } else {
    return;
  }
  services.has_value = true;
}

void ChipTaskRunner::idle() {
  for (const auto& forgotten : shared_.forgotten.take()) {
    if (runtime_ != nullptr && forgotten->program != nullptr) runtime_->forget(*forgotten->program);
  }
}

}  // namespace strata::node
