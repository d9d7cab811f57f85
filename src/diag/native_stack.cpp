#include "diag/native_stack.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <optional>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "diag/stopped_thread.hpp"
#include "diag/thread_look.hpp"
#include "os/procfs.hpp"
#include "os/unique_fd.hpp"
#include "trace/libdw.hpp"
#include "trace/maps_parser.hpp"
#include "trace/module_symbols.hpp"

namespace strata::diag {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMaxFrames = 1024;
/// Of a stack that is deeper, this much is copied while the thread stands; the rest is read while
/// it runs again.
constexpr std::size_t kMaxCopy = std::size_t{2} << 20;
/// What a function may use below its stack pointer.
constexpr std::uint64_t kRedZone = 128;
/// A thread that is about to run needs a CPU to stop on; one that waits in the kernel and can't be
/// interrupted may not stop for ever.
constexpr std::chrono::milliseconds kPatience = 1s;
constexpr std::chrono::milliseconds kPatienceInKernel = 50ms;

/// A thread as it was when it stood still.
struct Copy {
  pid_t thread = 0;
  Registers registers;
  std::uint64_t begin = 0;  ///< Address of the first byte of `stack`.
  std::string stack;
  std::chrono::nanoseconds held{0};
  std::string note;
  StackTaker taker = StackTaker::outside;
};

struct Range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

std::vector<Range> readable_ranges(pid_t pid) {
  std::vector<Range> ranges;
  const auto text = os::read_small_file(fmt::format("/proc/{}/maps", pid));
  if (!text) return ranges;
  trace::MapsParser lines(*text);
  while (const auto line = lines.next()) {
    if (line->readable) ranges.push_back({line->begin, line->end});
  }
  return ranges;
}

/// The kernel says what it refused; this is why it may have.
std::string why_refused(pid_t pid, int error) {
  const auto status = os::read_small_file(fmt::format("/proc/{}/status", pid)).value_or("");
  constexpr std::string_view kTracer = "TracerPid:\t";
  if (const std::size_t at = status.find(kTracer); at != std::string::npos) {
    const pid_t tracer = std::atoi(status.c_str() + at + kTracer.size());
    if (tracer != 0) return fmt::format("it is traced already, by process {}", tracer);
  }
  return fmt::format(
      "ptrace is not permitted ({}): needs the same user, and in a container the capability "
      "SYS_PTRACE; what follows is what /proc tells",
      std::generic_category().message(error));
}

/// The memory of a process, as it is now.
class Memory {
 public:
  explicit Memory(pid_t pid)
      : fd_(::open(fmt::format("/proc/{}/mem", pid).c_str(), O_RDONLY | O_CLOEXEC)),
        error_(fd_ ? 0 : errno) {}
  [[nodiscard]] int error() const noexcept { return error_; }
  /// As many bytes as there are, up to `bytes`.
  [[nodiscard]] std::string read(std::uint64_t address, std::size_t bytes) const {
    std::string content(bytes, '\0');
    std::size_t have = 0;
    while (have < bytes) {
      const ssize_t got = ::pread(fd_.get(), content.data() + have, bytes - have,
                                  static_cast<off_t>(address + have));
      if (got <= 0) break;
      have += static_cast<std::size_t>(got);
    }
    content.resize(have);
    return content;
  }

 private:
  os::UniqueFd fd_;
  int error_;
};

/// Takes the copies of all threads of one process.
class Copier {
 public:
  Copier(pid_t pid, const Memory& memory, os::Deadline deadline)
      : pid_(pid), memory_(memory), deadline_(deadline), ranges_(readable_ranges(pid)) {}

  /// errno of what the kernel refuses for the whole process; 0 if it refuses nothing.
  int copy_all() {
    // New threads may have begun meanwhile; not for ever, should it make them faster than we look.
    for (int round = 0; round < 3; ++round) {
      bool any = false;
      for (const pid_t thread : threads_of(pid_)) {
        if (!seen_.insert(thread).second) continue;
        any = true;
        if (const int refused = copy(thread)) return refused;
      }
      if (!any) break;
    }
    return 0;
  }

