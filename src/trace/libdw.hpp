// libdw, loaded when it is first needed: it costs a program that does not crash nothing, and
// nobody has to have it.
//
// Thread safety: get() may be called from any thread; what it returns is for one thread at a time,
// as libdw itself is.
#pragma once

#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>

namespace strata::trace {

/// The functions of libdw that we use, as its headers declare them.
struct Libdw {
  /// Null where libdw is not installed.
  [[nodiscard]] static const Libdw* get();

  decltype(&dwfl_begin) begin;
  decltype(&dwfl_end) end;
  decltype(&dwfl_report_begin_add) report_begin_add;
  decltype(&dwfl_report_end) report_end;
  decltype(&dwfl_report_elf) report_elf;
  decltype(&dwfl_build_id_find_elf) find_elf;
  decltype(&dwfl_build_id_find_debuginfo) find_debuginfo;
  decltype(&dwfl_module_build_id) module_build_id;
  decltype(&dwfl_module_getelf) module_getelf;
  decltype(&dwfl_module_addrinfo) module_addrinfo;
  decltype(&dwfl_module_addrdie) module_addrdie;
  decltype(&dwfl_module_nextcu) module_nextcu;
  decltype(&dwarf_haspc) haspc;
  decltype(&dwarf_getsrc_die) getsrc_die;
  decltype(&dwarf_linesrc) linesrc;
  decltype(&dwarf_lineno) lineno;
  decltype(&dwarf_getscopes) getscopes;
  decltype(&dwarf_getscopes_die) getscopes_die;
  decltype(&dwarf_tag) tag;
  decltype(&dwarf_attr_integrate) attr_integrate;
  decltype(&dwarf_formstring) formstring;
  decltype(&dwarf_formudata) formudata;
  decltype(&dwarf_getsrcfiles) getsrcfiles;
  decltype(&dwarf_filesrc) filesrc;
  // Live processes: what they have mapped, and the frames of their threads.
  decltype(&dwfl_linux_proc_report) linux_proc_report;
  decltype(&dwfl_linux_proc_find_elf) linux_proc_find_elf;
  decltype(&dwfl_attach_state) attach_state;
  decltype(&dwfl_getthread_frames) getthread_frames;
  decltype(&dwfl_frame_pc) frame_pc;
  decltype(&dwfl_thread_state_registers) thread_state_registers;
  decltype(&dwfl_thread_state_register_pc) thread_state_register_pc;
  decltype(&dwfl_addrmodule) addrmodule;
  decltype(&dwfl_module_info) module_info;
};

}  // namespace strata::trace
