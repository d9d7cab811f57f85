// How cores, blocks and waits are said in messages, reports and crash records.
//
// Thread safety: the functions that take a Place are for the thread that runs there, or for one
// that looks through its gate.
#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "chip/cores/core_job.hpp"

namespace strata::chip {

/// "AIC", "AIV 0".
[[nodiscard]] std::string_view lane_text(ClusterLane lane) noexcept;
/// "an AIC with 2 AIVs of one cluster".
[[nodiscard]] std::string lanes_text(LaneMask lanes);
/// "core 7 (cluster 2, AIV 0)".
[[nodiscard]] std::string core_text(std::uint32_t core, std::uint32_t cluster, ClusterLane lane);
/// "kernel 'x' of program 'p', task 5 'y', block 1 of 4, core 7 (cluster 2, AIV 0)".
[[nodiscard]] std::string block_text(const Place& place);
/// "float32[4, 8] at 0x7f...", for each tensor argument.
[[nodiscard]] std::vector<std::string> argument_texts(const detail::ArgumentBlock& arguments);
/// What the lane waits for: "its flag 3, which another lane of cluster 2 sets".
[[nodiscard]] std::string wait_text(const Place& place);

/// The kernel that runs at the place.
[[nodiscard]] const KernelEntry& kernel_of(const Place& place) noexcept;
/// What a kernel threw, as the error of its task: Cancelled and what the runtime threw itself as
/// they are, anything else as ChipError (kernel_threw) with all that is known. What it holds is of
/// this library and not of the kernel's.
[[nodiscard]] std::exception_ptr kernel_error(const Place& place, const std::exception_ptr& thrown);

}  // namespace strata::chip
