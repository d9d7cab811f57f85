#include "chip/orchestration_state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "chip/check/check.hpp"
#include "chip/element_value.hpp"

namespace strata::chip {

namespace {

std::string_view name_of(CoreType core) { return core == CoreType::aic ? "AIC" : "AIV"; }

/// In front of a line of the log.
std::string_view level_text(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return "debug: ";
    case LogLevel::warning:
      return "warning: ";
    case LogLevel::error:
      return "error: ";
    default:
      return {};
  }
}

bool is_integer(DType dtype) {
  switch (dtype) {
    case DType::boolean:
    case DType::int8:
    case DType::uint8:
    case DType::int16:
    case DType::uint16:
    case DType::int32:
    case DType::uint32:
    case DType::int64:
    case DType::uint64:
      return true;
    default:
      return false;
  }
}

std::string_view first_kernel(const Launch& launch) {
  for (const std::uint16_t id : launch.kernels()) {
    if (id != KernelId::kNone) return launch.set()->kernels[id].name;
  }
  return {};
}

void check_dtype(const Tensor& tensor, DType dtype, std::string_view call) {
  if (tensor.dtype() == dtype) return;
  throw InvalidArgument(fmt::format("ChipOrchestration::{}: the tensor holds {}, not {}", call,
                                    strata::name_of(tensor.dtype()), strata::name_of(dtype)));
}

/// The element of the tensor at `index`, or at (0, 0, ...) if that is empty; of rank 0, as bits.
Tensor element_of(const Tensor& tensor, std::span<const std::int64_t> index, DType dtype,
                  std::string_view call) {
  check_dtype(tensor, dtype, call);
  if (!index.empty() && index.size() != static_cast<std::size_t>(tensor.rank())) {
    throw InvalidArgument(fmt::format("ChipOrchestration::{}: {} indices for {}", call,
                                      index.size(), tensor.to_string()));
  }
  Tensor element = tensor;
  for (int d = 0; d < tensor.rank(); ++d)
    element = element.select(0, index.empty() ? 0 : index[static_cast<std::size_t>(d)]);
  return element;
}

/// Calls `access` with a zero of the unsigned type that has `bytes` bytes.
template <class Access>
void with_bits_of(std::size_t bytes, Access&& access) {
  switch (bytes) {
    case 1:
      return access(std::uint8_t{});
    case 2:
      return access(std::uint16_t{});
    case 4:
      return access(std::uint32_t{});
    default:
      return access(std::uint64_t{});
  }
}

}  // namespace

std::string OrchestrationState::what() const {
  return fmt::format("chip program '{}'", scene_.program->info().name);
}

// ---- Arguments and kernels ----------------------------------------------------------------------

const Tensor& OrchestrationState::tensor(std::size_t i) {
  if (i >= scene_.tensors.size()) {
    throw InvalidArgument(fmt::format("{}: there is no tensor argument {}; the run has {}", what(),
                                      i, scene_.tensors.size()));
  }
  if (whole_) return parameters_[i];
  if (notes_ != nullptr) notes_->uses_run_tensors = true;
  return scene_.tensors[i];
}

std::uint64_t OrchestrationState::scalar_bits(std::size_t i) {
  if (i >= scene_.scalars.size()) {
    throw InvalidArgument(fmt::format("{}: there is no scalar argument {}; the run has {}", what(),
                                      i, scene_.scalars.size()));
  }
  if (notes_ != nullptr) notes_->run_read[i] = true;
  return scene_.scalars[i];
}

KernelId OrchestrationState::kernel(std::string_view name) const {
  const auto& kernels = scene_.program->kernels().kernels;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    if (kernels[i].name == name) return KernelId{static_cast<std::uint16_t>(i)};
  }
  std::string known;
  for (const KernelEntry& entry : kernels)
    known += (known.empty() ? "'" : ", '") + entry.name + "'";
  throw ChipError(ErrorCode::unknown_kernel,
                  fmt::format("{} has no kernel '{}'; it has {}", what(), name,
                              known.empty() ? "none at all" : known));
}

