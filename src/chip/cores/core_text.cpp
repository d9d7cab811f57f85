#include "chip/cores/core_text.hpp"

#include <cxxabi.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <typeinfo>

#include "base/exception_text.hpp"
#include "chip/cores/core_pool_impl.hpp"
#include "chip/cores/kernel_services.hpp"
#include "chip/plain_text.hpp"
#include "comm/signal.hpp"
#include "os/cpu.hpp"
#include "strata/error.hpp"

namespace strata::chip {

std::string_view lane_text(ClusterLane lane) noexcept {
  switch (lane) {
    case ClusterLane::aic:
      return "AIC";
    case ClusterLane::aiv0:
      return "AIV 0";
    case ClusterLane::aiv1:
      return "AIV 1";
  }
  return "?";
}

std::string lanes_text(LaneMask lanes) {
  const bool aic = (lanes & mask_of(ClusterLane::aic)) != 0;
  const int aivs = ((lanes & mask_of(ClusterLane::aiv0)) != 0 ? 1 : 0) +
                   ((lanes & mask_of(ClusterLane::aiv1)) != 0 ? 1 : 0);
  if (aivs == 0) return "an AIC";
  const std::string vectors = aivs == 1 ? "an AIV" : "2 AIVs";
  if (!aic) return aivs == 1 ? vectors : vectors + " of one cluster";
  return "an AIC with " + vectors + " of one cluster";
}

std::string core_text(std::uint32_t core, std::uint32_t cluster, ClusterLane lane) {
  return fmt::format("core {} (cluster {}, {})", core, cluster, lane_text(lane));
}

const KernelEntry& kernel_of(const Place& place) noexcept {
  const Job& job = *place.job;
  if (job.lane_count > 1) return job.set->kernels[job.kernels[index_of(place.lane)]];
  // A task for one AIV names it as the first, wherever it runs.
  std::uint16_t kernel = KernelId::kNone;
  for (const std::uint16_t id : job.kernels) {
    if (id != KernelId::kNone) kernel = id;
  }
  return job.set->kernels[kernel];
}

std::string block_text(const Place& place) {
  const Job& job = *place.job;
  std::string task = fmt::format("task {}", job.context->task().number());
  if (!job.context->name().empty()) task += fmt::format(" '{}'", job.context->name());
  return fmt::format("kernel '{}' of program '{}', {}, block {} of {}, {}", kernel_of(place).name,
                     job.set->program, task, place.block, place.blocks,
                     core_text(place.core, place.cluster, place.lane));
}

std::vector<std::string> argument_texts(const detail::ArgumentBlock& arguments) {
  std::vector<std::string> texts;
  texts.reserve(arguments.tensor_count);
  for (std::uint32_t i = 0; i < arguments.tensor_count; ++i) {
    const detail::TensorRecord& tensor = arguments.tensors[i];
    texts.push_back(
        fmt::format("{}[{}] at {}", name_of(tensor.dtype),
                    fmt::join(std::span<const std::int64_t>(tensor.dims, tensor.rank), ", "),
                    fmt::ptr(tensor.data)));
  }
  return texts;
}

std::string wait_text(const Place& place) {
  const std::uint32_t index = place.wait_index.load(std::memory_order_relaxed);
  switch (place.wait_kind.load(std::memory_order_relaxed)) {
    case WaitKind::none:
      return {};
    case WaitKind::flag:
      return fmt::format("its flag {}, which another lane of cluster {} sets", index,
                         place.cluster);
    case WaitKind::push:
      return fmt::format("room in pipe {} of cluster {}", index, place.cluster);
    case WaitKind::pop:
      return fmt::format("a message in pipe {} of cluster {}", index, place.cluster);
    case WaitKind::barrier: {
      Meeting& meeting = place.job->meeting;
      std::uint32_t arrived = 0;
      {
        const std::lock_guard lock(meeting.mutex);
        arrived = meeting.arrived;
      }
      return fmt::format("the barrier of its task, where {} of {} lanes are", arrived,
                         place.blocks * place.lanes);
    }
    case WaitKind::signal: {
      const Signal* const signal = place.wait_signal.load(std::memory_order_relaxed);
      return fmt::format("the signal at {} to be {} {}", fmt::ptr(signal),
                         comm::sign_of(static_cast<Compare>(index)),
                         place.wait_operand.load(std::memory_order_relaxed));
    }
  }
  return {};
}

namespace {

std::exception_ptr threw(const Place& place, const std::string& what) {
  const std::vector<std::string> arguments = argument_texts(place.arguments);
  return std::make_exception_ptr(ChipError(
      ErrorCode::kernel_threw,
      fmt::format("{} threw {}; its arguments: {}", block_text(place), what,
                  arguments.empty() ? "none" : fmt::format("{}", fmt::join(arguments, ", ")))));
}

}  // namespace

std::exception_ptr kernel_error(const Place& place, const std::exception_ptr& thrown) {
  // All that leaves here is made here: the library of the kernel may be unloaded before the error
  // is looked at.
  try {
    std::rethrow_exception(thrown);
  } catch (const DeadlineExceeded& error) {
    return std::make_exception_ptr(DeadlineExceeded(error.what()));
  } catch (const Cancelled& error) {
    return std::make_exception_ptr(Cancelled(error.what()));
  } catch (const KernelMisuse& error) {
    return std::make_exception_ptr(ChipError(ErrorCode::kernel_misuse, error.text()));
  } catch (const std::exception& error) {
    return threw(place, fmt::format("{}: {}", base::type_text(typeid(error)), error.what()));
  } catch (...) {
    const std::type_info* const type = abi::__cxa_current_exception_type();
    return threw(place, type == nullptr
                            ? "an exception of another language"
                            : fmt::format("a value of type {}", base::type_text(*type)));
  }
}

// ---- Reports ------------------------------------------------------------------------------------

std::vector<CoreStatus> CorePool::Impl::status() const {
  std::vector<CoreStatus> all;
  for (const Place& its_place : schedule_.places()) {
    auto& place = const_cast<Place&>(its_place);
    if (!place.gate.begin_view()) continue;
    const Job& job = *place.job;
    CoreStatus& core = all.emplace_back();
    switch (place.state.load(std::memory_order_relaxed)) {
      case Place::State::idle:
      case Place::State::allotted:
        core.state = CoreStatus::State::allotted;
        break;
      case Place::State::running:
        core.state = CoreStatus::State::running;
        break;
      case Place::State::waiting:
        core.state = CoreStatus::State::waiting;
        break;
    }
    core.core = place.core;
    core.cluster = place.cluster;
    core.lane = place.lane;
    core.task = job.context->task();
    core.task_name = job.context->name();
    core.kernel = kernel_of(place).name;
    core.block = place.block;
    core.blocks = place.blocks;
    core.waits_for = wait_text(place);
    core.arguments = argument_texts(place.arguments);
    const Runner* const runner = place.runner.load(std::memory_order_acquire);
    if (runner != nullptr && core.state != CoreStatus::State::allotted) {
      core.thread = runner->thread.load(std::memory_order_relaxed);
    }
    const std::uint64_t since = place.since.load(std::memory_order_relaxed);
    place.gate.end_view();
    const std::uint64_t now = os::cycle_count();
    core.since = std::chrono::nanoseconds(static_cast<std::int64_t>(
        now > since ? static_cast<double>(now - since) / os::cycles_per_ns() : 0.0));
  }
  return all;
}

std::string_view name_of(CoreStatus::State state) noexcept {
  switch (state) {
    case CoreStatus::State::idle:
      return "idle";
    case CoreStatus::State::allotted:
      return "allotted";
    case CoreStatus::State::running:
      return "running";
    case CoreStatus::State::waiting:
      return "waiting";
  }
  return "?";
}

std::string CoreStatus::to_string() const {
  std::string text = core_text(core, cluster, lane);
  switch (state) {
    case State::idle:
      return text + " is idle";
    case State::allotted:
      text += " is to begin";
      break;
    case State::running:
      text += " runs";
      break;
    case State::waiting:
      text += " waits for " + waits_for + " in";
      break;
  }
  text += fmt::format(" kernel '{}', task {}", kernel, task.number());
  if (!task_name.empty()) text += fmt::format(" '{}'", task_name);
  return text + fmt::format(", block {} of {}", block, blocks);
}

// ---- Crash records ------------------------------------------------------------------------------

std::size_t describe_current_block(char* to, std::size_t bytes) noexcept {
  const Runner* const runner = current_runner;
  const Place* const place = runner == nullptr ? nullptr : runner->place;
  if (place == nullptr) return 0;
  const Job& job = *place->job;
  PlainText text(to, bytes);
  text << "kernel '" << kernel_of(*place).name << "' of program '" << job.set->program << "', task "
       << job.context->task().number();
  if (!job.context->name().empty()) text << " '" << job.context->name() << "'";
  text << ", block " << std::uint64_t{place->block} << " of " << std::uint64_t{place->blocks}
       << ", core " << std::uint64_t{place->core} << " (cluster " << std::uint64_t{place->cluster}
       << ", " << lane_text(place->lane) << "); its arguments:";
  for (std::uint32_t i = 0; i < place->arguments.tensor_count; ++i) {
    const detail::TensorRecord& tensor = place->arguments.tensors[i];
    text << (i == 0 ? " " : ", ") << name_of(tensor.dtype) << "[";
    for (int dim = 0; dim < tensor.rank; ++dim) {
      text << (dim == 0 ? "" : ", ") << static_cast<std::uint64_t>(tensor.dims[dim]);
    }
    (text << "] at ").hexadecimal(reinterpret_cast<std::uintptr_t>(tensor.data));
  }
  if (place->arguments.tensor_count == 0) text << " none";
  return text.size();
}

}  // namespace strata::chip