  /// Those that the process has copied itself need no look from outside; the others get one, and
  /// say why.
  void take(const trace::StackAnswer& own) {
    why_not_listed_ = why_not_listed(own);
    for (const trace::CopiedThread& thread : own.threads) {
      if (thread.stage != trace::StackStage::whole) {
        why_.emplace(thread.thread, why_not(thread, own.signal));
        continue;
      }
      seen_.insert(thread.thread);
      Copy copy;
      copy.thread = thread.thread;
      std::ranges::copy(thread.general, std::begin(copy.registers.general));
      copy.registers.pc = thread.pc;
      copy.registers.thread_pointer = thread.thread_pointer;
      copy.begin = thread.begin;
      copy.stack = thread.stack;
      copy.taker = StackTaker::process;
      copies.push_back(std::move(copy));
    }
  }
  /// Why the process has not copied those of its threads that could not be copied from outside.
  void add_what_is_left(const std::string& why_not_outside) {
    std::set<pid_t> copied;
    for (const Copy& copy : copies)
      copied.insert(copy.thread);
    for (const pid_t thread : threads_of(pid_)) {
      if (copied.contains(thread)) continue;
      Copy copy;
      copy.thread = thread;
      copy.note = why_not_own(thread) + "; from outside: " + why_not_outside;
      copies.push_back(std::move(copy));
    }
  }

  std::vector<Copy> copies;

 private:
  /// Why the process has not copied that thread; "" if it was not to.
  [[nodiscard]] const std::string& why_not_own(pid_t thread) const {
    const auto why = why_.find(thread);
    return why != why_.end() ? why->second : why_not_listed_;
  }

  static std::string why_not_listed(const trace::StackAnswer& own) {
    if (own.threads.empty()) return "the process could not list its threads";
    if (own.threads_in_all <= own.threads.size())
      return "it was not there when the process took its stacks";
    return fmt::format("the process had room for the stacks of {} of its {} threads",
                       own.threads.size(), own.threads_in_all);
  }

  static std::string why_not(const trace::CopiedThread& thread, int signal) {
    switch (thread.stage) {
      case trace::StackStage::blocked:
        return fmt::format("it blocks signal {}, by which the process takes stacks", signal);
      case trace::StackStage::in_call:
        return fmt::format("the process leaves it alone, since a signal would end its {}",
                           name_of_call(thread.call));
      case trace::StackStage::gone:
        return "it has ended";
      case trace::StackStage::unseen:
        return "the process leaves it alone, since /proc does not tell whether a signal would "
               "disturb it";
      case trace::StackStage::no_room:
        return "the process had no room for its stack, or could not read it";
      default:
        return fmt::format("it did not take signal {} in time, by which the process takes stacks",
                           signal);
    }
  }

  int copy(pid_t thread) {
    const auto info = os::parse_process(
        os::read_small_file(fmt::format("/proc/{}/task/{}/stat", pid_, thread)).value_or(""));
    if (!info || info->state == 'Z' || info->state == 'X') return 0;
    Copy copy;
    copy.thread = thread;
    const os::Deadline patience =
        os::Deadline::after(info->state == 'D' ? kPatienceInKernel : kPatience);
    StoppedThread stopped(thread, os::earlier(deadline_, patience));
    if (stopped.registers()) {
      copy.registers = *stopped.registers();
      copy_stack(copy);
      copy.held = stopped.release();
    } else if (stopped.failure().refused()) {
      return stopped.failure().error;
    } else if (stopped.failure().gone()) {
      return 0;
    } else {
      copy.note = stopped.failure().error == ENOEXEC
                      ? "stacks of programs for another kind of processor are not unwound"
                      : "it can't be stopped: it waits in the kernel, or gets no CPU";
      copy_from_call(copy);
    }
    if (const std::string& why = why_not_own(thread); !why.empty())
      copy.note = "taken from outside: " + why + (copy.note.empty() ? "" : "; " + copy.note);
    copies.push_back(std::move(copy));
    return 0;
  }

