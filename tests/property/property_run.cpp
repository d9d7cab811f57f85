// property_run: the property test outside of GoogleTest, to repeat a seed, to shrink a failure, and
// for the run over planted faults.
//
//   property_run [--programs N] [--seed S]     programs S, S + 1, ...; stops at the first failure
//   property_run --one SEED [--times T]        that program, T times
//   ... --shrink                               shrinks what failed, also a crash or a hang
//   ... --print                                shows programs and does not run them
//
// The programs run in a child process, so a crash or a hang is reported like any other failure.
// Exit code: 0 all went well, 1 a failure was found, 2 wrong use.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "driver.hpp"
#include "generator.hpp"
#include "model.hpp"
#include "shrink.hpp"
#include "support/guard.hpp"

namespace {

using namespace strata;

struct Options {
  property::Settings settings = property::settings();
  bool one = false;
  std::uint64_t times = 1;
  bool shrink = false;
  bool print = false;
};

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    const bool has_value = i + 1 < argc;
    const auto value = [&] { return std::strtoull(argv[++i], nullptr, 10); };
    if (arg == "--shrink") {
      options.shrink = true;
    } else if (arg == "--print") {
      options.print = true;
    } else if (arg == "--programs" && has_value) {
      options.settings.programs = value();
    } else if (arg == "--seed" && has_value) {
      options.settings.seed = value();
    } else if (arg == "--times" && has_value) {
      options.times = value();
    } else if (arg == "--one" && has_value) {
      options.one = true;
      options.settings.seed = value();
      options.settings.programs = 1;
    } else {
      std::fprintf(stderr, "property_run: does not know '%s'\n", argv[i]);
      return false;
    }
  }
  return true;
}

/// What the child tells its parent, also by dying.
struct Progress {
  std::atomic<std::uint64_t> seed{0};  ///< In hand.
  std::atomic<std::uint64_t> done{0};
};

[[noreturn]] void work(const Options& options, Progress& progress) {
  test::Guard guard("property_run");
  for (std::uint64_t i = 0; i < options.settings.programs; ++i) {
    const std::uint64_t seed = options.settings.seed + i;
    progress.seed = seed;
    for (std::uint64_t t = 0; t < options.times; ++t) {
      if (const auto failure = property::try_seed(seed, guard)) {
        std::fputs(property::report(*failure, false).c_str(), stdout);
        std::fflush(stdout);
        _exit(1);
      }
    }
    progress.done = i + 1;
  }
  _exit(0);
}

void shrink(std::uint64_t seed) {
  std::printf("shrinking ...\n");
  std::fflush(stdout);
  property::Program program = property::generate(seed);
  const auto fails = [](const property::Program& candidate) {
    return property::fails_in_child(candidate, 10, std::chrono::seconds(6));
  };
  if (!fails(program)) {
    const auto meeting = property::meeting_of(seed);
    if (!meeting || !fails(*meeting)) {
      std::printf("it did not fail again\n");
      return;
    }
    program = *meeting;
  }
  const property::Program small = property::shrink(program, fails, std::chrono::minutes(5));
  std::fputs(property::print(small).c_str(), stdout);
  const auto problems_of = [&] {
    for (const std::string& problem : property::try_program(small)) {
      std::printf("  %s\n", problem.c_str());
    }
    std::fflush(stdout);
  };
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    test::Guard guard("the shrunk program", std::chrono::seconds(6));
    for (int i = 0; i < 10; ++i)
      problems_of();
    _exit(0);
  }
  int status = 0;
  if (child > 0) waitpid(child, &status, 0);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) return 2;
  if (options.print) {
    for (std::uint64_t i = 0; i < options.settings.programs; ++i) {
      std::fputs(property::print(property::generate(options.settings.seed + i)).c_str(), stdout);
    }
    return 0;
  }
  void* memory =
      mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("property_run: mmap");
    return 2;
  }
  auto& progress = *new (memory) Progress;
  const pid_t child = fork();
  if (child < 0) {
    std::perror("property_run: fork");
    return 2;
  }
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    work(options, progress);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  const std::uint64_t seed = progress.seed, done = progress.done;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    std::printf("passed: %llu programs\n", static_cast<unsigned long long>(done));
    return 0;
  }
  const char* how = !WIFSIGNALED(status)          ? "mismatch"
                    : WTERMSIG(status) == SIGABRT ? "hang or abort"
                                                  : strsignal(WTERMSIG(status));
  std::printf("found: %s in program %llu, seed %llu\n", how,
              static_cast<unsigned long long>(done + 1), static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  if (options.shrink) shrink(seed);
  return 1;
}