Launch OrchestrationState::launch(std::array<KernelId, 3> ids) const {
  const KernelSet& set = scene_.program->kernels();
  std::array<std::uint16_t, 3> kernels{};
  for (std::size_t lane = 0; lane < ids.size(); ++lane) {
    kernels[lane] = ids[lane].value;
    if (ids[lane].value == KernelId::kNone) continue;
    if (ids[lane].value >= set.kernels.size()) {
      throw ChipError(ErrorCode::unknown_kernel,
                      fmt::format("{} has no kernel with function id {}; its {} kernels are "
                                  "numbered from 0",
                                  what(), ids[lane].value, set.kernels.size()));
    }
    const KernelEntry& entry = set.kernels[ids[lane].value];
    const CoreType core = lane == 0 ? CoreType::aic : CoreType::aiv;
    if (entry.core == core) continue;
    throw ChipError(ErrorCode::wrong_core,
                    fmt::format("{}: kernel '{}' is for an {}, and can't run on an {}", what(),
                                entry.name, name_of(entry.core), name_of(core)));
  }
  return {set, kernels};
}

// ---- Tasks --------------------------------------------------------------------------------------

/// How many blocks of a launch the chip can run at once.
static std::uint32_t room_for(const Launch& launch, const Platform& platform) {
  const auto used = [&](std::size_t lane) { return launch.kernels()[lane] != KernelId::kNone; };
  const unsigned aics = used(0) ? 1 : 0;
  const unsigned aivs = (used(1) ? 1U : 0U) + (used(2) ? 1U : 0U);
  if (platform.single_core_clusters) return platform.clusters;
  if (aics + aivs == 1) return aics != 0 ? platform.aics() : platform.aivs();
  // All lanes of a block are of one cluster.
  std::uint32_t per_cluster = ~0U;
  if (aics != 0) per_cluster = platform.aics_per_cluster / aics;
  if (aivs != 0) per_cluster = std::min(per_cluster, platform.aivs_per_cluster / aivs);
  return platform.clusters * per_cluster;
}

void OrchestrationState::check_room(const Launch& launch) const {
  const std::uint32_t room = room_for(launch, *scene_.platform);
  if (room != 0 && (!launch.starts_together() || launch.block_count() <= room)) return;
  throw ChipError(
      ErrorCode::too_many_blocks,
      fmt::format("{}: kernel '{}' is to run as {} blocks{}, but {} has room for {} at once{}",
                  what(), first_kernel(launch), launch.block_count(),
                  launch.starts_together() ? " that start together" : "",
                  scene_.platform->to_string(), room,
                  room == 0 ? ": its clusters lack a lane that the task needs"
                            : "; submit fewer blocks, or leave out together()"));
}

void OrchestrationState::check_condition(const Launch& launch, const TaskSpec& spec) const {
  const Tensor* const tensor = spec.tensors.empty() ? nullptr : spec.tensors.back().tensor;
  if (tensor != nullptr && spec.tensors.back().access == Access::in &&
      is_integer(tensor->dtype()) && tensor->elements() != 0) {
    return;
  }
  throw InvalidArgument(fmt::format(
      "{}: the condition of a task of kernel '{}' must be an integer tensor of one element or "
      "more, given behind all others; it is {}",
      what(), first_kernel(launch), tensor == nullptr ? "missing" : tensor->to_string()));
}

