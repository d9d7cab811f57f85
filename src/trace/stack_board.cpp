#include "trace/stack_board.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <string_view>

#include "trace/clocks.hpp"
#include "trace/safe_memory.hpp"
#include "trace/text_words.hpp"

namespace strata::trace {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

/// What a function may use below its stack pointer.
constexpr std::uint64_t kRedZone = 128;
/// Of a stack whose end is not known.
constexpr std::uint64_t kMostGuessed = std::uint64_t{64} << 10;
/// How far below its thread pointer a thread is thought to be on its own stack.
constexpr std::uint64_t kLargestStack = std::uint64_t{1} << 30;

// ---- Slots --------------------------------------------------------------------------------------

std::uint32_t word_of(std::uint32_t round, StackStage stage) noexcept {
  return round << 8 | static_cast<std::uint32_t>(stage);
}
StackStage stage_of(std::uint32_t word) noexcept { return static_cast<StackStage>(word & 0xff); }

/// What the handler needs. Its address in memory is all that it shares with who answers.
struct HandlerState {
  /// Written by open() before the handler is there.
  std::atomic<StackLayout*> layout{nullptr};
  /// Bytes of the arena that are taken. Not in the arena: others could change it there.
  std::atomic<std::uint64_t> arena_used{0};
};
constinit HandlerState state;

constexpr std::array kDwarfRegisters{REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI,
                                     REG_RBP, REG_RSP, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                     REG_R12, REG_R13, REG_R14, REG_R15};

/// Copies a thread as the context has it. The stack of a thread ends at its thread pointer, below
/// which the C library has put it; that of the first thread, and one that the program made, does
/// not. Returns the stage that it has come to.
StackStage write_thread(StackLayout& layout, StackSlot& slot, const ucontext_t& context) noexcept {
  const auto& registers = context.uc_mcontext.gregs;
  for (std::size_t i = 0; i < kDwarfRegisters.size(); ++i)
    slot.general[i].store(static_cast<std::uint64_t>(registers[kDwarfRegisters[i]]), kRelaxed);
  slot.pc.store(static_cast<std::uint64_t>(registers[REG_RIP]), kRelaxed);
  const auto thread_pointer = static_cast<std::uint64_t>(pthread_self());
  slot.thread_pointer.store(thread_pointer, kRelaxed);
  const auto sp = static_cast<std::uint64_t>(registers[REG_RSP]);
  const std::uint64_t begin = sp - std::min(sp, kRedZone);
  const bool known = thread_pointer > sp && thread_pointer - sp < kLargestStack;
  const std::uint64_t wanted =
      known ? std::min(thread_pointer - begin, kMostStackBytes) : kMostGuessed;
  const std::uint64_t room = (wanted + 63) / 64 * 64;
  const std::uint64_t at = state.arena_used.fetch_add(room, kRelaxed);
  std::size_t copied = 0;
  if (at + room <= kStackArenaBytes) {
    copied = read_memory_up_to(begin, reinterpret_cast<char*>(layout.arena.data()) + at, wanted);
  }
  slot.begin.store(begin, kRelaxed);
  slot.at.store(at, kRelaxed);
  slot.bytes.store(copied, kRelaxed);
  return copied > sp - begin ? StackStage::whole : StackStage::no_room;
}

/// In the thread that was asked. The number that came with the signal: slot below, word above.
void answer_in_thread(std::uint64_t number, const ucontext_t& context) noexcept {
  const auto index = static_cast<std::uint32_t>(number);
  auto asked = static_cast<std::uint32_t>(number >> 32);
  StackLayout* const layout = state.layout.load(std::memory_order_acquire);
  if (layout == nullptr || index >= kStackSlots || stage_of(asked) != StackStage::asked) return;
  StackSlot& slot = layout->slots[index];
  const std::uint32_t round = asked >> 8;
  if (!slot.stage.compare_exchange_strong(asked, word_of(round, StackStage::writing),
                                          std::memory_order_acquire, kRelaxed)) {
    return;
  }
  const StackStage stage = write_thread(*layout, slot, context);
  slot.stage.store(word_of(round, stage), std::memory_order_release);
}

void on_signal(int /*signal*/, siginfo_t* info, void* context) noexcept {
  const int error = errno;
  // Anybody may send the signal; we do it so, and to ourselves only.
  if (info->si_code == SI_QUEUE && info->si_pid == syscall(SYS_getpid)) {
    answer_in_thread(reinterpret_cast<std::uint64_t>(info->si_value.sival_ptr),
                     *static_cast<const ucontext_t*>(context));
  }
  errno = error;
}

bool is_ours(const struct sigaction& action) noexcept {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == on_signal;
}

/// Whether the handler is there, and ours.
bool handler_is_installed() noexcept {
  struct sigaction current = {};
  return sigaction(stack_signal(), nullptr, &current) == 0 && is_ours(current);
}

void install_handler() noexcept {
  struct sigaction current = {};
  if (sigaction(stack_signal(), nullptr, &current) != 0) return;
  const bool is_free = (current.sa_flags & SA_SIGINFO) == 0 && current.sa_handler == SIG_DFL;
  if (!is_free) return;
  struct sigaction action = {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  // No other handler runs on top of it; a crash is still told.
  sigfillset(&action.sa_mask);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT})
    sigdelset(&action.sa_mask, signal);
  (void)sigaction(stack_signal(), &action, nullptr);
}

