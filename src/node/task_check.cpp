#include "node/task_check.hpp"

#include <utility>

#include "chip/chip_runtime.hpp"
#include "node/program_call.hpp"
#include "strata/chip_error.hpp"

namespace strata::node {

void TaskCheck::set_chips(std::vector<bool> lanes, std::uint32_t kind) {
  lane_is_chip_ = std::move(lanes);
  chip_kind_ = kind;
}

bool TaskCheck::for_chips(const Target& target) const noexcept {
  if (target.by == Target::By::kind) return target.index == chip_kind_;
  return target.index < lane_is_chip_.size() && lane_is_chip_[target.index];
}

void TaskCheck::check(TaskSpec& task) const {
  const Call* call = task.body.target<Call>();
  if (call == nullptr) {
    // One that was refused after it had been looked at, and comes again.
    if (const auto* const kept = task.body.target<ProgramCall>()) call = &kept->call();
  }
  if (call != nullptr) {
    if (const KnownProgram* const program = callables_.program(call->callable())) {
      check_program(task, *call, *program);
    }
  }
  memory_.check(task);
  domains_.check(task);
}

void TaskCheck::check_program(TaskSpec& task, const Call& call, const KnownProgram& program) const {
  const auto text = [&] {
    return "task" + (task.name.empty() ? "" : " '" + std::string(task.name) + "'") + " calls " +
           callables_.text_of(call.callable());
  };
  std::shared_ptr<const ProgramUse> use = program.use();
  if (use == nullptr) {
    throw ChipError(ErrorCode::removed_program,
                    text() + ", which was removed (Worker::remove): add it again");
  }
  if (!for_chips(task.target)) {
    throw InvalidArgument(text() +
                          ", which only chip workers run: give it on(worker.any_chip()) or"
                          " on(worker.chip(0))");
  }
  chip::check_signature(program.info(), task.tensors, task.scalars.size());
  task.body = Body(ProgramCall(call, std::move(use)));
}

}  // namespace strata::node
