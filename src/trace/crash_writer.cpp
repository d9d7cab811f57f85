#include "trace/crash_writer.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "trace/clocks.hpp"
#include "trace/maps_parser.hpp"
#include "trace/process_record.hpp"
#include "trace/safe_memory.hpp"
#include "trace/text_words.hpp"

namespace strata::trace {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
/// Enough for any stack that was meant; a stack overflow has more.
constexpr std::uint64_t kMaxWalked = 4096;

void reach(CrashArea& crash, CrashStage stage) noexcept {
  crash.stage.store(static_cast<std::uint32_t>(stage), std::memory_order_release);
}

greg_t& register_of(void* context, int index) noexcept {
  return static_cast<ucontext_t*>(context)->uc_mcontext.gregs[index];
}

/// What glibc keeps of the message of a failed assertion or a corrupted heap. Looked up when the
/// handler is installed; glibc exports it for debuggers.
struct AbortMessage {
  unsigned size;
  char text[1];
};
AbortMessage** abort_message = nullptr;

void write_abort_message(CrashArea& crash) noexcept {
  if (abort_message == nullptr) return;
  const AbortMessage* const message = *abort_message;
  if (message == nullptr) return;
  // Read in pieces, since the size that is there is that of whole pages.
  char text[2048];
  std::size_t bytes = 0;
  while (bytes < sizeof(text)) {
    char piece[64];
    const auto at = reinterpret_cast<std::uint64_t>(message->text) + bytes;
    if (!read_memory(at, piece, sizeof(piece))) break;
    const std::size_t length = strnlen(piece, sizeof(piece));
    const std::size_t kept = std::min(length, sizeof(text) - bytes);
    std::memcpy(text + bytes, piece, kept);
    bytes += kept;
    if (length < sizeof(piece)) break;
  }
  while (bytes != 0 && text[bytes - 1] == '\n')
    --bytes;
  if (bytes != 0) write_crash_text(crash, text, bytes);
}

void write_note(CrashArea& crash, CrashNote note) noexcept {
  char text[kCrashNoteBytes];
  store_text(crash.note, {text, std::min(note(text, sizeof(text)), sizeof(text))});
}

void write_facts(CrashArea& crash, int signal, const siginfo_t& info, void* context) noexcept {
  crash.thread.store(static_cast<std::uint32_t>(syscall(SYS_gettid)), kRelaxed);
  char name[16] = {};
  syscall(SYS_prctl, PR_GET_NAME, name, 0, 0, 0);
  for (std::size_t i = 0; i < crash.thread_name.size(); ++i) {
    std::uint64_t word;
    std::memcpy(&word, name + i * 8, 8);
    crash.thread_name[i].store(word, kRelaxed);
  }
  crash.signal.store(static_cast<std::uint32_t>(signal), kRelaxed);
  crash.code.store(static_cast<std::uint32_t>(info.si_code), kRelaxed);
  // Which of the two it is, the kernel tells by the sign of the code.
  if (info.si_code > 0) {
    crash.address.store(reinterpret_cast<std::uint64_t>(info.si_addr), kRelaxed);
  } else {
    crash.sender.store(static_cast<std::uint64_t>(info.si_pid), kRelaxed);
  }
  for (std::size_t i = 0; i < kRegisters; ++i) {
    crash.registers[i].store(static_cast<std::uint64_t>(register_of(context, static_cast<int>(i))),
                             kRelaxed);
  }
  crash.pc.store(static_cast<std::uint64_t>(register_of(context, REG_RIP)), kRelaxed);
}

/// The bytes of the maps that are kept, as text.
std::string_view maps_text(const CrashArea& crash) noexcept {
  const auto bytes = std::min<std::uint64_t>(crash.maps.bytes_in_all.load(kRelaxed), kMapsBytes);
  return {reinterpret_cast<const char*>(crash.maps.words.data()), static_cast<std::size_t>(bytes)};
}

void write_maps(CrashArea& crash) noexcept {
  const long fd = syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  char* const to = reinterpret_cast<char*>(crash.maps.words.data());
  std::uint64_t total = 0;
  while (true) {
    // What finds no room is read all the same, for its length.
    char beyond[4096];
    const bool room = total < kMapsBytes;
    const long got =
        room ? syscall(SYS_read, fd, to + total, static_cast<std::size_t>(kMapsBytes - total))
             : syscall(SYS_read, fd, beyond, sizeof(beyond));
    if (got <= 0) break;
    total += static_cast<std::uint64_t>(got);
  }
  syscall(SYS_close, fd);
  crash.maps.bytes_in_all.store(total, kRelaxed);
}

bool is_code(std::string_view maps, std::uint64_t address) noexcept {
  MapsParser lines(maps);
  while (const auto line = lines.next()) {
    if (address >= line->begin && address < line->end) return line->executable;
  }
  return false;
}

struct Walk {
  CrashArea* crash;
  std::uint64_t start;  ///< Pc of the frame to begin with: those above it are the handler's.
  std::uint64_t walked = 0;
  bool started = false;
};

void add_frame(CrashArea& crash, std::uint64_t address) noexcept {
  const std::uint32_t count = crash.frame_count.load(kRelaxed);
  if (count < kMaxFrames) {
    crash.frames[count].store(address, kRelaxed);
    // Release: counted only once it is there, since the unwinder may not survive the next one.
    crash.frame_count.store(count + 1, std::memory_order_release);
  }
  crash.frames_in_all.store(crash.frames_in_all.load(kRelaxed) + 1, kRelaxed);
}

_Unwind_Reason_Code on_frame(_Unwind_Context* context, void* argument) noexcept {
  Walk& walk = *static_cast<Walk*>(argument);
  int before_instruction = 0;
  const std::uint64_t address = _Unwind_GetIPInfo(context, &before_instruction);
  if (++walk.walked > kMaxWalked) return _URC_END_OF_STACK;
  walk.started = walk.started || address == walk.start;
  if (walk.started && address != 0) add_frame(*walk.crash, address);
  return _URC_NO_REASON;
}

void write_frames(CrashArea& crash, void* context) noexcept {
  Walk walk{.crash = &crash, .start = static_cast<std::uint64_t>(register_of(context, REG_RIP))};
  const greg_t pc = register_of(context, REG_RIP);
  const greg_t sp = register_of(context, REG_RSP);
  std::uint64_t caller = 0;
  // A call of what is no code: nothing is known about unwinding from there, but the call has just
  // left its return address on the stack. So the unwinder, which reads the context, is shown the
  // instant after a return.
  if (!is_code(maps_text(crash), walk.start) &&
      read_memory(static_cast<std::uint64_t>(sp), caller)) {
    add_frame(crash, walk.start);
    walk.start = caller;
    register_of(context, REG_RIP) = static_cast<greg_t>(caller);
    register_of(context, REG_RSP) = sp + 8;
  }
  _Unwind_Backtrace(on_frame, &walk);
  register_of(context, REG_RIP) = pc;
  register_of(context, REG_RSP) = sp;
  if (!walk.started) add_frame(crash, walk.start);
}

/// The build id of the ELF file that is mapped at `begin`, from the notes in its first pages.
bool write_build_id(ModuleWords& module, std::uint64_t begin) noexcept {
  Elf64_Ehdr header;
  if (!read_memory(begin, header)) return false;
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return false;
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phentsize != sizeof(Elf64_Phdr)) {
    return false;
  }
  module.begin.store(begin, kRelaxed);
  constexpr unsigned kMostSegments = 64;
  for (unsigned i = 0; i < std::min<unsigned>(header.e_phnum, kMostSegments); ++i) {
    Elf64_Phdr segment;
    if (!read_memory(begin + header.e_phoff + i * sizeof(segment), segment)) return true;
    if (segment.p_type != PT_NOTE) continue;
    // Notes lie near the file's beginning, which is mapped as one: offsets are distances here.
    char notes[1024];
    const std::size_t bytes = std::min<std::size_t>(segment.p_filesz, sizeof(notes));
    if (!read_memory(begin + segment.p_offset, notes, bytes)) continue;
    for (std::size_t at = 0; at + sizeof(Elf64_Nhdr) <= bytes;) {
      Elf64_Nhdr note;
      std::memcpy(&note, notes + at, sizeof(note));
      const std::size_t padding = segment.p_align == 8 ? 7 : 3;
      const std::size_t name = at + sizeof(note);
      const std::size_t content = (name + note.n_namesz + padding) & ~padding;
      if (content > bytes || note.n_descsz > bytes - content) break;
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof(ELF_NOTE_GNU) &&
          std::memcmp(notes + name, ELF_NOTE_GNU, sizeof(ELF_NOTE_GNU)) == 0) {
        std::uint64_t words[4] = {};
        const std::size_t kept = std::min<std::size_t>(note.n_descsz, sizeof(words));
        std::memcpy(words, notes + content, kept);
        for (std::size_t word = 0; word < 4; ++word)
          module.build_id[word].store(words[word], kRelaxed);
        module.build_id_bytes.store(static_cast<std::uint32_t>(kept), kRelaxed);
        return true;
      }
      at = (content + note.n_descsz + padding) & ~padding;
    }
  }
  return true;
}

