#include "command_line.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string_view>

#include <strata/chip_error.hpp>

namespace distributed {
namespace {

constexpr unsigned kMostDevices = 4096;

unsigned parse_number(std::string_view digits, const std::string& text) {
  unsigned value = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value);
  if (digits.empty() || error != std::errc{} || stop != end || value >= kMostDevices) {
    throw CLI::ValidationError("--device",
                               fmt::format("'{}' is no list of devices, as 0-3 or 0,2,5 is", text));
  }
  return value;
}

void add_range(std::vector<unsigned>& devices, std::string_view range, const std::string& text) {
  const std::size_t dash = range.find('-');
  const unsigned first = parse_number(range.substr(0, dash), text);
  const unsigned last =
      dash == std::string_view::npos ? first : parse_number(range.substr(dash + 1), text);
  if (last < first) {
    throw CLI::ValidationError("--device",
                               fmt::format("'{}': the range {} goes backwards", text, range));
  }
  for (unsigned device = first; device <= last; ++device) {
    if (std::find(devices.begin(), devices.end(), device) != devices.end()) {
      throw CLI::ValidationError("--device",
                                 fmt::format("'{}' names device {} twice", text, device));
    }
    devices.push_back(device);
  }
}

}  // namespace

void describe_chips(CLI::App& app, ChipChoice& choice) {
  app.add_option("-p,--platform", choice.platform,
                 "a2a3sim, a5sim, cpu, a2a3, a5; with settings: a2a3sim:clusters=4")
      ->capture_default_str();
  app.add_option("-d,--device", choice.devices, "The chips, one a rank: 0-3, 0,2,5")
      ->capture_default_str();
  app.add_option("--trace", choice.trace,
                 "Write a timeline of the tasks to this file, for ui.perfetto.dev");
}

std::vector<unsigned> parse_devices(const std::string& text, std::size_t least, std::size_t most) {
  std::vector<unsigned> devices;
  std::string_view rest = text;
  for (;;) {
    const std::size_t comma = rest.find(',');
    add_range(devices, rest.substr(0, comma), text);
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  if (devices.size() < least || devices.size() > most) {
    throw CLI::ValidationError("--device", fmt::format("'{}' are {} chips; there may be {} to {}",
                                                       text, devices.size(), least, most));
  }
  return devices;
}

std::vector<strata::ChipOptions> chips_of(const ChipChoice& choice, std::size_t count) {
  return std::vector<strata::ChipOptions>(count, {.platform = choice.platform});
}

std::string beside_this_program(const std::string& name) {
  return std::filesystem::read_symlink("/proc/self/exe").replace_filename(name).string();
}

int run_program(CLI::App& app, int argc, char** argv, const std::function<int()>& body) {
  const std::string name = app.get_name();
  try {
    app.parse(argc, argv);
    return body();
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    fmt::print(stderr, "{}: {}\nTry '{} --help'.\n", name, error.what(), name);
    return kMisuse;
  } catch (const strata::ChipError& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    const bool not_there = error.code() == strata::ErrorCode::platform_missing ||
                           error.code() == strata::ErrorCode::unknown_platform;
    return not_there ? kMisuse : kWrong;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    return kWrong;
  }
}

}  // namespace distributed
