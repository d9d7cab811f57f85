#include "chip/run_failure.hpp"

#include <cxxabi.h>
#include <fmt/format.h>

#include <cctype>
#include <string>
#include <typeinfo>
#include <utility>

#include "base/exception_text.hpp"
#include "strata/chip_error.hpp"

namespace strata::chip {

namespace {

/// The ChipError that an exception is, or null; with what it says behind the code.
const ChipError* as_chip_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const ChipError& chip) {
    return &chip;  // Lives as long as `error`.
  } catch (...) {
    return nullptr;
  }
}

std::string without_code(const ChipError& error) {
  std::string_view text = error.what();
  const std::string code = fmt::format("[{}] ", name_of(error.code()));
  if (text.starts_with(code)) text.remove_prefix(code.size());
  return std::string(text);
}

std::string task_text(const TaskFailure& failure) {
  return fmt::format("task {}{}", failure.task.number(),
                     failure.name.empty() ? "" : " '" + failure.name + "'");
}

std::exception_ptr task_failure(const RunFailed& run) {
  const TaskFailure* first = nullptr;
  const ChipError* chip = nullptr;
  for (const TaskFailure& failure : run.failed()) {
    chip = as_chip_error(failure.exception);
    if (chip == nullptr) continue;
    first = &failure;
    break;
  }
  if (first == nullptr) first = &run.failed().front();
  if (chip != nullptr && run.failed().size() == 1) return first->exception;
  std::string text = chip != nullptr
                         ? without_code(*chip)
                         : fmt::format("{} failed: {}", task_text(*first), first->message);
  for (const TaskFailure& other : run.failed()) {
    if (&other != first) text += fmt::format("\nalso, {}: {}", task_text(other), other.message);
  }
  return std::make_exception_ptr(
      ChipError(chip != nullptr ? chip->code() : ErrorCode::kernel_threw, text));
}

/// "buffer 7" is a name that only the engine knows.
std::string with_names(std::string text, std::span<const NamedBuffer> names) {
  for (const NamedBuffer& named : names) {
    const std::string number = fmt::format("buffer {}", named.buffer.value);
    for (std::size_t at = text.find(number); at != std::string::npos;
         at = text.find(number, at + 1)) {
      const std::size_t behind = at + number.size();
      if (behind < text.size() && std::isdigit(static_cast<unsigned char>(text[behind])) != 0)
        continue;
      text.replace(at, number.size(), named.name);
    }
  }
  return text;
}

}  // namespace

std::exception_ptr run_failure(const std::exception_ptr& error, std::string_view program,
                               std::span<const NamedBuffer> names) {
  try {
    std::rethrow_exception(error);
  } catch (const RunFailed& run) {
    if (run.failed().empty()) return error;
    return task_failure(run);
  } catch (const ChipError& chip) {
    // One of a derived class says more than its text.
    if (typeid(chip) != typeid(ChipError)) return error;
    return std::make_exception_ptr(ChipError(chip.code(), with_names(without_code(chip), names)));
  } catch (const InvalidArgument& invalid) {
    return std::make_exception_ptr(InvalidArgument(with_names(invalid.what(), names)));
  } catch (const InvalidState& invalid) {
    return std::make_exception_ptr(InvalidState(with_names(invalid.what(), names)));
  } catch (const Error&) {
    return error;
  } catch (...) {
    const std::type_info* const type = abi::__cxa_current_exception_type();
    return std::make_exception_ptr(ChipError(
        ErrorCode::orchestration_failed,
        fmt::format("the orchestration of chip program '{}' threw {}: {}", program,
                    type == nullptr ? "an exception of another language" : base::type_text(*type),
                    base::message_of(error))));
  }
}

}  // namespace strata::chip
