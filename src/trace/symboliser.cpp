#include "trace/symboliser.hpp"

#include <cxxabi.h>
#include <dwarf.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>

#include "trace/libdw.hpp"

namespace strata::trace {
namespace {

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> plain(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free);
  return status == 0 ? plain.get() : name;
}

/// A file that the process had loaded, as far as its mappings tell.
struct Place {
  std::uint64_t begin = 0;  ///< Where its first page was mapped.
  bool deleted = false;
  std::string path;
};

/// What is mapped at an address. The path is empty if nothing is.
Place place_of(const std::vector<MappedRange>& maps, std::uint64_t address) {
  Place place;
  for (std::size_t i = 0; i < maps.size(); ++i) {
    const MappedRange& range = maps[i];
    if (address < range.begin || address >= range.end || range.path.empty()) continue;
    place = {range.begin - range.file_offset, range.deleted, range.path};
    // A file's segments follow each other; its first page is the last one at or before this.
    for (std::size_t first = i + 1; first-- > 0;) {
      if (maps[first].path != range.path || maps[first].file_offset != 0) continue;
      place.begin = maps[first].begin;
      break;
    }
    break;
  }
  return place;
}

std::string hex(const unsigned char* bytes, int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += fmt::format("{:02x}", bytes[i]);
  return text;
}

/// One session with libdw: the files of one crash.
class Session {
 public:
  explicit Session(const Libdw& libdw) : libdw_(libdw) {
    callbacks_.find_elf = libdw.find_elf;
    // By build id, on this machine only: the usual way may ask servers, for minutes.
    callbacks_.find_debuginfo = libdw.find_debuginfo;
    dwfl_ = libdw.begin(&callbacks_);
  }
  ~Session() {
    if (dwfl_ != nullptr) libdw_.end(dwfl_);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void fill_in(StackFrame& frame, const Place& place, bool is_return_address) {
    const Module& module = module_of(place, frame.build_id);
    frame.note = module.note;
    if (module.module == nullptr) return;
    if (frame.build_id.empty()) frame.build_id = module.build_id;
    frame.offset = frame.address - module.bias;
    // The instruction before a return address is the call.
    const GElf_Addr address = is_return_address ? frame.address - 1 : frame.address;
    GElf_Off distance = 0;
    GElf_Sym symbol;
    if (const char* name = libdw_.module_addrinfo(module.module, address, &distance, &symbol,
                                                  nullptr, nullptr, nullptr)) {
      frame.function = demangled(name);
    }
    if (const Unit unit = unit_at(module.module, address); unit.die != nullptr) {
      find_line(frame, unit);
      find_inlined(frame, unit);
    }
  }

 private:
  struct Module {
    Dwfl_Module* module = nullptr;
    GElf_Addr bias = 0;  ///< What the loader has added to the file's own addresses.
    std::string build_id = {};
    std::string note = {};
  };

  const Module& module_of(const Place& place, const std::string& build_id) {
    const auto [found, is_new] = modules_.try_emplace(place.begin);
    if (is_new) found->second = open(place, build_id);
    return found->second;
  }

  Module open(const Place& place, const std::string& build_id) {
    if (dwfl_ == nullptr) return {.note = "libdw does not work"};
    if (!place.path.starts_with('/')) return {};
    if (access(place.path.c_str(), R_OK) != 0) {
      return {.note = place.deleted ? "the file has been deleted" : "the file can't be read"};
    }
    Module module;
    libdw_.report_begin_add(dwfl_);
    Dwfl_Module* const reported = libdw_.report_elf(dwfl_, place.path.c_str(), place.path.c_str(),
                                                    -1, place.begin, /*add_p_vaddr=*/false);
    libdw_.report_end(dwfl_, nullptr, nullptr);
    if (reported == nullptr || libdw_.module_getelf(reported, &module.bias) == nullptr) {
      return {.note = "the file is not one that can be loaded any more"};
    }
    const unsigned char* bytes = nullptr;
    GElf_Addr where = 0;
    const int count = libdw_.module_build_id(reported, &bytes, &where);
    if (count > 0) module.build_id = hex(bytes, count);
    // What the process had in memory decides; where that is not known, whether its file was gone.
    const bool other = build_id.empty() ? place.deleted : build_id != module.build_id;
    if (other) return {.note = "the file has been replaced since it was loaded"};
    module.module = reported;
    return module;
  }

  /// What was compiled as one, and an address as it is called there.
  struct Unit {
    Dwarf_Die* die = nullptr;
    Dwarf_Addr address = 0;
  };

  Unit unit_at(Dwfl_Module* module, GElf_Addr address) {
    Dwarf_Addr bias = 0;
    if (Dwarf_Die* const die = libdw_.module_addrdie(module, address, &bias)) {
      return {die, address - bias};
    }
    // clang makes no table of addresses, so all are asked.
    Dwarf_Die* die = nullptr;
    while ((die = libdw_.module_nextcu(module, die, &bias)) != nullptr) {
      if (libdw_.haspc(die, address - bias) > 0) return {die, address - bias};
    }
    return {};
  }

  void find_line(StackFrame& frame, const Unit& unit) {
    Dwarf_Line* const line = libdw_.getsrc_die(unit.die, unit.address);
    if (line == nullptr) return;
    const char* const file = libdw_.linesrc(line, nullptr, nullptr);
    if (file == nullptr) return;
    frame.file = file;
    (void)libdw_.lineno(line, &frame.line);
  }

  /// Functions that the compiler has inlined around an address, innermost first.
  void find_inlined(StackFrame& frame, const Unit& unit) {
    using Scopes = std::unique_ptr<Dwarf_Die, decltype(&std::free)>;
    Dwarf_Die* innermost = nullptr;
    const int found = libdw_.getscopes(unit.die, unit.address, &innermost);
    const Scopes innermost_owner(innermost, &std::free);
    if (found <= 0) return;
    // What surrounds the first of those is where it was written; we want where it was inlined.
    Dwarf_Die* scopes = nullptr;
    const int count = libdw_.getscopes_die(innermost, &scopes);
    const Scopes owner(scopes, &std::free);
    for (int i = 0; i < count; ++i) {
      const int tag = libdw_.tag(&scopes[i]);
      if (tag == DW_TAG_subprogram) break;
      if (tag != DW_TAG_inlined_subroutine) continue;
      for (const unsigned attribute : {DW_AT_linkage_name, DW_AT_name}) {
        Dwarf_Attribute value;
        if (libdw_.attr_integrate(&scopes[i], attribute, &value) == nullptr) continue;
        if (const char* name = libdw_.formstring(&value)) {
          frame.inlined.push_back(demangled(name));
          frame.called_at.push_back(call_of(scopes[i], unit));
          break;
        }
      }
    }
  }

  SourceLine call_of(Dwarf_Die& inlined, const Unit& unit) {
    const auto number = [&](unsigned attribute) {
      Dwarf_Attribute value;
      Dwarf_Word word = 0;
      const bool known = libdw_.attr_integrate(&inlined, attribute, &value) != nullptr &&
                         libdw_.formudata(&value, &word) == 0;
      return known ? word : 0;
    };
    Dwarf_Files* files = nullptr;
    std::size_t count = 0;
    if (libdw_.getsrcfiles(unit.die, &files, &count) != 0) return {};
    const Dwarf_Word index = number(DW_AT_call_file);
    const char* const file =
        index < count ? libdw_.filesrc(files, index, nullptr, nullptr) : nullptr;
    if (file == nullptr) return {};
    return {file, static_cast<int>(number(DW_AT_call_line))};
  }

  const Libdw& libdw_;
  Dwfl_Callbacks callbacks_{};
  Dwfl* dwfl_ = nullptr;
  std::map<std::uint64_t, Module> modules_;
};

/// libdw is for one thread at a time.
std::mutex& libdw_mutex() {
  static std::mutex mutex;
  return mutex;
}

/// "f(int)" as it is; a C function's name as a call, so that it is seen to be a function.
std::string as_function(const std::string& name) {
  return name.find('(') == std::string::npos ? name + "()" : name;
}

}  // namespace

std::vector<StackFrame> symbolise(const CrashReport& report) {
  const std::lock_guard lock(libdw_mutex());
  const Libdw* const libdw = Libdw::get();
  std::optional<Session> session;
  if (libdw != nullptr) session.emplace(*libdw);
  std::vector<StackFrame> frames;
  for (std::size_t i = 0; i < report.frames.size(); ++i) {
    StackFrame frame;
    frame.address = report.frames[i];
    const Place place = place_of(report.maps, frame.address);
    frame.module = place.path;
    if (place.path.empty()) {
      frame.note = report.maps.empty() ? "what was mapped there is not known" : "no code is there";
      frames.push_back(std::move(frame));
      continue;
    }
    frame.offset = frame.address - place.begin;
    for (const LoadedModule& module : report.modules) {
      if (module.begin == place.begin) frame.build_id = module.build_id;
    }
    if (session) {
      session->fill_in(frame, place, /*is_return_address=*/i != 0);
    } else {
      frame.note = "libdw, which knows the functions, is not installed";
    }
    frames.push_back(std::move(frame));
  }
  return frames;
}

std::string to_text(const StackFrame& frame, std::size_t number) {
  std::string text = fmt::format("#{} ", number);
  for (const std::string& inlined : frame.inlined)
    text += as_function(inlined) + " inlined into ";
  text +=
      frame.function.empty() ? fmt::format("{:#x}", frame.address) : as_function(frame.function);
  if (!frame.file.empty()) text += fmt::format(" at {}:{}", frame.file, frame.line);
  if (!frame.module.empty()) text += fmt::format(" in {}+{:#x}", frame.module, frame.offset);
  if (!frame.build_id.empty()) text += fmt::format(" (build id {})", frame.build_id);
  if (!frame.note.empty()) text += " [" + frame.note + "]";
  return text;
}

std::string describe(const CrashReport& report) {
  std::string text = report.headline() + "\n";
  if (!report.text.empty()) text += report.text + "\n";
  const std::vector<StackFrame> frames = symbolise(report);
  for (std::size_t i = 0; i < frames.size(); ++i) {
    text += "  " + to_text(frames[i], i) + "\n";
    // A recursion that has no end is told once.
    const std::size_t from = i + 1;
    while (i + 1 < frames.size() && frames[i + 1].address == frames[i].address)
      ++i;
    if (i == from) text += fmt::format("  #{} the same\n", i);
    if (i > from) text += fmt::format("  #{} to #{} the same\n", from, i);
  }
  if (report.frames_in_all > frames.size()) {
    text += fmt::format("  and at least {} more frames\n", report.frames_in_all - frames.size());
  }
  return text;
}

}  // namespace strata::trace
