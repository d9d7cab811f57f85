// `strata build`: a chip program from its program.json.
#include <cstdio>
#include <string>
#include <string_view>

#include "cli/build_signals.hpp"
#include "cli/commands.hpp"
#include "strata/chip_error.hpp"
#include "strata/chip_program.hpp"

namespace strata::cli {

int build(const BuildOptions& options) {
  ChipBuildOptions build_options{.output = options.output,
                                 .cache = options.cache,
                                 .compiler = options.compiler,
                                 .check = options.check,
                                 .jobs = options.jobs,
                                 .depfile = options.depfile};
  if (options.sanitizer == "address") build_options.sanitizer = ProgramSanitizer::address;
  if (options.sanitizer == "thread") build_options.sanitizer = ProgramSanitizer::thread;
  build_options.progress = [&](std::string_view text) {
    // One call: lines of several builds at once stay whole.
    if (!options.quiet) std::fprintf(stderr, "strata build: %s\n", std::string(text).c_str());
  };
  try {
    const auto file = [&] {
      const BuildSignals signals;
      return build_chip_program(ChipProgramSource::load(options.program_json), build_options);
    }();
    if (options.verbose) {
      const ChipProgramInfo info = ChipProgramInfo::read(file);
      std::fprintf(stderr, "strata build: '%s', build %s, by %s\n", info.name.c_str(),
                   info.build_id.c_str(), info.compiler.c_str());
      for (const std::string& function : info.unseen)
        std::fprintf(stderr, "strata build: can't be checked: %s\n", function.c_str());
    }
    std::printf("%s\n", file.c_str());
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "strata build: %s\n", error.what());
    return 1;
  }
}

}  // namespace strata::cli
