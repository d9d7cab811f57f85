#include "strata/chip_error.hpp"

#include <algorithm>
#include <array>

namespace strata {

namespace {

struct NamedCode {
  ErrorCode code;
  std::string_view name;
};

/// Every code, in the order of their numbers.
constexpr std::array kCodes{
    NamedCode{ErrorCode::none, "none"},
    NamedCode{ErrorCode::unknown_platform, "unknown_platform"},
    NamedCode{ErrorCode::platform_missing, "platform_missing"},
    NamedCode{ErrorCode::compile_failed, "compile_failed"},
    NamedCode{ErrorCode::missing_headers, "missing_headers"},
    NamedCode{ErrorCode::bad_program_file, "bad_program_file"},
    NamedCode{ErrorCode::stale_program, "stale_program"},
    NamedCode{ErrorCode::foreign_program, "foreign_program"},
    NamedCode{ErrorCode::removed_program, "removed_program"},
    NamedCode{ErrorCode::wrong_argument_count, "wrong_argument_count"},
    NamedCode{ErrorCode::wrong_argument_mode, "wrong_argument_mode"},
    NamedCode{ErrorCode::wrong_argument_dtype, "wrong_argument_dtype"},
    NamedCode{ErrorCode::wrong_argument_rank, "wrong_argument_rank"},
    NamedCode{ErrorCode::unknown_kernel, "unknown_kernel"},
    NamedCode{ErrorCode::wrong_core, "wrong_core"},
    NamedCode{ErrorCode::too_many_blocks, "too_many_blocks"},
    NamedCode{ErrorCode::bad_configuration, "bad_configuration"},
    NamedCode{ErrorCode::lost_memory, "lost_memory"},
    NamedCode{ErrorCode::foreign_memory, "foreign_memory"},
    NamedCode{ErrorCode::out_of_chip_memory, "out_of_chip_memory"},
    NamedCode{ErrorCode::kernel_threw, "kernel_threw"},
    NamedCode{ErrorCode::kernel_misuse, "kernel_misuse"},
    NamedCode{ErrorCode::kernel_crashed, "kernel_crashed"},
    NamedCode{ErrorCode::kernel_overran, "kernel_overran"},
    NamedCode{ErrorCode::deadline_exceeded, "deadline_exceeded"},
    NamedCode{ErrorCode::orchestration_failed, "orchestration_failed"},
    NamedCode{ErrorCode::not_recordable, "not_recordable"},
    NamedCode{ErrorCode::undeclared_access, "undeclared_access"},
    NamedCode{ErrorCode::orchestration_crashed, "orchestration_crashed"},
    NamedCode{ErrorCode::orchestration_overran, "orchestration_overran"},
    NamedCode{ErrorCode::chip_exited, "chip_exited"},
    NamedCode{ErrorCode::chip_died, "chip_died"},
    NamedCode{ErrorCode::chip_not_answering, "chip_not_answering"},
};

/// A code is its index, so that a new one that is missing here does not compile.
constexpr bool in_order() {
  for (std::size_t i = 0; i < kCodes.size(); ++i) {
    if (static_cast<std::size_t>(kCodes[i].code) != i) return false;
  }
  return static_cast<std::size_t>(ErrorCode::chip_not_answering) + 1 == kCodes.size();
}
static_assert(in_order());

}  // namespace

std::string_view name_of(ErrorCode code) noexcept {
  const auto index = static_cast<std::size_t>(code);
  return index < kCodes.size() ? kCodes[index].name : "unknown_code";
}

ErrorCode error_code(std::string_view name) noexcept {
  const auto* const found = std::find_if(
      kCodes.begin(), kCodes.end(), [&](const NamedCode& known) { return known.name == name; });
  return found == kCodes.end() ? ErrorCode::none : found->code;
}

}  // namespace strata