// ---- What /proc says of a thread ----------------------------------------------------------------

/// A folder of /proc, or a file of one of its threads, read without the C library's streams, which
/// allocate.
class RawFile {
 public:
  RawFile(int folder, const char* path, int flags) noexcept
      : fd_(static_cast<int>(syscall(SYS_openat, folder, path, flags | O_RDONLY | O_CLOEXEC))) {}
  RawFile(int tasks, std::uint32_t thread, const char* name) noexcept
      : RawFile(tasks, path_of(thread, name).data(), 0) {}
  ~RawFile() {
    if (fd_ >= 0) syscall(SYS_close, fd_);
  }
  RawFile(const RawFile&) = delete;
  RawFile& operator=(const RawFile&) = delete;
  [[nodiscard]] int fd() const noexcept { return fd_; }
  /// What comes next, as far as there is room; 0 at the end, and if it can't be read.
  [[nodiscard]] std::size_t read(char* to, std::size_t room) const noexcept {
    const long size = fd_ < 0 ? -1 : syscall(SYS_read, fd_, to, room);
    return size > 0 ? static_cast<std::size_t>(size) : 0;
  }

 private:
  using Path = std::array<char, 48>;
  static Path path_of(std::uint32_t thread, const char* name) noexcept {
    Path path{};
    fmt::format_to_n(path.data(), path.size() - 1, "{}/{}", thread, name);
    return path;
  }

  int fd_;
};

/// Takes a number off the front, in hexadecimal after "0x" or if `base` says so.
std::optional<std::uint64_t> take_number(std::string_view& text, unsigned base) noexcept {
  if (text.starts_with("0x")) {
    text.remove_prefix(2);
    base = 16;
  }
  std::uint64_t value = 0;
  std::size_t length = 0;
  for (; length < text.size(); ++length) {
    const char c = text[length];
    const unsigned digit = c >= '0' && c <= '9'   ? static_cast<unsigned>(c - '0')
                           : c >= 'a' && c <= 'f' ? static_cast<unsigned>(c - 'a') + 10
                                                  : 99;
    if (digit >= base) break;
    value = value * base + digit;
  }
  if (length == 0) return std::nullopt;
  text.remove_prefix(length);
  if (text.starts_with(' ')) text.remove_prefix(1);
  return value;
}

/// Whether the thread whose file `status` this is blocks our signal; nothing if it does not tell.
std::optional<bool> blocks_signal(const RawFile& status) noexcept {
  constexpr std::string_view kBlocked = "\nSigBlk:\t";
  constexpr std::size_t kLine = kBlocked.size() + 17;  // Sixteen digits, and the end of the line.
  std::array<char, 1024> buffer;
  std::size_t have = 0;
  // What comes before it has any length: all groups of the user are in there.
  while (const std::size_t size = status.read(buffer.data() + have, buffer.size() - have)) {
    have += size;
    std::string_view text(buffer.data(), have);
    const std::size_t at = text.find(kBlocked);
    if (at != std::string_view::npos && text.size() - at >= kLine) {
      text.remove_prefix(at + kBlocked.size());
      const auto mask = take_number(text, 16);
      if (!mask) return std::nullopt;
      return (*mask >> (stack_signal() - 1) & 1) != 0;
    }
    // The line may have begun.
    const std::size_t kept = std::min(have, kLine - 1);
    std::memmove(buffer.data(), buffer.data() + have - kept, kept);
    have = kept;
  }
  return std::nullopt;
}

