#include "driver.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "checks.hpp"
#include "generator.hpp"
#include "runner.hpp"
#include "shrink.hpp"
#include "support/guard.hpp"

namespace strata::property {
namespace {

#if defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kPrograms = 500;
#elif defined(__SANITIZE_ADDRESS__)
constexpr std::uint64_t kPrograms = 2000;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
constexpr std::uint64_t kPrograms = 500;
#elif __has_feature(address_sanitizer) || !defined(NDEBUG)
constexpr std::uint64_t kPrograms = 2000;
#else
constexpr std::uint64_t kPrograms = 20000;
#endif
#elif defined(NDEBUG)
constexpr std::uint64_t kPrograms = 20000;
#else
constexpr std::uint64_t kPrograms = 2000;
#endif

/// Of how many programs in 100 a pair of independent tasks is made to meet.
constexpr int kMeetings = 15;

std::uint64_t number_from(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr || *text == '\0' ? otherwise : std::strtoull(text, nullptr, 10);
}

/// Nodes that ran in the trace and will run whenever the program does.
std::vector<bool> surely_run(const Model& model, const Trace& trace) {
  std::vector<Status> observed(static_cast<std::size_t>(model.size()), Status::skipped);
  for (int n = 0; n < model.size(); ++n) {
    if (interval_of(model, trace, n).ran()) observed[static_cast<std::size_t>(n)] = Status::ran;
  }
  const Outcome outcome = serial_outcome(model, observed);
  const bool open =
      std::find(outcome.certain.begin(), outcome.certain.end(), false) != outcome.certain.end();
  std::vector<bool> runs(observed.size());
  for (std::size_t n = 0; n < runs.size(); ++n) {
    runs[n] = !open && outcome.status[n] == Status::ran && observed[n] == Status::ran;
  }
  return runs;
}

bool any_assumed(const Trace& trace) {
  return std::any_of(trace.runs.begin(), trace.runs.end(),
                     [](const RunTrace& run) { return run.stats.assumed_edges != 0; });
}

/// For some programs: the one in which two independent tasks wait for each other.
std::optional<Program> meeting_of(const Program& program, const Model& model, const Trace& trace) {
  test::Random random(program.seed ^ 0x6d656574);
  if (!random.chance(kMeetings) || any_assumed(trace)) return std::nullopt;
  std::optional<Program> meeting = with_meeting(program, model, surely_run(model, trace), random);
  if (!meeting) return std::nullopt;
  // On lanes of their own the two may have got an order that they did not have before.
  if (!Model(*meeting).can_meet()) return std::nullopt;
  return meeting;
}

void show_on_hang(test::Guard& guard, const Program& program) {
  guard.on_hang([text = print(program)] {
    std::fprintf(stderr, "%s(property_run --one SEED --shrink makes it smaller)\n", text.c_str());
  });
}

}  // namespace

Settings settings() {
  return {.programs = number_from("STRATA_PROPERTY_PROGRAMS", kPrograms),
          .seed = number_from("STRATA_PROPERTY_SEED", 1)};
}

std::optional<Program> meeting_of(std::uint64_t seed) {
  const Program program = generate(seed);
  const Model model(program);
  return meeting_of(program, model, run_program(program, model));
}

std::vector<std::string> try_program(const Program& program) {
  const Model model(program);
  const Trace trace = run_program(program, model);
  return check(program, model, trace);
}

std::optional<Failure> try_seed(std::uint64_t seed, test::Guard& guard) {
  const std::string name = "program of seed " + std::to_string(seed);
  guard.restart(name);
  Program program = generate(seed);
  const Model model(program);
  show_on_hang(guard, program);
  const Trace trace = run_program(program, model);
  std::vector<std::string> problems = check(program, model, trace);
  if (!problems.empty()) return Failure{std::move(program), std::move(problems)};

  const std::optional<Program> meeting = meeting_of(program, model, trace);
  if (!meeting) return std::nullopt;
  guard.restart(name + ", in which two independent tasks wait for each other");
  const Model changed(*meeting);
  show_on_hang(guard, *meeting);
  problems = check(*meeting, changed, run_program(*meeting, changed));
  if (!problems.empty()) return Failure{*meeting, std::move(problems)};
  return std::nullopt;
}

std::string report(const Failure& failure, bool shrunk) {
  std::ostringstream out;
  out << "seed " << failure.program.seed << ":\n";
  for (std::size_t i = 0; i < failure.problems.size() && i < 10; ++i) {
    out << "  " << failure.problems[i] << "\n";
  }
  if (failure.problems.size() > 10) {
    out << "  and " << failure.problems.size() - 10 << " more\n";
  }
  if (!shrunk) {
    out << print(failure.program);
    return out.str();
  }
  const auto fails = [](const Program& candidate) {
    return fails_in_child(candidate, 8, std::chrono::seconds(8));
  };
  const Program small = shrink(failure.program, fails, std::chrono::seconds(60));
  out << "shrunk (it may have other problems than the whole):\n" << print(small);
  return out.str();
}

}  // namespace strata::property
