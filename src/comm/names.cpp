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

}  // namespace strata