void write_modules(CrashArea& crash) noexcept {
  MapsParser lines(maps_text(crash));
  std::uint32_t count = 0;
  while (const auto line = lines.next()) {
    // A file's beginning, if it is one that can be loaded; "[vdso]" is one too.
    const bool file = line->path.starts_with('/') || line->path == "[vdso]";
    if (!file || line->file_offset != 0 || !line->readable) continue;
    if (count == kMaxModules) break;
    if (!write_build_id(crash.modules[count], line->begin)) continue;
    crash.module_count.store(++count, std::memory_order_release);
  }
}

}  // namespace

void warm_up_unwinder() noexcept {
  // A walk through some frames binds what the unwinder calls and fills what it keeps.
  struct Count {
    static _Unwind_Reason_Code frame(_Unwind_Context* context, void* left) {
      int before_instruction = 0;
      (void)_Unwind_GetIPInfo(context, &before_instruction);
      return --*static_cast<int*>(left) > 0 ? _URC_NO_REASON : _URC_END_OF_STACK;
    }
  };
  int left = 16;
  _Unwind_Backtrace(Count::frame, &left);
  abort_message = static_cast<AbortMessage**>(dlvsym(RTLD_DEFAULT, "__abort_msg", "GLIBC_PRIVATE"));
}

void write_crash_text(CrashArea& crash, const char* text, std::size_t bytes) noexcept {
  if (crash.text.bytes_in_all.load(kRelaxed) == 0) store_text(crash.text, {text, bytes});
}

void write_crash(RecordLayout& record, int signal, const siginfo_t& info, void* context,
                 CrashNote note) noexcept {
  CrashArea& crash = record.crash;
  reach(crash, CrashStage::begun);
  write_facts(crash, signal, info, context);
  if (signal == SIGABRT) write_abort_message(crash);
  reach(crash, CrashStage::partial);
  record.card.state_since_ns.store(crash.since_ns.load(kRelaxed), kRelaxed);
  record.card.state.store(static_cast<std::uint32_t>(ProcessState::crashed),
                          std::memory_order_release);
  if (note != nullptr) write_note(crash, note);
  write_maps(crash);
  reach(crash, CrashStage::mapped);
  write_frames(crash, context);
  reach(crash, CrashStage::unwound);
  write_modules(crash);
  reach(crash, CrashStage::complete);
}

}  // namespace strata::trace