  void copy_stack(Copy& copy) const {
    const std::uint64_t sp = copy.registers.sp();
    for (const Range& range : ranges_) {
      if (sp < range.begin || sp >= range.end) continue;
      copy.begin = std::max(range.begin, sp > kRedZone ? sp - kRedZone : 0);
      copy.stack = memory_.read(copy.begin, static_cast<std::size_t>(std::min(
                                                range.end - copy.begin, std::uint64_t{kMaxCopy})));
      return;
    }
    // Mapped after we had looked.
    copy.begin = sp;
    copy.stack = memory_.read(sp, std::size_t{64} << 10);
  }

  /// Where it entered the kernel is known of a thread that does not stop, but not all registers.
  void copy_from_call(Copy& copy) const {
    const auto call = parse_system_call(
        os::read_small_file(fmt::format("/proc/{}/task/{}/syscall", pid_, copy.thread))
            .value_or(""));
    if (!call) return;
    copy.registers.general[7] = call->sp;
    copy.registers.pc = call->pc;
    copy_stack(copy);
    copy.note += "; its stack may be incomplete";
  }

  const pid_t pid_;
  const Memory& memory_;
  const os::Deadline deadline_;
  const std::vector<Range> ranges_;
  std::set<pid_t> seen_;
  std::map<pid_t, std::string> why_;  ///< Why the process has not copied them itself ...
  std::string why_not_listed_;        ///< ... and those of which it says nothing.
};

/// A session of libdw with one process, unwinding copies. Requires libdw_mutex().
class Unwinder {
 public:
  Unwinder(const trace::Libdw& libdw, pid_t pid, const Memory& memory, os::Deadline deadline,
           FrameNames& names)
      : libdw_(libdw), memory_(memory), deadline_(deadline), names_(names) {
    root_folder() = foreign_root(pid);
    callbacks_.find_elf = &find_elf;
    callbacks_.find_debuginfo = libdw.find_debuginfo;  // On this machine only.
    thread_callbacks_.next_thread = [](Dwfl*, void*, void**) { return 0; };
    thread_callbacks_.get_thread = [](Dwfl*, pid_t, void* self, void** thread_argument) {
      *thread_argument = self;
      return true;
    };
    thread_callbacks_.memory_read = [](Dwfl*, Dwarf_Addr address, Dwarf_Word* result, void* self) {
      return static_cast<Unwinder*>(self)->read(address, *result);
    };
    thread_callbacks_.set_initial_registers = [](Dwfl_Thread* thread, void* self) {
      return static_cast<Unwinder*>(self)->set_registers(thread);
    };
    dwfl_ = libdw_.begin(&callbacks_);
    if (dwfl_ == nullptr) return;
    libdw_.report_begin_add(dwfl_);
    const bool reported = libdw_.linux_proc_report(dwfl_, pid) == 0;
    libdw_.report_end(dwfl_, nullptr, nullptr);
    attached_ = reported && libdw_.attach_state(dwfl_, nullptr, pid, &thread_callbacks_, this);
  }
  ~Unwinder() {
    if (dwfl_ != nullptr) libdw_.end(dwfl_);
  }
  Unwinder(const Unwinder&) = delete;
  Unwinder& operator=(const Unwinder&) = delete;

  NativeStack unwind(const Copy& copy) {
    NativeStack stack;
    stack.held = copy.held;
    stack.note = copy.note;
    stack.taker = copy.taker;
    stack.thread_pointer = copy.registers.thread_pointer;
    if (copy.registers.pc == 0) return stack;
    struct Found {
      const trace::Libdw& libdw;
      NativeStack& stack;
      std::vector<std::pair<std::uint64_t, trace::AddressKind>> addresses;
    } found{libdw_, stack, {}};
    copy_ = &copy;
    if (attached_) {
      const auto visit = [](Dwfl_Frame* frame, void* argument) -> int {
        auto& into = *static_cast<Found*>(argument);
        Dwarf_Addr pc = 0;
        bool is_activation = false;
        if (!into.libdw.frame_pc(frame, &pc, &is_activation)) return DWARF_CB_ABORT;
        if (into.addresses.size() == kMaxFrames) {
          into.stack.more = true;
          return DWARF_CB_ABORT;
        }
        const auto kind =
            is_activation ? trace::AddressKind::instruction : trace::AddressKind::returns_to;
        if (pc != 0) into.addresses.emplace_back(pc, kind);
        return DWARF_CB_OK;
      };
      // An error is how many stacks end.
      (void)libdw_.getthread_frames(dwfl_, copy.thread, visit, &found);
    }
    copy_ = nullptr;
    if (found.addresses.empty()) {
      found.addresses.emplace_back(copy.registers.pc, trace::AddressKind::instruction);
      if (stack.note.empty()) stack.note = "the stack could not be unwound";
    }
    for (const auto& [address, kind] : found.addresses)
      stack.frames.push_back(frame_at(address, kind));
    return stack;
  }

