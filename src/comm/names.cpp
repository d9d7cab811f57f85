#include "strata/comm_error.hpp"
#include "strata/domain_context.hpp"

namespace strata {

std::string_view name_of(ReduceOp op) noexcept {
  switch (op) {
    case ReduceOp::sum:
      return "sum";
    case ReduceOp::prod:
      return "prod";
    case ReduceOp::min:
      return "min";
    case ReduceOp::max:
      return "max";
  }
  return "?";
}

std::string_view name_of(CollectiveAlgorithm algorithm) noexcept {
  switch (algorithm) {
    case CollectiveAlgorithm::automatic:
      return "automatic";
    case CollectiveAlgorithm::one_phase:
      return "one_phase";
    case CollectiveAlgorithm::two_phase:
      return "two_phase";
    case CollectiveAlgorithm::ring:
      return "ring";
    case CollectiveAlgorithm::bidirectional_ring:
      return "bidirectional_ring";
  }
  return "?";
}

std::string_view name_of(BringUpFailed::Step step) noexcept {
  switch (step) {
    case BringUpFailed::Step::load_library:
      return "load_library";
    case BringUpFailed::Step::root_info:
      return "root_info";
    case BringUpFailed::Step::init:
      return "init";
    case BringUpFailed::Step::barrier:
      return "barrier";
    case BringUpFailed::Step::attach:
      return "attach";
    case BringUpFailed::Step::destroy:
      return "destroy";
  }
  return "?";
}

}  // namespace strata