/// A system call that a handler would end, whatever SA_RESTART says; nothing for others, and for
/// threads that run.
std::optional<std::uint64_t> call_cut_short(std::string_view text) noexcept {
  const auto number = take_number(text, 10);
  if (!number) return std::nullopt;
  switch (*number) {
    case SYS_nanosleep:
    case SYS_clock_nanosleep:
    case SYS_poll:
    case SYS_ppoll:
    case SYS_select:
    case SYS_pselect6:
    case SYS_epoll_wait:
    case SYS_epoll_pwait:
    case SYS_epoll_pwait2:
    case SYS_pause:
    case SYS_rt_sigsuspend:
    case SYS_rt_sigtimedwait:
    case SYS_semop:
    case SYS_semtimedop:
    case SYS_msgrcv:
    case SYS_msgsnd:
    case SYS_io_getevents:
    case SYS_io_pgetevents:
    case SYS_io_uring_enter:
    case SYS_restart_syscall:  // One of these that was interrupted before, by ptrace say.
      return number;
    case SYS_futex: {
      // The fourth argument is the time-out of those that wait.
      for (int i = 0; i < 3; ++i)
        (void)take_number(text, 16);
      return take_number(text, 16).value_or(0) == 0 ? std::nullopt : number;
    }
    default:
      return std::nullopt;
  }
}

/// What is to become of a thread, and the call that it is in for StackStage::in_call.
struct Look {
  StackStage stage = StackStage::unseen;
  std::uint64_t call = 0;
};

/// Whether it may be interrupted: StackStage::asked if so.
Look look_at(int tasks, std::uint32_t thread) noexcept {
  const auto blocks = blocks_signal(RawFile(tasks, thread, "status"));
  if (blocks.value_or(false)) return {.stage = StackStage::blocked};
  std::array<char, 256> buffer;
  const std::size_t size = RawFile(tasks, thread, "syscall").read(buffer.data(), buffer.size());
  if (!blocks || size == 0) {
    // No such file, no descriptor left, or no such thread any more.
    const bool gone = syscall(SYS_tgkill, syscall(SYS_getpid), thread, 0) != 0 && errno == ESRCH;
    return {.stage = gone ? StackStage::gone : StackStage::unseen};
  }
  if (const auto call = call_cut_short({buffer.data(), size}))
    return {.stage = StackStage::in_call, .call = *call};
  return {.stage = StackStage::asked};
}

// ---- One answer ---------------------------------------------------------------------------------

void pause_for_ns(long ns) noexcept {
  const timespec time{.tv_sec = 0, .tv_nsec = ns};
  syscall(SYS_nanosleep, &time, nullptr);
}

/// Sends our signal to one thread of this process. False, with errno, if that can't be done.
bool interrupt(std::uint32_t thread, std::uint32_t slot, std::uint32_t word) noexcept {
  siginfo_t info = {};
  info.si_signo = stack_signal();
  info.si_code = SI_QUEUE;
  info.si_pid = static_cast<pid_t>(syscall(SYS_getpid));
  const std::uint64_t number = std::uint64_t{word} << 32 | slot;
  info.si_value.sival_ptr = reinterpret_cast<void*>(number);  // NOLINT(performance-no-int-to-ptr)
  return syscall(SYS_rt_tgsigqueueinfo, info.si_pid, thread, stack_signal(), &info) == 0;
}

/// Takes the stacks of all threads, once.
class Round {
 public:
  Round(StackLayout& layout, std::chrono::nanoseconds patience) noexcept
      : layout_(layout),
        patience_ns_(static_cast<std::uint64_t>(patience.count())),
        number_((layout.round.load(kRelaxed) + 1) & 0xffffff) {
    // What a handler of an earlier round still writes to must not be given away again.
    const bool late = std::ranges::any_of(layout_.slots, [](const StackSlot& slot) {
      return stage_of(slot.stage.load(std::memory_order_acquire)) == StackStage::writing;
    });
    if (!late) state.arena_used.store(0, kRelaxed);
  }

  void take() noexcept {
    const std::uint64_t begin = monotonic_ns();
    const bool ours = handler_is_installed();
    layout_.round.store(number_, kRelaxed);
    layout_.signal.store(ours ? static_cast<std::uint32_t>(stack_signal()) : 0, kRelaxed);
    if (ours) look_at_all();
    wait();
    layout_.slots_used.store(static_cast<std::uint32_t>(next_), kRelaxed);
    layout_.threads.store(threads_, kRelaxed);
    layout_.took_ns.store(monotonic_ns() - begin, kRelaxed);
  }