 private:
  /// Where the files of a process in another mount namespace are found; "" for one in ours.
  static std::string foreign_root(pid_t pid) {
    const auto name = [](const std::string& process) {
      std::string target(64, '\0');
      const std::string path = "/proc/" + process + "/ns/mnt";
      const ssize_t size = ::readlink(path.c_str(), target.data(), target.size());
      target.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
      return target;
    };
    const std::string its = name(std::to_string(pid));
    return its.empty() || its == name("self") ? "" : fmt::format("/proc/{}/root", pid);
  }
  /// For find_elf(), which libdw gives nothing of ours.
  static std::string& root_folder() {
    thread_local std::string folder;
    return folder;
  }
  static int find_elf(Dwfl_Module* module, void** data, const char* name, Dwarf_Addr base,
                      char** file_name, Elf** elf) {
    const std::string& root = root_folder();
    if (!root.empty() && name[0] == '/') {
      const std::string path = root + name;
      const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
      if (fd >= 0) *file_name = ::strdup(path.c_str());
      return fd;
    }
    return trace::Libdw::get()->linux_proc_find_elf(module, data, name, base, file_name, elf);
  }

  bool read(std::uint64_t address, Dwarf_Word& result) const {
    static_assert(sizeof result == 8);
    if (copy_ == nullptr) return false;
    if (address >= copy_->begin && address - copy_->begin + 8 <= copy_->stack.size()) {
      std::memcpy(&result, copy_->stack.data() + (address - copy_->begin), 8);
      return true;
    }
    const std::string bytes = memory_.read(address, 8);
    if (bytes.size() != 8) return false;
    std::memcpy(&result, bytes.data(), 8);
    return true;
  }

  bool set_registers(Dwfl_Thread* thread) const {
    if (copy_ == nullptr) return false;
    std::array<Dwarf_Word, Registers::kCount + 1> values{};
    std::ranges::copy(copy_->registers.general, values.begin());
    values.back() = copy_->registers.pc;  // DWARF's register 16 of x86-64.
    return libdw_.thread_state_registers(thread, 0, values.size(), values.data());
  }

  /// The threads of a pool wait in the same places: each is named once.
  const trace::StackFrame& frame_at(std::uint64_t address, trace::AddressKind kind) {
    const auto [known, is_new] = frames_.try_emplace({address, kind});
    trace::StackFrame& frame = known->second;
    if (!is_new) return frame;
    frame.address = address;
    Dwfl_Module* const module =
        libdw_.addrmodule(dwfl_, kind == trace::AddressKind::returns_to ? address - 1 : address);
    if (module == nullptr) {
      frame.note = "no file is mapped there";
      return frame;
    }
    Dwarf_Addr start = 0;
    if (const char* name = libdw_.module_info(module, nullptr, &start, nullptr, nullptr, nullptr,
                                              nullptr, nullptr)) {
      frame.module = name;
    }
    GElf_Addr bias = 0;
    const bool open = libdw_.module_getelf(module, &bias) != nullptr;
    frame.offset = address - (open ? bias : start);
    if (!open) {
      frame.note = "the file can't be read";
      return frame;
    }
    add_names_once(module, kind, frame);
    return frame;
  }