/// Checks the launch and names the task after its kernel.
void OrchestrationState::prepare_launch(TaskSpec& spec) const {
  const Launch* const launch = spec.body.target<Launch>();
  if (launch == nullptr) {
    throw InvalidArgument(
        what() +
        ": the body of a task of a chip is a launch of kernels (chip.aic(), aiv(), mixed()) or "
        "nullptr, for a task of edges only");
  }
  if (launch->set() != &scene_.program->kernels()) {
    throw InvalidArgument(what() + ": a launch of another chip program can't be submitted here");
  }
  check_room(*launch);
  if (launch->predicated()) check_condition(*launch, spec);
  if (spec.name.empty()) spec.name = first_kernel(*launch);
  std::uint32_t initial = 0;
  for (std::size_t i = 0; i < std::min<std::size_t>(spec.tensors.size(), 32); ++i) {
    const TensorArg& arg = spec.tensors[i];
    if (arg.fill != nullptr && !arg.tensor->has_storage()) initial |= 1U << i;
  }
  if (launch->block_count() == 0) {
    spec.body.reset();  // Nothing to run, and its outputs are what they are.
  } else if (initial != 0) {
    spec.body = Body(launch->with_initial_values(initial));
  }
}

/// Outputs that get their storage with this task: those of no elements have some already, and
/// checking mode poisons the others.
void OrchestrationState::prepare_outputs(TaskSpec& spec) {
  const auto fresh = [](const TensorArg& arg) {
    return arg.allocate != nullptr && !arg.tensor->has_storage();
  };
  bool change = false;
  for (const TensorArg& arg : spec.tensors) {
    change = change || (fresh(arg) && (scene_.check || arg.tensor->elements() == 0));
  }
  if (!change) return;
  args_.assign(spec.tensors.begin(), spec.tensors.end());
  for (TensorArg& arg : args_) {
    if (!fresh(arg)) continue;
    if (arg.tensor->elements() == 0) {
      *arg.allocate =
          Tensor(scene_.engine->empty_buffer(), 0, arg.tensor->dtype(), arg.tensor->shape());
    } else if (scene_.check && arg.fill == nullptr) {
      arg.fill = poison_of(arg.tensor->dtype());
    }
  }
  spec.tensors = args_;
}

TaskId OrchestrationState::submit_task(TaskSpec& spec) {
  if (spec.body) prepare_launch(spec);
  prepare_outputs(spec);
  spec.target = {};
  if (notes_ == nullptr) {
    scene_.gathering->submitting();
    return target_.submit_task(spec);
  }
  if (whole_ && notes_->tasks.size() >= kMaxWholeTasks) {
    refuse_while_recording("submit", "so many tasks are not kept");
  }
  return notes_->tasks.emplace_back(target_.submit_task(spec));
}

Allocation OrchestrationState::allocate(std::span<const NewTensor> tensors) {
  Allocation made;
  made.tensors.reserve(tensors.size());
  std::vector<TensorArg> args;
  args.reserve(tensors.size());
  for (const NewTensor& wanted : tensors) {
    Tensor& tensor = made.tensors.emplace_back(wanted.dtype, wanted.shape);
    args.push_back(out(tensor, wanted.fill));
  }
  TaskSpec spec;
  spec.name = "allocate";
  spec.tensors = args;
  made.task = submit_task(spec);
  return made;
}

Tensor OrchestrationState::external(void* data, DType dtype, std::span<const std::int64_t> shape) {
  refuse_while_recording("external", "name the memory outside, and pass the tensor on");
  const Tensor wanted(scene_.engine->empty_buffer(), 0, dtype, shape);
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  const auto bytes = static_cast<std::uintptr_t>(wanted.bytes());
  if (bytes == 0) return wanted;
  if (data == nullptr || begin + bytes < begin) {
    throw InvalidArgument(
        fmt::format("{}: external memory of {} bytes at {} can't be", what(), bytes, data));
  }
  const AddressRange range{begin, begin + bytes};
  for (const KnownMemory& known : scene_.memory) {
    const auto place = reinterpret_cast<std::uintptr_t>(known.place);
    const AddressRange on_chip{place, place + known.range.bytes()};
    for (const AddressRange& there : {known.range, on_chip}) {
      if (there.contains(range)) {
        return {known.buffer, static_cast<std::int64_t>(begin - there.begin), dtype, shape};
      }
      if (there.overlaps(range)) {
        throw InvalidArgument(fmt::format(
            "{}: the external memory of {} bytes at {} is in part that of an argument, or of what "
            "was named before ({} bytes at {:#x}); name all of it at once, first",
            what(), bytes, data, there.bytes(), there.begin));
      }
    }
  }
  const BufferId buffer = scene_.engine->buffer(range, scene_.number);
  scene_.memory.push_back({range, static_cast<std::byte*>(data), buffer});
  return {buffer, 0, dtype, shape};
}

