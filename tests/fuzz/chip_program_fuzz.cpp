// Chip program files: any bytes are a program or a ChipError, also such as carry a true hash.
#include <algorithm>
#include <string>

#include "chip/program/program_file.hpp"
#include "chip/program/program_interface.hpp"
#include "fuzz_target.hpp"
#include "strata/chip_error.hpp"

using namespace strata;
using strata::fuzz::require;

namespace {

void parse(std::string_view bytes) {
  try {
    const ChipProgramInfo info = chip::parse_program(bytes, "input");
    require(!info.name.empty() && info.name.find('/') == std::string::npos, "its name is a name");
    require(info.build_id.size() == 32, "its build id is one");
  } catch (const ChipError& error) {
    require(error.code() == ErrorCode::bad_program_file ||
                error.code() == ErrorCode::foreign_program ||
                error.code() == ErrorCode::stale_program,
            "it is refused for what it is");
  }
  try {
    (void)chip::symbols_of(bytes);
  } catch (const ChipError&) {
    require(false, "the symbols of an object are no matter of chip programs");
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): not an object file.
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  parse(bytes);
  // Once more as a file that was built so, and by this version.
  static constexpr std::string_view kField = "\"interface\":\"";
  const std::size_t at = bytes.find(kField);
  const std::string_view version = chip::interface_version();
  if (at != std::string::npos && bytes.size() - at - kField.size() >= version.size()) {
    std::copy(version.begin(), version.end(),
              bytes.begin() + static_cast<std::ptrdiff_t>(at + kField.size()));
  }
  if (chip::seal_program(bytes)) parse(bytes);
  return 0;
}
