// What the command lines of the distributed programs have in common: platform, devices, trace.
//
// Thread safety: functions of their arguments.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include <strata/worker.hpp>

namespace distributed {

/// Chips that work together, as users name them.
struct ChipChoice {
  std::string platform;
  std::string devices;     ///< "0-3", "0,2", "0-1,5".
  std::string trace = {};  ///< A file, or empty.
};

/// Adds -p, -d and --trace. What is in `choice` now are the defaults.
void describe_chips(CLI::App& app, ChipChoice& choice);

/// The numbers in "0-1,5", in the order in which they are given. Throws CLI::ValidationError for
/// anything else, a number twice, or a number of chips that is not from `least` to `most`.
[[nodiscard]] std::vector<unsigned> parse_devices(const std::string& text, std::size_t least,
                                                  std::size_t most);

/// A chip worker for each device.
[[nodiscard]] std::vector<strata::ChipOptions> chips_of(const ChipChoice& choice,
                                                        std::size_t count);

/// A file that was built beside this program.
[[nodiscard]] std::string beside_this_program(const std::string& name);

/// Exit codes of all these programs.
inline constexpr int kRight = 0;
inline constexpr int kWrong = 1;   ///< A wrong result, or none.
inline constexpr int kMisuse = 2;  ///< Wrong arguments, or a platform that is not there.

/// Parses, then calls `body`, whose result is the exit code; prints the error that either throws,
/// and turns it into one.
[[nodiscard]] int run_program(CLI::App& app, int argc, char** argv,
                              const std::function<int()>& body);

}  // namespace distributed
