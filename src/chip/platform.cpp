#include "strata/platform.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <vector>

#include "graph/heap.hpp"
#include "os/cpu.hpp"
#include "strata/chip_error.hpp"

namespace strata {
namespace {

constexpr unsigned kMaxClusters = 4096;
constexpr std::size_t kMaxWindow = std::size_t{1} << 20;
constexpr std::size_t kMaxBytes = std::size_t{1} << 46;

/// What a name stands for before settings. `cpus` is for platform cpu.
std::optional<Platform> find_platform(std::string_view name, unsigned cpus) {
  Platform platform;
  platform.name = name;
  if (name == "a2a3sim") {
    platform.clusters = 24;
    platform.memory = std::size_t{64} << 30;
  } else if (name == "a5sim") {
    platform.clusters = 36;
    platform.memory = std::size_t{128} << 30;
  } else if (name == "cpu") {
    platform.clusters = cpus != 0 ? cpus : static_cast<unsigned>(os::allowed_cpus());
    platform.single_core_clusters = true;
    platform.memory = std::size_t{64} << 30;
  } else {
    return std::nullopt;
  }
  return platform;
}

constexpr std::string_view kPlatforms =
    "a2a3sim (24 clusters, simulated), a5sim (36 clusters, simulated), cpu (the CPUs of this "
    "machine), a2a3 and a5 (Ascend devices)";
constexpr std::string_view kSettings =
    "clusters=N, aivs=0|1|2 (AIVs per cluster), memory=SIZE, window=TASKS, heap=SIZE, staging=0|1; "
    "a SIZE is bytes or has K, M, G or T behind it";

[[noreturn]] void fail_setting(std::string_view text, const std::string& why) {
  throw ChipError(ErrorCode::unknown_platform,
                  fmt::format("platform '{}': {}. Settings are: {}", text, why, kSettings));
}

/// Where a real device is asked for: says what is missing for it.
[[noreturn]] void fail_device(std::string_view name) {
  constexpr const char* kLibrary = "libascendcl.so";
  const std::string_view simulator = name == "a5" ? "a5sim" : "a2a3sim";
  std::string why;
  if (void* const library = dlopen(kLibrary, RTLD_LAZY | RTLD_LOCAL)) {
    dlclose(library);
    why = fmt::format(
        "{} is on this machine, but this build of Strata has no backend for Ascend "
        "devices yet",
        kLibrary);
  } else {
    const char* const error = dlerror();
    why = fmt::format(
        "it needs {} of CANN, which can't be loaded ({}). Install CANN, and put its "
        "library folder into LD_LIBRARY_PATH",
        kLibrary, error != nullptr ? error : "no reason given");
  }
  throw ChipError(ErrorCode::platform_missing,
                  fmt::format("platform '{}' can't be used here: {}. The same programs run on its "
                              "simulator, '{}'",
                              name, why, simulator));
}

std::uint64_t parse_number(std::string_view text, std::string_view setting,
                           std::string_view digits) {
  std::uint64_t value = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value);
  if (error != std::errc{} || stop != end) {
    fail_setting(text, fmt::format("'{}' is not a number in setting '{}'", digits, setting));
  }
  return value;
}

struct Unit {
  char letter;
  unsigned shift;
};
constexpr std::array<Unit, 4> kUnits = {{{'T', 40}, {'G', 30}, {'M', 20}, {'K', 10}}};

std::string size_text(std::size_t bytes) {
  for (const Unit& unit : kUnits) {
    if (bytes != 0 && bytes % (std::size_t{1} << unit.shift) == 0) {
      return fmt::format("{}{}", bytes >> unit.shift, unit.letter);
    }
  }
  return fmt::format("{}", bytes);
}

/// At least `low` bytes, and no more than addresses can be had for.
std::size_t parse_size(std::string_view text, std::string_view setting, std::string_view digits,
                       std::size_t low) {
  unsigned shift = 0;
  for (const Unit& unit : kUnits) {
    if (!digits.empty() && digits.back() == unit.letter) shift = unit.shift;
  }
  if (shift != 0) digits.remove_suffix(1);
  const std::uint64_t value = parse_number(text, setting, digits);
  if (value > (kMaxBytes >> shift) || (value << shift) < low) {
    fail_setting(text,
                 fmt::format("'{}' must be from {} to {}", setting, low, size_text(kMaxBytes)));
  }
  return static_cast<std::size_t>(value) << shift;
}

std::uint64_t parse_bounded(std::string_view text, std::string_view setting,
                            std::string_view digits, std::uint64_t low, std::uint64_t high) {
  const std::uint64_t value = parse_number(text, setting, digits);
  if (value < low || value > high) {
    fail_setting(text, fmt::format("'{}' must be from {} to {}", setting, low, high));
  }
  return value;
}

void apply(Platform& platform, std::string_view text, std::string_view setting) {
  const std::size_t sign = setting.find('=');
  if (sign == std::string_view::npos) {
    fail_setting(text, fmt::format("'{}' is not of the form name=value", setting));
  }
  const std::string_view name = setting.substr(0, sign);
  const std::string_view value = setting.substr(sign + 1);
  if (name == "clusters") {
    platform.clusters = static_cast<unsigned>(parse_bounded(text, name, value, 1, kMaxClusters));
  } else if (name == "aivs") {
    platform.aivs_per_cluster = static_cast<unsigned>(parse_bounded(text, name, value, 0, 2));
  } else if (name == "memory") {
    platform.memory = parse_size(text, name, value, 1);
  } else if (name == "window") {
    platform.window = parse_bounded(text, name, value, 1, kMaxWindow);
  } else if (name == "heap") {
    platform.heap = parse_size(text, name, value, graph::Heap::kAlignment);
  } else if (name == "staging") {
    platform.shares_host_memory = parse_bounded(text, name, value, 0, 1) == 0;
  } else {
    fail_setting(text, fmt::format("there is no setting '{}'", name));
  }
}

}  // namespace

