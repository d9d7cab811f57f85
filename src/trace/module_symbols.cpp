#include "trace/module_symbols.hpp"

#include <dwarf.h>
#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/exception_text.hpp"

namespace strata::trace {
namespace {

/// What was compiled as one, and an address as it is called there.
struct Unit {
  Dwarf_Die* die = nullptr;
  Dwarf_Addr address = 0;
};

Unit unit_at(const Libdw& libdw, Dwfl_Module* module, GElf_Addr address) {
  Dwarf_Addr bias = 0;
  if (Dwarf_Die* const die = libdw.module_addrdie(module, address, &bias)) {
    return {die, address - bias};
  }
  // clang makes no table of addresses, so all are asked.
  Dwarf_Die* die = nullptr;
  while ((die = libdw.module_nextcu(module, die, &bias)) != nullptr) {
    if (libdw.haspc(die, address - bias) > 0) return {die, address - bias};
  }
  return {};
}

void find_line(const Libdw& libdw, const Unit& unit, StackFrame& frame) {
  Dwarf_Line* const line = libdw.getsrc_die(unit.die, unit.address);
  if (line == nullptr) return;
  const char* const file = libdw.linesrc(line, nullptr, nullptr);
  if (file == nullptr) return;
  frame.file = file;
  (void)libdw.lineno(line, &frame.line);
}

/// Where an inlined function is called.
SourceLine call_of(const Libdw& libdw, Dwarf_Die& inlined, const Unit& unit) {
  const auto number = [&](unsigned attribute) {
    Dwarf_Attribute value;
    Dwarf_Word word = 0;
    const bool known = libdw.attr_integrate(&inlined, attribute, &value) != nullptr &&
                       libdw.formudata(&value, &word) == 0;
    return known ? word : 0;
  };
  Dwarf_Files* files = nullptr;
  std::size_t count = 0;
  if (libdw.getsrcfiles(unit.die, &files, &count) != 0) return {};
  const Dwarf_Word index = number(DW_AT_call_file);
  const char* const file = index < count ? libdw.filesrc(files, index, nullptr, nullptr) : nullptr;
  if (file == nullptr) return {};
  return {file, static_cast<int>(number(DW_AT_call_line))};
}

/// Functions that the compiler has inlined around an address, innermost first.
void find_inlined(const Libdw& libdw, const Unit& unit, StackFrame& frame) {
  using Scopes = std::unique_ptr<Dwarf_Die, decltype(&std::free)>;
  Dwarf_Die* innermost = nullptr;
  const int found = libdw.getscopes(unit.die, unit.address, &innermost);
  const Scopes innermost_owner(innermost, &std::free);
  if (found <= 0) return;
  // What surrounds the first of those is where it was written; we want where it was inlined.
  Dwarf_Die* scopes = nullptr;
  const int count = libdw.getscopes_die(innermost, &scopes);
  const Scopes owner(scopes, &std::free);
  for (int i = 0; i < count; ++i) {
    const int tag = libdw.tag(&scopes[i]);
    if (tag == DW_TAG_subprogram) break;
    if (tag != DW_TAG_inlined_subroutine) continue;
    for (const unsigned attribute : {DW_AT_linkage_name, DW_AT_name}) {
      Dwarf_Attribute value;
      if (libdw.attr_integrate(&scopes[i], attribute, &value) == nullptr) continue;
      if (const char* name = libdw.formstring(&value)) {
        frame.inlined.push_back(base::demangled(name));
        frame.called_at.push_back(call_of(libdw, scopes[i], unit));
        break;
      }
    }
  }
}

}  // namespace

std::mutex& libdw_mutex() {
  static std::mutex mutex;
  return mutex;
}

void add_names(const Libdw& libdw, Dwfl_Module* module, AddressKind kind, Detail detail,
               StackFrame& frame) {
  // The instruction before a return address is the call.
  const GElf_Addr address = kind == AddressKind::returns_to ? frame.address - 1 : frame.address;
  GElf_Off distance = 0;
  GElf_Sym symbol;
  if (const char* name =
          libdw.module_addrinfo(module, address, &distance, &symbol, nullptr, nullptr, nullptr)) {
    frame.function = base::demangled(name);
  }
  if (detail == Detail::function) return;
  if (const Unit unit = unit_at(libdw, module, address); unit.die != nullptr) {
    find_line(libdw, unit, frame);
    find_inlined(libdw, unit, frame);
  }
}

std::string build_id_of(const Libdw& libdw, Dwfl_Module* module) {
  const unsigned char* bytes = nullptr;
  GElf_Addr where = 0;
  const int count = libdw.module_build_id(module, &bytes, &where);
  std::string text;
  for (int i = 0; i < count; ++i)
    text += fmt::format("{:02x}", bytes[i]);
  return text;
}

}  // namespace strata::trace