// ---- Values -------------------------------------------------------------------------------------

void OrchestrationState::refuse_while_recording(std::string_view call, std::string_view instead) {
  if (notes_ == nullptr) return;
  std::string why = fmt::format("{}: {} does what can't be recorded: ChipOrchestration::{}; {}",
                                what(), notes_->what, call, instead);
  if (notes_->refused.empty()) notes_->refused = why;
  throw ChipError(ErrorCode::not_recordable, why);
}

static constexpr std::string_view kNoValues =
    "what it saw would be frozen into the recording; do it outside of graph()";

void OrchestrationState::wait(const Tensor& tensor) {
  refuse_while_recording("wait", kNoValues);
  scene_.gathering->let_go();
  target_.wait(tensor);
}

void OrchestrationState::wait(TaskId task) {
  refuse_while_recording("wait", kNoValues);
  scene_.gathering->let_go();
  target_.wait(task);
}

void OrchestrationState::read_element(const Tensor& tensor, std::span<const std::int64_t> index,
                                      DType dtype, void* value) {
  refuse_while_recording("read", kNoValues);
  const Tensor element = element_of(tensor, index, dtype, "read");
  scene_.gathering->let_go();
  with_bits_of(size_of(dtype), [&](auto zero) {
    using Bits = decltype(zero);
    const Bits bits = target_.read<Bits>(element.as(dtype_of<Bits>));
    std::memcpy(value, &bits, sizeof(bits));
  });
}

/// Where the chip has element (0, 0, ...) of the tensor, as long as `kept` lives.
const std::byte* OrchestrationState::address_of(const Tensor& tensor, TensorHandle& kept) {
  for (const KnownMemory& known : scene_.memory) {
    if (known.buffer == tensor.buffer()) return known.place + tensor.byte_offset();
  }
  kept = target_.keep(tensor);
  return kept.data();
}

void OrchestrationState::read_elements(const Tensor& tensor, DType dtype, std::byte* values) {
  refuse_while_recording("read_all", kNoValues);
  check_dtype(tensor, dtype, "read_all");
  if (tensor.elements() == 0) return;
  scene_.gathering->let_go();
  target_.wait(tensor);
  // Whoever writes it later is submitted later, by this thread.
  TensorHandle kept;
  copy_elements(tensor.dtype(), tensor.shape(), tensor.strides(), address_of(tensor, kept), values);
}

void OrchestrationState::write_element(const Tensor& tensor, std::span<const std::int64_t> index,
                                       DType dtype, const void* value) {
  refuse_while_recording("write", kNoValues);
  const Tensor element = element_of(tensor, index, dtype, "write");
  scene_.gathering->let_go();
  with_bits_of(size_of(dtype), [&](auto bits) {
    std::memcpy(&bits, value, sizeof(bits));
    target_.write(element.as(dtype_of<decltype(bits)>), {}, bits);
  });
}

// ---- Else ---------------------------------------------------------------------------------------

void OrchestrationState::fail(std::int32_t code, const std::string& text) {
  const OrchestrationFailed error(code, text);
  if (scene_.given_up == nullptr) scene_.given_up = std::make_exception_ptr(error);
  live_.run().cancel();
  throw error;
}

void OrchestrationState::log(LogLevel level, std::string_view text) {
  if (level < scene_.log_level || level == LogLevel::off) return;
  std::string line = fmt::format("{}: {}{}", scene_.program->info().name, level_text(level), text);
  if (notes_ != nullptr) {
    notes_->log.push_back(std::move(line));
  } else if (scene_.log != nullptr && *scene_.log) {
    (*scene_.log)(line);
  }
}

}  // namespace strata::chip