  /// What the file says of the place; the same file of another process may have been asked already.
  void add_names_once(Dwfl_Module* module, trace::AddressKind kind, trace::StackFrame& frame) {
    const std::string build_id = build_id_of(libdw_, module);
    FrameNames::Key key{root_folder() + frame.module + " " + build_id, frame.offset, kind};
    // A path alone can be two files, one of which has been deleted.
    if (const auto* known = build_id.empty() ? nullptr : names_.find(key)) {
      const std::uint64_t address = frame.address;
      frame = *known;
      frame.address = address;
      return;
    }
    // Lines take reading of all that the compiler wrote down of the file, which may be much.
    const auto detail = deadline_.passed() ? trace::Detail::function : trace::Detail::all;
    add_names(libdw_, module, kind, detail, frame);
    // Enough is known without it otherwise, and it is long.
    if (frame.function.empty()) frame.build_id = build_id;
    if (!build_id.empty() && detail == trace::Detail::all) names_.add(std::move(key), frame);
  }

  const trace::Libdw& libdw_;
  const Memory& memory_;
  const os::Deadline deadline_;
  FrameNames& names_;
  Dwfl_Callbacks callbacks_{};
  Dwfl_Thread_Callbacks thread_callbacks_{};
  Dwfl* dwfl_ = nullptr;
  bool attached_ = false;
  const Copy* copy_ = nullptr;  ///< The thread that is being unwound.
  std::map<std::pair<std::uint64_t, trace::AddressKind>, trace::StackFrame> frames_;
};

/// Without libdw: where each thread is, and no more.
NativeStack bare_stack(const Copy& copy) {
  NativeStack stack;
  stack.held = copy.held;
  stack.taker = copy.taker;
  stack.note = copy.note.empty() ? "libdw, which unwinds stacks, is not installed" : copy.note;
  if (copy.registers.pc == 0) return stack;
  trace::StackFrame frame;
  frame.address = copy.registers.pc;
  stack.frames.push_back(std::move(frame));
  return stack;
}

ProcessStacks collect(pid_t pid, os::Deadline deadline, FrameNames& names,
                      const trace::StackAnswer* own) {
  ProcessStacks result;
  const Memory memory(pid);
  const bool gone = memory.error() != 0 && memory.error() != EACCES && memory.error() != EPERM;
  if (gone) {
    result.note = "the process has ended";
    return result;
  }
  const trace::Libdw* const libdw = trace::Libdw::get();
  const std::lock_guard lock(trace::libdw_mutex());
  // Before the copies: a process that dies after them can still be unwound.
  std::optional<Unwinder> unwinder;
  if (libdw != nullptr) unwinder.emplace(*libdw, pid, memory, deadline, names);
  Copier copier(pid, memory, deadline);
  if (own != nullptr) copier.take(*own);
  const std::int64_t begin = os::monotonic_now_ns();
  const int refused = memory.error() != 0 ? memory.error() : copier.copy_all();
  result.copied_in = std::chrono::nanoseconds(os::monotonic_now_ns() - begin);
  if (refused != 0) {
    const std::string why = why_refused(pid, refused);
    if (own == nullptr) {
      result.note = why;
      return result;
    }
    copier.add_what_is_left(why);
  }
  for (const Copy& copy : copier.copies) {
    result.threads.emplace(copy.thread, unwinder ? unwinder->unwind(copy) : bare_stack(copy));
  }
  return result;
}

}  // namespace

ProcessStacks stacks_of(pid_t pid, os::Deadline deadline, FrameNames& names,
                        const trace::StackAnswer* own) {
  ProcessStacks result;
  std::thread worker([&] {
    sigset_t all;
    sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, nullptr);
    result = collect(pid, deadline, names, own);
  });
  worker.join();
  return result;
}

std::optional<std::uint32_t> read_word(pid_t pid, std::uint64_t address) {
  const std::string bytes = Memory(pid).read(address, 4);
  if (bytes.size() != 4) return std::nullopt;
  std::uint32_t word = 0;
  std::memcpy(&word, bytes.data(), 4);
  return word;
}

}  // namespace strata::diag
