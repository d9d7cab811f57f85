#include "trace/symboliser.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>

#include "trace/libdw.hpp"
#include "trace/module_symbols.hpp"

namespace strata::trace {
namespace {

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

  void fill_in(StackFrame& frame, const Place& place, AddressKind kind) {
    const Module& module = module_of(place, frame.build_id);
    frame.note = module.note;
    if (module.module == nullptr) return;
    if (frame.build_id.empty()) frame.build_id = module.build_id;
    frame.offset = frame.address - module.bias;
    add_names(libdw_, module.module, kind, Detail::all, frame);
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
    module.build_id = build_id_of(libdw_, reported);
    // What the process had in memory decides; where that is not known, whether its file was gone.
    const bool other = build_id.empty() ? place.deleted : build_id != module.build_id;
    if (other) return {.note = "the file has been replaced since it was loaded"};
    module.module = reported;
    return module;
  }

  const Libdw& libdw_;
  Dwfl_Callbacks callbacks_{};
  Dwfl* dwfl_ = nullptr;
  std::map<std::uint64_t, Module> modules_;
};

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
      session->fill_in(frame, place, i == 0 ? AddressKind::instruction : AddressKind::returns_to);
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
