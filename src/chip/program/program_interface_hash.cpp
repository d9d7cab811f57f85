// Apart from the rest of program_interface.hpp, since the build makes a small program of this,
// which computes what the library is then told (tools/interface_version.cpp).
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <vector>

#include "chip/program/program_hash.hpp"
#include "chip/program/program_interface.hpp"

namespace strata::chip {
namespace {

/// The "strata/..." headers that a header names.
std::vector<std::string> strata_includes(const std::string& text) {
  std::vector<std::string> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    static constexpr std::string_view kStart = "#include \"strata/";
    if (!line.starts_with(kStart)) continue;
    const std::size_t begin = line.find('"') + 1;
    found.push_back(line.substr(begin, line.find('"', begin) - begin));
  }
  return found;
}

}  // namespace

std::optional<std::string> interface_version_of(const std::filesystem::path& include,
                                                std::string_view version) {
  std::map<std::string, std::string> contents;
  std::vector<std::string> open = {"strata/chip.hpp", "strata/kernel.hpp"};
  while (!open.empty()) {
    const std::string name = open.back();
    open.pop_back();
    if (contents.contains(name)) continue;
    std::ifstream file(include / name, std::ios::binary);
    if (!file) return std::nullopt;
    std::string text(std::istreambuf_iterator<char>(file), {});
    for (std::string& other : strata_includes(text))
      open.push_back(std::move(other));
    contents.emplace(name, std::move(text));
  }
  KeyText key;
  key.add(version);
  for (const auto& [name, text] : contents)
    key.add(name).add(text);
  return key.digest().hex();
}

}  // namespace strata::chip
