// What the host programs of the chip examples have in common: options, a chip with the example's
// program loaded, arrays that the chip can use, and the comparison of results.
//
// docs/tutorial-chip.md does the same without this header.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <strata/strata.hpp>

namespace example {

/// What the command line says. Each example has sizes of its own, each an option of that name.
struct Options {
  std::string platform = "a2a3sim";
  strata::ChipRunOptions run = {};
  int repeat = 1;
  bool spoil = false;  ///< Expect something wrong on purpose, to see that this is found.
  std::map<std::string, std::int64_t> sizes = {};
};

[[noreturn]] inline void usage(const char* program, const Options& options, int exit_code) {
  std::FILE* const to = exit_code == 0 ? stdout : stderr;
  std::fprintf(
      to,
      "usage: %s [OPTION]...\n"
      "  -p PLATFORM     a2a3sim (default), a5sim, cpu; with settings: a2a3sim:clusters=2\n"
      "  -m MODE         where the orchestration runs: device (default), host_graph\n"
      "  --window TASKS  tasks in flight\n"
      "  --heap BYTES    memory for tensors that the runtime allocates\n"
      "  --repeat N      run everything N times on the same chip\n"
      "  --spoil         expect a wrong value, to see that it is found\n",
      program);
  for (const auto& [name, value] : options.sizes)
    std::fprintf(to, "  --%-13s (default %lld)\n", (name + " N").c_str(),
                 static_cast<long long>(value));
  std::exit(exit_code);
}

inline std::int64_t number(const std::string& option, const std::string& text) {
  std::size_t used = 0;
  std::int64_t value = 0;
  try {
    value = std::stoll(text, &used);
  } catch (const std::logic_error&) {
    used = 0;
  }
  if (used == 0 || used != text.size() || value < 1) {
    throw std::invalid_argument(option + " takes a positive number, not '" + text + "'");
  }
  return value;
}

/// Throws std::invalid_argument for what it does not know.
inline void parse_option(Options& options, const std::string& option, const std::string& value) {
  if (option == "-p") {
    options.platform = value;
  } else if (option == "-m") {
    if (value != "device" && value != "host_graph") {
      throw std::invalid_argument("-m takes device or host_graph, not '" + value + "'");
    }
    options.run.mode = value == "device" ? strata::OrchestrationMode::device
                                         : strata::OrchestrationMode::host_graph;
  } else if (option == "--window") {
    options.run.window = static_cast<std::size_t>(number(option, value));
  } else if (option == "--heap") {
    options.run.heap = static_cast<std::size_t>(number(option, value));
  } else if (option == "--repeat") {
    options.repeat = static_cast<int>(number(option, value));
  } else if (option.starts_with("--") && options.sizes.contains(option.substr(2))) {
    options.sizes[option.substr(2)] = number(option, value);
  } else {
    throw std::invalid_argument("there is no option '" + option + "'");
  }
}

inline Options parse(int argc, char** argv, Options options) {
  try {
    for (int i = 1; i < argc; ++i) {
      const std::string option = argv[i];
      if (option == "--help" || option == "-h") usage(argv[0], options, 0);
      if (option == "--spoil") {
        options.spoil = true;
        continue;
      }
      if (i + 1 == argc) throw std::invalid_argument("'" + option + "' lacks its value");
      parse_option(options, option, argv[++i]);
    }
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    usage(argv[0], options, 2);
  }
  return options;
}

/// Memory that this program and the chip use: row-major, zero at first.
template <class T>
struct Array {
  strata::Tensor tensor = {};
  std::span<T> data = {};

  template <class... Index>
  [[nodiscard]] T& at(Index... index) const {
    std::int64_t offset = 0;
    int dim = 0;
    ((offset += static_cast<std::int64_t>(index) * tensor.stride(dim++)), ...);
    return data[static_cast<std::size_t>(offset)];
  }
  void fill(T value) const { std::fill(data.begin(), data.end(), value); }
  /// Values between -range and range, the same on every machine.
  void fill_random(std::uint32_t seed, T range = 1) const {
    std::mt19937 engine(seed);
    for (T& value : data)
      value = range * (static_cast<T>(engine()) / static_cast<T>(1U << 31U) - 1);
  }
};

/// A chip, in a process of its own, with the example's program.
class Host {
 public:
  Host(const Options& options, const std::string& program);

  [[nodiscard]] std::int64_t size(const std::string& name) const { return options_.sizes.at(name); }

  template <class T>
  [[nodiscard]] Array<T> array(std::initializer_list<std::int64_t> shape) {
    std::size_t count = 1;
    for (const std::int64_t extent : shape)
      count *= static_cast<std::size_t>(extent);
    buffers_.push_back(chip_.create_buffer(count * sizeof(T)));
    return {buffers_.back().tensor(strata::dtype_of<T>, shape),
            buffers_.back().as<T>().first(count)};
  }
  void release_arrays() { buffers_.clear(); }

  /// Runs the program once, with tensor arguments and scalars in the order of its signature.
  template <class... Arguments>
  void run(const Arguments&... arguments) {
    chip_.run(program_, arguments...);
  }

  /// Compares, and prints a line. Right is what differs by `tolerance` at most, relative to
  /// values above 1.
  template <class T>
  void check(const char* what, std::span<T> got, std::vector<double> expected, double tolerance) {
    if (options_.spoil && !expected.empty()) expected[expected.size() / 2] += 1;
    double worst = got.size() == expected.size() ? 0 : INFINITY;
    for (std::size_t i = 0; i < std::min(got.size(), expected.size()); ++i) {
      const double error = std::abs(static_cast<double>(got[i]) - expected[i]) /
                           std::max(1.0, std::abs(expected[i]));
      worst = std::isnan(error) ? INFINITY : std::max(worst, error);
    }
    const bool right = worst <= tolerance;
    std::printf("  %-5s %s: %zu values, largest error %.1e (tolerance %.0e)\n",
                right ? "ok" : "WRONG", what, got.size(), worst, tolerance);
    right_ = right_ && right;
  }
  void require(const char* what, bool holds) {
    std::printf("  %-5s %s\n", holds ? "ok" : "WRONG", what);
    right_ = right_ && holds;
  }
  [[nodiscard]] bool right() const { return right_; }

 private:
  Options options_;
  strata::ChipWorker chip_;
  strata::CallableId program_;
  std::vector<strata::Buffer> buffers_;
  bool right_ = true;
};

/// The program that was built beside this one.
inline std::string program_file(const std::string& name) {
  return std::filesystem::read_symlink("/proc/self/exe")
      .replace_filename(name + ".strata")
      .string();
}

inline Host::Host(const Options& options, const std::string& program)
    : options_(options),
      chip_(options.platform, options.run),
      program_(chip_.add(program_file(program))) {
  chip_.init();
}

/// The main function of an example. Exit code 0 only if all checks held.
inline int run(int argc, char** argv, const std::string& program,
               std::map<std::string, std::int64_t> sizes, const std::function<void(Host&)>& body) {
  const Options options = parse(argc, argv, {.sizes = std::move(sizes)});
  try {
    Host host(options, program);
    std::printf("%s on %s\n", program.c_str(), options.platform.c_str());
    for (int i = 0; i < options.repeat; ++i) {
      body(host);
      host.release_arrays();
    }
    return host.right() ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", program.c_str(), error.what());
    return 1;
  }
}

}  // namespace example