 private:
  void look_at_all() noexcept {
    const RawFile tasks(AT_FDCWD, "/proc/self/task", O_DIRECTORY);
    alignas(8) std::array<char, 8192> entries;
    for (;;) {
      const long size = syscall(SYS_getdents64, tasks.fd(), entries.data(), entries.size());
      if (size <= 0) return;
      for (long at = 0; at < size;) {
        // struct linux_dirent64: number, offset, length of the record, type, name.
        std::uint16_t length = 0;
        std::memcpy(&length, entries.data() + at + 16, sizeof length);
        std::string_view name(entries.data() + at + 19);
        if (const auto thread = take_number(name, 10))
          ask(tasks.fd(), static_cast<std::uint32_t>(*thread));
        at += length;
      }
    }
  }

  /// One that no handler of an earlier round has in hand; null if there is none.
  StackSlot* next_slot() noexcept {
    while (next_ < kStackSlots) {
      StackSlot& slot = layout_.slots[next_++];
      if (stage_of(slot.stage.load(std::memory_order_acquire)) != StackStage::writing) return &slot;
    }
    return nullptr;
  }

  void ask(int tasks, std::uint32_t thread) noexcept {
    ++threads_;
    StackSlot* const slot = next_slot();
    if (slot == nullptr) return;
    slot->thread.store(thread, kRelaxed);
    slot->bytes.store(0, kRelaxed);
    const auto set = [&](StackStage stage) {
      slot->stage.store(word_of(number_, stage), std::memory_order_release);
    };
    if (thread == static_cast<std::uint32_t>(syscall(SYS_gettid))) {
      slot->call.store(0, kRelaxed);
      ucontext_t here;
      return set(getcontext(&here) == 0 ? write_thread(layout_, *slot, here) : StackStage::no_room);
    }
    const Look look = look_at(tasks, thread);
    slot->call.store(look.call, kRelaxed);
    set(look.stage);
    if (look.stage != StackStage::asked) return;
    const auto index = static_cast<std::uint32_t>(slot - layout_.slots.data());
    if (interrupt(thread, index, word_of(number_, StackStage::asked))) return;
    // Else this user has as many signals on their way as the system allows.
    set(errno == ESRCH ? StackStage::gone : StackStage::late);
  }

  /// Whether a slot of this round is at that stage.
  [[nodiscard]] bool any_at(StackStage stage) const noexcept {
    return std::any_of(layout_.slots.begin(), layout_.slots.begin() + static_cast<long>(next_),
                       [&](const StackSlot& slot) {
                         return slot.stage.load(std::memory_order_acquire) ==
                                word_of(number_, stage);
                       });
  }

  void wait_while(StackStage stage) noexcept {
    const std::uint64_t until = monotonic_ns() + patience_ns_;
    for (long nap = 20'000; any_at(stage) && monotonic_ns() < until;
         nap = std::min(2 * nap, 1'000'000L))
      pause_for_ns(nap);
  }

  void wait() noexcept {
    wait_while(StackStage::asked);
    for (std::size_t i = 0; i < next_; ++i) {
      std::uint32_t asked = word_of(number_, StackStage::asked);
      // Who begins at this moment has the slot, and is waited for.
      layout_.slots[i].stage.compare_exchange_strong(asked, word_of(number_, StackStage::late),
                                                     kRelaxed);
    }
    wait_while(StackStage::writing);
  }

  StackLayout& layout_;
  const std::uint64_t patience_ns_;
  const std::uint32_t number_;
  std::size_t next_ = 0;
  std::uint32_t threads_ = 0;
};

}  // namespace

int stack_signal() noexcept { return SIGRTMIN + 13; }

StackBoard& StackBoard::of_process() {
  static auto* const board = new StackBoard;
  return *board;
}

void StackBoard::open() noexcept {
  if (state.layout.load(kRelaxed) != nullptr) return;
  try {
    door_ = RequestDoor::open(kStackDoor);
    state.layout.store(std::launder(reinterpret_cast<StackLayout*>(door_.data())),
                       std::memory_order_release);
    install_handler();
  } catch (const std::exception&) {
    // Reports take the stacks from outside.
  }
}

void StackBoard::answer(std::chrono::nanoseconds patience) noexcept {
  StackLayout* const layout = state.layout.load(kRelaxed);
  if (layout == nullptr || !door_.take_requests()) return;
  const auto odd = begin_change(layout->door.sequence);
  Round(*layout, patience).take();
  layout->door.answers.store(layout->door.answers.load(kRelaxed) + 1, kRelaxed);
  end_change(layout->door.sequence, odd);
}

}  // namespace strata::trace
