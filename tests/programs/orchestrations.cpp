// Orchestrations that next-level workers run. Part of libstrata_test_tasks.so; what they use of
// Strata is found in the program that loads it.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "beside.hpp"
#include "strata/worker.hpp"
#include "task_begun.hpp"
#include "task_names.hpp"

using strata::Call;
using strata::Callable;
using strata::on;

namespace {
Callable own(std::string symbol) {
  return Callable::in_library(strata_test::beside("libstrata_test_tasks.so"), std::move(symbol));
}
}  // namespace

/// Scalars: levels below the next-level worker that runs this, number of a task (kTaskNames), its
/// scalar; tensor 0, if any, is handed on. At the last level a sub worker runs the task.
STRATA_WORKER_ORCHESTRATION(descend) {
  const auto levels = task.scalar<std::int64_t>(0);
  const auto number = task.scalar<std::int64_t>(1);
  const auto argument = task.scalar<std::int64_t>(2);
  std::vector<strata::TensorArg> tensors;
  if (task.tensor_count() > 0) tensors.push_back(inout(task.as_tensor(0)));
  strata::TaskSpec spec;
  spec.tensors = tensors;
  std::vector<strata::Scalar> scalars;
  if (levels > 0) {
    scalars = {strata::scalar(levels - 1), strata::scalar(number), strata::scalar(argument)};
    spec.body = Call(worker.add(own("descend").as_orchestration()));
    spec.target = on(worker.any_next());
    spec.name = "descend";
  } else {
    const auto name = strata::test::kTaskNames[static_cast<std::size_t>(number)];
    scalars = {strata::scalar(argument)};
    spec.body = Call(worker.add(own(std::string(name))));
    spec.target = on(worker.any_sub());
    spec.name = name;
  }
  spec.scalars = scalars;
  run.submit_task(spec);
}

/// inout float32 of a multiple of 4 elements, scalar float: scales each quarter in a sub worker.
STRATA_WORKER_ORCHESTRATION(scale_in_quarters) {
  const auto scale = worker.add(own("scale"));
  const strata::Tensor& all = task.as_tensor(0);
  const std::int64_t quarter = all.extent(0) / 4;
  for (std::int64_t i = 0; i < 4; ++i) {
    const strata::Tensor part = all.slice(0, i * quarter, (i + 1) * quarter);
    run.submit(Call(scale), inout(part), strata::scalar(task.scalar<float>(0)),
               on(worker.any_sub()));
  }
}

/// Throws without having submitted anything. Scalar int64: how many bytes.
STRATA_WORKER_ORCHESTRATION(fail_in_orchestration) {
  throw std::runtime_error(
      strata::test::text_of(static_cast<std::size_t>(task.scalar<std::int64_t>(0))));
}
