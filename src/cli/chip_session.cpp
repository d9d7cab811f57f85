#include "cli/chip_session.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "strata/worker_error.hpp"

namespace strata::cli {
namespace {

/// The program, added with the options of one run. It is loaded once; this only says how it is run.
class ProgramWithOptions {
 public:
  ProgramWithOptions(ChipWorker& chip, const std::filesystem::path& file,
                     const ChipRunOptions& options)
      : chip_(chip), id_(chip.add(file.string(), options)) {}
  ~ProgramWithOptions() { chip_.remove(id_); }
  ProgramWithOptions(const ProgramWithOptions&) = delete;
  ProgramWithOptions& operator=(const ProgramWithOptions&) = delete;
  [[nodiscard]] CallableId id() const noexcept { return id_; }

 private:
  ChipWorker& chip_;
  CallableId id_;
};

ChipRunFacts facts_in(const std::string& text) {
  const auto stats = nlohmann::json::parse(text);
  return {.time = {},
          .tasks = stats.value("tasks", std::uint64_t{0}),
          .edges = stats.value("edges", std::uint64_t{0}),
          .heap_peak = stats.value("heap_peak_bytes", std::uint64_t{0})};
}

}  // namespace

ChipSession::ChipSession(std::filesystem::path program, const std::string& platform,
                         const chip::HostArguments& arguments)
    : program_(std::move(program)),
      // What a chip dies of is a warning there and the error of the run here: once is enough.
      chip_(ChipWorkerOptions{.chip = {.platform = platform}, .log_level = LogLevel::error}) {
  buffers_.reserve(arguments.tensors.size());
  for (const chip::HostTensor& tensor : arguments.tensors)
    buffers_.push_back(chip_.create_buffer(std::max<std::size_t>(tensor.bytes.size(), 1)));
  chip_.init();
}

ChipRunFacts ChipSession::run(chip::HostArguments& arguments, ChipRunOptions options) {
  std::vector<Tensor> tensors;
  std::vector<TensorArg> tensor_args;
  tensors.reserve(arguments.tensors.size());
  tensor_args.reserve(arguments.tensors.size());
  for (std::size_t i = 0; i < arguments.tensors.size(); ++i) {
    const chip::HostTensor& host = arguments.tensors[i];
    std::copy(host.bytes.begin(), host.bytes.end(), buffers_[i].data());
    tensors.push_back(buffers_[i].tensor(host.dtype, host.shape));
    tensor_args.push_back({.tensor = &tensors.back(), .access = host.access});
  }
  std::vector<Scalar> scalars;
  scalars.reserve(arguments.scalars.size());
  for (const std::uint64_t bits : arguments.scalars)
    scalars.push_back({.bits = bits});

  options.keep_stats = true;
  const ProgramWithOptions program(chip_, program_, options);
  const auto begun = std::chrono::steady_clock::now();
  TaskId id;
  const Run done = chip_.worker().run([&](Orchestration& run) {
    TaskSpec task;
    task.body = Body(Call(program.id()));
    task.target = on(chip_.lane());
    task.tensors = tensor_args;
    task.scalars = scalars;
    id = run.submit_task(task);
  });
  ChipRunFacts facts = facts_in(done.value(id).value_or("{}"));
  facts.time = std::chrono::steady_clock::now() - begun;
  for (std::size_t i = 0; i < arguments.tensors.size(); ++i) {
    std::vector<std::byte>& bytes = arguments.tensors[i].bytes;
    std::copy_n(buffers_[i].data(), bytes.size(), bytes.begin());
  }
  return facts;
}

std::string failure_text(const std::exception& error) {
  if (const auto* const run = dynamic_cast<const RunFailed*>(&error)) {
    if (!run->failed().empty() && run->failed().front().exception) {
      try {
        std::rethrow_exception(run->failed().front().exception);
      } catch (const std::exception& cause) {
        return failure_text(cause);
      } catch (...) {
        return error.what();
      }
    }
  }
  const auto* const remote = dynamic_cast<const RemoteError*>(&error);
  return remote != nullptr && !remote->fault().cause.empty() ? remote->fault().cause
                                                             : std::string(error.what());
}

}  // namespace strata::cli
