#include "options.hpp"

#include <charconv>
#include <cmath>
#include <string_view>

namespace demo {

namespace {

std::int64_t whole_number(std::string_view option, std::string_view text, std::int64_t low,
                          std::int64_t high) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < low || value > high) {
    throw UsageError(std::string(option) + " is '" + std::string(text) +
                     "'; it must be a whole number from " + std::to_string(low) + " to " +
                     std::to_string(high));
  }
  return value;
}

double real_number(std::string_view option, std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) {
    throw UsageError(std::string(option) + " is '" + std::string(text) + "'; it must be a number");
  }
  return value;
}

}  // namespace

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    std::string_view option = argv[i];
    if (option == "--help" || option == "-h") {
      options.help = true;
      return options;
    }
    if (!option.starts_with("--")) {
      throw UsageError("there is no argument '" + std::string(option) + "'");
    }
    const bool known = option == "--size" || option == "--tile" || option == "--lanes" ||
                       option == "--repeat" || option == "--seed" || option == "--diagonal" ||
                       option == "--dot";
    if (!known) throw UsageError("there is no option '" + std::string(option) + "'");
    if (++i == argc) throw UsageError(std::string(option) + " needs a value");
    const std::string_view value = argv[i];
    if (option == "--size") options.size = whole_number(option, value, 1, 32768);
    if (option == "--tile") options.tile = whole_number(option, value, 1, 32768);
    if (option == "--lanes") {
      options.lanes = static_cast<unsigned>(whole_number(option, value, 1, 1024));
    }
    if (option == "--repeat") options.repeat = static_cast<int>(whole_number(option, value, 1, 99));
    if (option == "--seed") {
      options.seed = static_cast<std::uint64_t>(whole_number(option, value, 0, INT64_MAX));
    }
    if (option == "--diagonal") options.diagonal = real_number(option, value);
    if (option == "--dot") {
      if (value.empty()) throw UsageError("--dot needs the name of a file");
      options.dot = value;
    }
  }
  if (options.tile > options.size) {
    throw UsageError("--tile " + std::to_string(options.tile) + " is more than --size " +
                     std::to_string(options.size));
  }
  return options;
}

const char* help_text() noexcept {
  return R"(demo: factorises a matrix by a tiled Cholesky on Strata's graph engine, checks the result
against LAPACK, and writes the task graph as DOT.

  --size N       rows and columns of the matrix (1536)
  --tile N       rows and columns of a tile (128)
  --lanes N      lanes, each a thread; the last one is the main thread (one per CPU)
  --repeat N     times to repeat; the fastest counts (3)
  --seed N       seed of the random matrix (1)
  --diagonal X   what is added to its diagonal (N: positive definite for sure). A small value
                 shows what the failure of a task looks like
  --dot FILE     where to write the graph (cholesky.dot, beside the program)
  --help         this text

Exit code: 0 if the result is right, 1 if it is not or there is none, 2 for wrong options.
)";
}

}  // namespace demo
