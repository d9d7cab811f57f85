// Driver: generates, runs and checks programs one after the other, and reports the first failure.
//
// Thread safety: none; one driver per process.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "program.hpp"

namespace strata::test {
class Guard;
}

namespace strata::property {

/// How many programs, and which. From the environment (STRATA_PROPERTY_PROGRAMS,
/// STRATA_PROPERTY_SEED) or by the way this was built.
struct Settings {
  std::uint64_t programs = 0;
  std::uint64_t seed = 1;
};
[[nodiscard]] Settings settings();

struct Failure {
  Program program;
  std::vector<std::string> problems;
};

/// Generates the program of a seed, runs it and checks what happened; for some programs also that
/// two independent tasks can overlap.
[[nodiscard]] std::optional<Failure> try_seed(std::uint64_t seed, test::Guard& guard);

/// The second program that try_seed runs for some seeds. Runs the first to find it.
[[nodiscard]] std::optional<Program> meeting_of(std::uint64_t seed);

/// Runs one program and returns what is wrong.
[[nodiscard]] std::vector<std::string> try_program(const Program& program);

/// The failure for people: problems, the seed, and the program, shrunk if there is time for it.
[[nodiscard]] std::string report(const Failure& failure, bool shrunk);

}  // namespace strata::property
