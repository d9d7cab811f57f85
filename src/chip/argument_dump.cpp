#include "chip/argument_dump.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <system_error>

#include "base/access_name.hpp"
#include "base/exception_text.hpp"
#include "chip/element_value.hpp"
#include "chip/npy.hpp"
#include "chip/program/kernel_set.hpp"
#include "strata/error.hpp"

namespace strata::chip {

namespace {

namespace fs = std::filesystem;

fs::path make_folder(const ArgumentDump::Options& options) {
  fs::path folder =
      options.folder / fmt::format("{}.{}.{}", options.program, getpid(), options.run);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw Error(fmt::format("the folder for arguments of tasks, {}, can't be made: {}",
                            folder.string(), error.message()));
  }
  return folder;
}

/// A copy of the elements, row-major.
HostTensor copy_of(const TensorView& view) {
  HostTensor copy{.access = view.access(),
                  .dtype = view.dtype(),
                  .shape = {view.shape().begin(), view.shape().end()}};
  copy.bytes.resize(bytes_of(copy.dtype, copy.shape));
  if (copy.bytes.empty()) return copy;
  copy_elements(copy.dtype, view.shape(), view.strides(), view.data(), copy.bytes.data());
  return copy;
}

std::string kernels_of(const Launch& launch) {
  std::string names;
  for (const std::uint16_t kernel : launch.kernels()) {
    if (kernel == KernelId::kNone) continue;
    if (!names.empty()) names += " + ";
    names += launch.set()->kernels[kernel].name;
  }
  return names;
}

}  // namespace

ArgumentDump::ArgumentDump(const Options& options)
    : all_(options.all), folder_(make_folder(options)), list_(folder_ / "tasks.jsonl") {
  if (!list_) {
    throw Error(fmt::format("the list of dumped tasks, {}, can't be written",
                            (folder_ / "tasks.jsonl").string()));
  }
}

bool ArgumentDump::is_marked(const TaskContext& context, std::size_t argument,
                             const Launch& launch) const {
  return all_ || launch.all_dumped() ||
         (context.arguments().tensors[argument].flags & detail::kDumped) != 0;
}

void ArgumentDump::begin(DispatchId dispatch, const TaskContext& context, const Launch& launch) {
  Task task;
  task.context = &context;
  task.all = all_ || launch.all_dumped();
  // The condition of a task that has one is not the kernel's.
  const std::size_t count = context.tensor_count() - (launch.predicated() ? 1 : 0);
  for (std::size_t i = 0; i < count; ++i) {
    if (is_marked(context, i, launch)) task.arguments.push_back(i);
  }
  if (task.arguments.empty() && !task.all) return;
  task.kernels = kernels_of(launch);
  const std::lock_guard lock(mutex_);
  write(task, Moment::before);
  tasks_.insert_or_assign(dispatch.value, std::move(task));
}

void ArgumentDump::end(DispatchId dispatch, bool went_well) {
  const std::lock_guard lock(mutex_);
  const auto found = tasks_.find(dispatch.value);
  if (found == tasks_.end()) return;
  if (went_well) write(found->second, Moment::after);
  write_line(found->second, went_well);
  tasks_.erase(found);
}

void ArgumentDump::finish(const std::exception_ptr& run_error) {
  const std::lock_guard lock(mutex_);
  list_.flush();
  if (!list_ && failure_.empty()) failure_ = "the list of tasks could not be written";
  if (failure_.empty() || run_error != nullptr) return;
  throw Error(fmt::format("the arguments of tasks were not written whole to {}: {}",
                          folder_.string(), failure_));
}

template <class Write>
void ArgumentDump::try_to(const Write& write) {
  try {
    write();
  } catch (...) {
    if (failure_.empty()) failure_ = base::message_of(std::current_exception());
  }
}

std::string ArgumentDump::file_of(const Task& task, std::size_t argument, Moment moment) {
  return fmt::format("task-{:06}.{}.{}.npy", task.context->task().number(), argument,
                     moment == Moment::before ? "before" : "after");
}

void ArgumentDump::write(const Task& task, Moment moment) {
  const Access other = moment == Moment::before ? Access::out : Access::in;
  for (const std::size_t i : task.arguments) {
    const TensorView view = task.context->tensor(i);
    if (view.access() == other) continue;
    try_to([&] { write_npy(folder_ / file_of(task, i, moment), copy_of(view)); });
  }
}

void ArgumentDump::write_line(const Task& task, bool went_well) {
  nlohmann::json tensors = nlohmann::json::array();
  for (const std::size_t i : task.arguments) {
    const TensorView view = task.context->tensor(i);
    nlohmann::json tensor = {{"argument", i},
                             {"access", base::name_of(view.access())},
                             {"dtype", strata::name_of(view.dtype())},
                             {"shape", view.shape()},
                             {"strides", view.strides()},
                             {"address", fmt::format("{}", fmt::ptr(view.data()))}};
    if (view.access() != Access::out) tensor["before"] = file_of(task, i, Moment::before);
    if (view.access() != Access::in && went_well) tensor["after"] = file_of(task, i, Moment::after);
    tensors.push_back(std::move(tensor));
  }
  nlohmann::json scalars = nlohmann::json::array();
  for (std::size_t i = 0; i < task.context->scalar_count(); ++i)
    scalars.push_back(task.context->scalar<std::uint64_t>(i));
  const nlohmann::json line = {{"task", task.context->task().number()},
                               {"name", task.context->name()},
                               {"kernels", task.kernels},
                               {"ended_well", went_well},
                               {"tensors", std::move(tensors)},
                               {"scalars", std::move(scalars)}};
  list_ << line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
}

}  // namespace strata::chip
