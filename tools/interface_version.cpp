// Prints the version of the interface of chip programs as a header, for the library to be built
// with.
//
// usage: strata_interface_version INCLUDE_FOLDER VERSION OUTPUT
#include <cstdio>
#include <fstream>

#include "chip/program/program_interface.hpp"

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const auto version = strata::chip::interface_version_of(argv[1], argv[2]);
  if (!version) {
    std::fprintf(stderr, "%s: can't read the headers in %s\n", argv[0], argv[1]);
    return 1;
  }
  std::ofstream(argv[3]) << "#define STRATA_INTERFACE_VERSION \"" << *version << "\"\n";
  return 0;
}