std::string Platform::to_string() const {
  std::string text = name;
  char separator = ':';
  const auto add = [&](std::string_view setting, const std::string& value) {
    text += fmt::format("{}{}={}", separator, setting, value);
    separator = ',';
  };
  const Platform plain = find_platform(name, 0).value_or(Platform{});
  // How many CPUs there are is another thing for every process: so it is always said.
  if (clusters != plain.clusters || single_core_clusters) add("clusters", fmt::to_string(clusters));
  if (aivs_per_cluster != plain.aivs_per_cluster) add("aivs", fmt::to_string(aivs_per_cluster));
  if (memory != plain.memory) add("memory", size_text(memory));
  if (window != plain.window) add("window", fmt::to_string(window));
  if (heap != plain.heap) add("heap", size_text(heap));
  if (shares_host_memory != plain.shares_host_memory) {
    add("staging", shares_host_memory ? "0" : "1");
  }
  return text;
}

Platform Platform::parse(std::string_view text, unsigned cpus) {
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  if (name == "a2a3" || name == "a5") fail_device(name);
  std::optional<Platform> platform = find_platform(name, cpus);
  if (!platform) {
    throw ChipError(ErrorCode::unknown_platform,
                    fmt::format("there is no platform '{}'. There are: {}. Settings follow a ':' "
                                "and are separated by ',': {}",
                                name, kPlatforms, kSettings));
  }
  if (colon == std::string_view::npos) return *std::move(platform);
  std::string_view rest = text.substr(colon + 1);
  std::vector<std::string_view> given;
  for (;;) {
    const std::size_t comma = rest.find(',');
    const std::string_view setting = rest.substr(0, comma);
    apply(*platform, text, setting);
    const std::string_view its_name = setting.substr(0, setting.find('='));
    if (std::find(given.begin(), given.end(), its_name) != given.end()) {
      fail_setting(text, fmt::format("'{}' is there twice", its_name));
    }
    given.push_back(its_name);
    if (comma == std::string_view::npos) return *std::move(platform);
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace strata
