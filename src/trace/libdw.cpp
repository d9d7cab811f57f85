#include "trace/libdw.hpp"

#include <dlfcn.h>

#include <optional>

namespace strata::trace {
namespace {

std::optional<Libdw> load() {
  // Never unloaded: it is needed again at the next crash.
  void* const library = dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return std::nullopt;
  Libdw functions{};
  bool complete = true;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    complete = complete && function != nullptr;
  };
  find(functions.begin, "dwfl_begin");
  find(functions.end, "dwfl_end");
  find(functions.report_begin_add, "dwfl_report_begin_add");
  find(functions.report_end, "dwfl_report_end");
  find(functions.report_elf, "dwfl_report_elf");
  find(functions.find_elf, "dwfl_build_id_find_elf");
  find(functions.find_debuginfo, "dwfl_build_id_find_debuginfo");
  find(functions.module_build_id, "dwfl_module_build_id");
  find(functions.module_getelf, "dwfl_module_getelf");
  find(functions.module_addrinfo, "dwfl_module_addrinfo");
  find(functions.module_addrdie, "dwfl_module_addrdie");
  find(functions.module_nextcu, "dwfl_module_nextcu");
  find(functions.haspc, "dwarf_haspc");
  find(functions.getsrc_die, "dwarf_getsrc_die");
  find(functions.linesrc, "dwarf_linesrc");
  find(functions.lineno, "dwarf_lineno");
  find(functions.getscopes, "dwarf_getscopes");
  find(functions.getscopes_die, "dwarf_getscopes_die");
  find(functions.tag, "dwarf_tag");
  find(functions.attr_integrate, "dwarf_attr_integrate");
  find(functions.formstring, "dwarf_formstring");
  find(functions.formudata, "dwarf_formudata");
  find(functions.getsrcfiles, "dwarf_getsrcfiles");
  find(functions.filesrc, "dwarf_filesrc");
  find(functions.linux_proc_report, "dwfl_linux_proc_report");
  find(functions.linux_proc_find_elf, "dwfl_linux_proc_find_elf");
  find(functions.attach_state, "dwfl_attach_state");
  find(functions.getthread_frames, "dwfl_getthread_frames");
  find(functions.frame_pc, "dwfl_frame_pc");
  find(functions.thread_state_registers, "dwfl_thread_state_registers");
  find(functions.thread_state_register_pc, "dwfl_thread_state_register_pc");
  find(functions.addrmodule, "dwfl_addrmodule");
  find(functions.module_info, "dwfl_module_info");
  if (!complete) return std::nullopt;
  return functions;
}

}  // namespace

const Libdw* Libdw::get() {
  static const std::optional<Libdw> functions = load();
  return functions ? &*functions : nullptr;
}

}  // namespace strata::trace
