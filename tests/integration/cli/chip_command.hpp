// `strata chip` on a program, for tests.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "strata_command.hpp"

namespace strata::test {

/// `strata chip PROGRAM ARGUMENTS...`, with the tests' own cache of built programs.
inline Program::Result chip_command(const std::string& program,
                                    std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"chip", program});
  return strata_command(std::move(arguments),
                        {.environment = {std::string("STRATA_CACHE=") + STRATA_CHECK_CACHE}});
}

/// A run of the program of planted faults (tests/integration/check/program).
inline Program::Result planted(int which, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(),
                   {"--tensor", "x=random:1:[8,16]", "--tensor", "y=zeros:[8,16]", "--scalar",
                    "case=" + std::to_string(which), "-p", "a2a3sim:clusters=2"});
  return chip_command(std::string(STRATA_CHECK_PROGRAM) + "/program.json", std::move(arguments));
}

}  // namespace strata::test
