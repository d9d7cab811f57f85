// The domain that comm_rank_driver and its test have in common.
#pragma once

#include "comm/window_layout.hpp"

namespace strata::test {

inline comm::DomainSpec driver_domain(std::uint32_t size) {
  return {.name = "processes", .size = size, .slices = {{"data", DType::int32, 4096}}};
}

}  // namespace strata::test
