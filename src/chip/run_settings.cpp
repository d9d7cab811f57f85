#include "chip/run_settings.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "base/duration_text.hpp"
#include "chip/chip_runtime.hpp"
#include "graph/heap.hpp"
#include "graph/task_window.hpp"

namespace strata::chip {

namespace {

[[noreturn]] void refuse(const std::string& why) {
  throw ChipError(ErrorCode::bad_configuration, why);
}

/// A positive number, with K, M or G behind it for powers of 1024.
std::size_t number_in(const char* variable, std::string_view text) {
  std::size_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [behind, error] = std::from_chars(text.data(), end, value);
  std::string_view unit(behind, static_cast<std::size_t>(end - behind));
  int shift = 0;
  if (unit == "K") shift = 10;
  if (unit == "M") shift = 20;
  if (unit == "G") shift = 30;
  if (error != std::errc{} || value == 0 || (shift == 0 && !unit.empty()) ||
      value > (SIZE_MAX >> shift)) {
    refuse(
        fmt::format("the environment has {}='{}'; it must be a positive number such as 4096, "
                    "64K, 16M or 1G",
                    variable, text));
  }
  return value << shift;
}

std::optional<std::size_t> number_of(const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return std::nullopt;
  return number_in(variable, text);
}

}  // namespace

ChipRunOptions options_of_environment() {
  ChipRunOptions options;
  options.window = number_of("STRATA_CHIP_WINDOW");
  options.heap = number_of("STRATA_CHIP_HEAP");
  if (const auto threads = number_of("STRATA_CHIP_THREADS")) {
    if (*threads > kMaxThreads) {
      refuse(fmt::format("the environment has STRATA_CHIP_THREADS={}; at most {} make sense",
                         *threads, kMaxThreads));
    }
    options.threads = static_cast<unsigned>(*threads);
  }
  const char* const mode = std::getenv("STRATA_CHIP_MODE");
  if (mode == nullptr || *mode == '\0') return options;
  if (std::string_view(mode) == "device") {
    options.mode = OrchestrationMode::device;
  } else if (std::string_view(mode) == "host_graph") {
    options.mode = OrchestrationMode::host_graph;
  } else {
    refuse(fmt::format("the environment has STRATA_CHIP_MODE='{}'; it must be device or host_graph",
                       mode));
  }
  return options;
}

RunSettings settings_of(const ChipRunOptions& options, const ChipRunOptions& environment,
                        const Platform& platform) {
  const auto first = [](const auto& own, const auto& other, auto otherwise) {
    return own ? *own : other.value_or(otherwise);
  };
  return {.mode = first(options.mode, environment.mode, OrchestrationMode::device),
          .window = first(options.window, environment.window, platform.window),
          .heap = first(options.heap, environment.heap, platform.heap),
          .threads = first(options.threads, environment.threads, 0U)};
}

void validate(const ChipRunOptions& options, const Platform& platform) {
  if (options.window &&
      (*options.window == 0 || *options.window > graph::TaskWindow::kMaxCapacity)) {
    refuse(fmt::format("ChipRunOptions::window is {}; it must be between 1 and {} tasks",
                       *options.window, graph::TaskWindow::kMaxCapacity));
  }
  if (options.heap && (*options.heap < graph::Heap::kAlignment || *options.heap > kMaxHeap)) {
    refuse(fmt::format("ChipRunOptions::heap is {}; it must be between {} and {} bytes",
                       *options.heap, graph::Heap::kAlignment, kMaxHeap));
  }
  if (options.threads && (*options.threads == 0 || *options.threads > kMaxThreads)) {
    refuse(fmt::format("ChipRunOptions::threads is {}; it must be between 1 and {}",
                       *options.threads, kMaxThreads));
  }
  if (options.time_limit && options.time_limit->count() <= 0) {
    refuse(fmt::format("ChipRunOptions::time_limit is {}; it must be positive, or not be set",
                       base::duration_text(*options.time_limit)));
  }
  if (!options.dump_to.empty() && options.dump_to.string().front() != '/') {
    refuse(
        fmt::format("ChipRunOptions::dump_to '{}' is no absolute path: the chip's process may have "
                    "another current folder",
                    options.dump_to.string()));
  }
  if (platform.simulated) return;
  if (options.check) {
    refuse(
        fmt::format("ChipRunOptions::check: only simulated platforms check accesses, and {} is "
                    "none",
                    platform.name));
  }
  if (options.explore_seed) {
    refuse(
        fmt::format("ChipRunOptions::explore_seed: only simulated platforms explore schedules, "
                    "and {} is none",
                    platform.name));
  }
}

}  // namespace strata::chip
