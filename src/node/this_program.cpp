#include "node/this_program.hpp"

#include <elf.h>
#include <link.h>

#include <cstring>
#include <unordered_map>
#include <vector>

#include "strata/error.hpp"

namespace strata::node {
namespace {

/// Filled by static constructors, so made by whichever comes first, and never destroyed: a worker
/// may be asked while the static objects of the program are being destroyed.
struct Functions {
  std::unordered_map<std::string_view, ProgramFunction> by_name;
  std::vector<std::string_view> twice;  ///< Names that came again.
};

Functions& functions() {
  static Functions* const functions = new Functions;
  return *functions;
}

void add_function(std::string_view name, ProgramFunction function) {
  if (!functions().by_name.emplace(name, function).second) functions().twice.push_back(name);
}

std::string join(const std::vector<std::string_view>& names) {
  std::string text;
  for (const auto name : names) {
    if (!text.empty()) text += ", ";
    text += name;
  }
  return text;
}

std::string hex(const unsigned char* bytes, std::size_t count) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    text += kDigits[bytes[i] >> 4U];
    text += kDigits[bytes[i] & 15U];
  }
  return text;
}

/// The build id among the notes of one segment, or nothing.
std::string build_id_in(const unsigned char* at, std::size_t bytes) {
  const auto padded = [](std::size_t n) { return (n + 3) / 4 * 4; };
  while (bytes >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note;
    std::memcpy(&note, at, sizeof note);
    const std::size_t name = sizeof note;
    const std::size_t content = name + padded(note.n_namesz);
    const std::size_t end = content + padded(note.n_descsz);
    if (end > bytes) break;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
        std::memcmp(at + name, "GNU", 4) == 0) {
      return hex(at + content, note.n_descsz);
    }
    at += end;
    bytes -= end;
  }
  return {};
}

std::string read_own_build_id() {
  std::string id;
  dl_iterate_phdr(
      [](dl_phdr_info* module, std::size_t, void* to) {
        for (int i = 0; i < module->dlpi_phnum; ++i) {
          const auto& segment = module->dlpi_phdr[i];
          if (segment.p_type != PT_NOTE) continue;
          const auto* notes = reinterpret_cast<const unsigned char*>(  // NOLINT(*-int-to-ptr)
              module->dlpi_addr + segment.p_vaddr);
          std::string found = build_id_in(notes, segment.p_memsz);
          if (found.empty()) continue;
          *static_cast<std::string*>(to) = std::move(found);
          break;
        }
        return 1;  // The executable is the first; the others are not asked.
      },
      &id);
  return id;
}

}  // namespace

const std::string& own_build_id() {
  static const std::string* const id = new std::string(read_own_build_id());
  return *id;
}

const ProgramFunction* find_program_function(std::string_view name) noexcept {
  const auto found = functions().by_name.find(name);
  return found == functions().by_name.end() ? nullptr : &found->second;
}

void check_program_functions() {
  if (functions().twice.empty()) return;
  throw InvalidArgument("more than one WorkerFunction of this program has the name " +
                        join(functions().twice) + "; each needs a name of its own");
}

std::string program_function_names() {
  std::vector<std::string_view> names;
  for (const auto& [name, function] : functions().by_name)
    names.push_back(name);
  return names.empty() ? "none" : join(names);
}

}  // namespace strata::node

namespace strata {

WorkerFunction::WorkerFunction(std::string_view name, Function function) {
  node::add_function(name, {.function = function});
}

WorkerFunction::WorkerFunction(std::string_view name, OrchestrationFunction function) {
  node::add_function(name, {.orchestration = function});
}

}  // namespace strata
