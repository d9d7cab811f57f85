// ErrorCode, ChipError: errors of chips and chip programs, each with a code that stays the same
// across versions and processes. docs/errors/ has a page for each code.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "strata/error.hpp"

namespace strata {

/// What went wrong. name_of() gives the text by which documentation and logs know it.
enum class ErrorCode : std::uint16_t {
  none = 0,
  // Platforms
  unknown_platform,  ///< No such platform, or a setting that it does not have.
  platform_missing,  ///< A library that the platform needs is not on this machine.
  // Programs
  compile_failed,    ///< The compiler or the linker refused a source.
  missing_headers,   ///< None of the candidate include folders of a kernel exists.
  bad_program_file,  ///< program.json, or a chip program file, can't be read as one.
  stale_program,     ///< Built for another version of Strata's interface.
  foreign_program,   ///< Built for another machine, or not by Strata at all.
  removed_program,   ///< The program was removed from the Worker.
  // Submission
  wrong_argument_count,
  wrong_argument_mode,
  wrong_argument_dtype,
  wrong_argument_rank,
  unknown_kernel,     ///< The program has no kernel of that name.
  wrong_core,         ///< A kernel for AIC was submitted to an AIV, or the other way round.
  too_many_blocks,    ///< More blocks to start together than the chip has room for.
  bad_configuration,  ///< Options of a run that make no sense.
  lost_memory,        ///< The chip whose memory this was has died since.
  foreign_memory,     ///< Memory of another chip.
  out_of_chip_memory,
  // Execution
  kernel_threw,
  kernel_misuse,  ///< A kernel used a service in a way that can't work.
  kernel_crashed,
  kernel_overran,  ///< A kernel did not end by the run's deadline.
  deadline_exceeded,
  orchestration_failed,  ///< The orchestration gave up: ChipOrchestration::fail.
  not_recordable,        ///< A recorded graph does what can't be recorded.
  undeclared_access,     ///< Checking mode: a kernel touched what it did not declare.
  orchestration_crashed,
  orchestration_overran,  ///< An orchestration went on though its run was over.
  chip_exited,            ///< Somebody called exit() in the chip's process.
  chip_died,              ///< The chip's process was killed from outside, or crashed elsewhere.
  chip_not_answering,     ///< A chip was silent long after a run's time limit, and was ended.
};
/// "kernel_threw", ...
[[nodiscard]] std::string_view name_of(ErrorCode code) noexcept;
/// The code of that name; none if there is none.
[[nodiscard]] ErrorCode error_code(std::string_view name) noexcept;

/// An error of a chip or a chip program. The message begins with the code's name in brackets.
class ChipError : public Error {
 public:
  ChipError(ErrorCode code, const std::string& message)
      : Error("[" + std::string(name_of(code)) + "] " + message), code_(code) {}
  [[nodiscard]] ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

/// ChipOrchestration::fail: the orchestration's own code and text.
class OrchestrationFailed : public ChipError {
 public:
  OrchestrationFailed(std::int32_t user_code, const std::string& text)
      : ChipError(ErrorCode::orchestration_failed,
                  "the orchestration gave up with code " + std::to_string(user_code) + ": " + text),
        user_code_(user_code) {}
  [[nodiscard]] std::int32_t user_code() const noexcept { return user_code_; }

 private:
  std::int32_t user_code_;
};

}  // namespace strata
