// A communication library such as vendors have, for the tests of bringing ranks up: ranks find each
// other by root information, really wait for each other in init and barrier, and nobody helps them
// out. It refuses to work in a process that is a fork of another.
//
// What goes wrong is told by the file that STRATA_FAKE_VENDOR names, one line:
//
//   CALL RANK ACTION [once]      init 2 crash
//
//   CALL    root_info, init, barrier, destroy
//   ACTION  crash (SIGSEGV), abort, hang (for ever, deaf to SIGTERM), fail (returns 7), slow (50
//   ms) once    whoever comes first renames the file to FILE.done and is the only one
//
// Ranks meet in memory of rank 0's process, which others reach through /proc/PID/fd: there is no
// name that could be left over.
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

#include "comm/vendor_interface.h"

namespace {

/// PF_FORKNOEXEC of the kernel: the process is a fork that has not called exec.
constexpr unsigned kForkNoExec = 0x40;

bool g_forked = false;
int g_pending = -1;  ///< Memory of root information that nobody has joined by yet.

/// Of a communicator; zeroed.
struct Meeting {
  std::atomic<std::uint32_t> joined;
  std::atomic<std::uint32_t> arrived;  ///< At barriers, ever.
};

[[noreturn]] void refuse_copy() {
  fprintf(stderr, "fake vendor: process %d is a copy of another\n", getpid());
  abort();
}

void refuse_forks() {
  if (g_forked) refuse_copy();
  FILE* const stat = fopen("/proc/self/stat", "re");
  if (stat == nullptr) return;
  char text[512] = {};
  const std::size_t read = fread(text, 1, sizeof text - 1, stat);
  fclose(stat);
  text[read] = 0;
  const char* const after_name = strrchr(text, ')');
  unsigned flags = 0;
  if (after_name != nullptr && sscanf(after_name + 1, " %*c %*d %*d %*d %*d %*d %u", &flags) == 1 &&
      (flags & kForkNoExec) != 0) {
    refuse_copy();
  }
}

__attribute__((constructor)) void load() {
  pthread_atfork(nullptr, nullptr, [] { g_forked = true; });
}

[[noreturn]] void hang() {
  signal(SIGTERM, SIG_IGN);
  for (;;)
    pause();
}

int act(const char* action) {
  if (strcmp(action, "crash") == 0) {
    volatile int* volatile nowhere = nullptr;
    *nowhere = 1;
  }
  if (strcmp(action, "abort") == 0) abort();
  if (strcmp(action, "hang") == 0) hang();
  if (strcmp(action, "fail") == 0) return 7;
  if (strcmp(action, "slow") == 0) {
    const timespec pause{.tv_sec = 0, .tv_nsec = 50'000'000};
    nanosleep(&pause, nullptr);
  }
  return 0;
}

/// Does what the file says for this call of this rank. 0: the call goes on.
int misbehave(const char* call, std::uint32_t rank) {
  refuse_forks();
  const char* const path = getenv("STRATA_FAKE_VENDOR");
  FILE* const file = path == nullptr ? nullptr : fopen(path, "re");
  if (file == nullptr) return 0;
  char of_call[32] = {};
  char action[32] = {};
  char times[32] = {};
  unsigned of_rank = 0;
  const int fields = fscanf(file, "%31s %u %31s %31s", of_call, &of_rank, action, times);
  fclose(file);
  if (fields < 3 || strcmp(call, of_call) != 0 || rank != of_rank) return 0;
  if (fields == 4) {
    char done[4096];
    snprintf(done, sizeof done, "%s.done", path);
    if (rename(path, done) != 0) return 0;
  }
  return act(action);
}

/// Waits, with no end, until the count has come to `target`.
void wait_for(std::atomic<std::uint32_t>& count, std::uint32_t target) {
  for (;;) {
    const std::uint32_t seen = count.load();
    if (seen >= target) return;
    syscall(SYS_futex, &count, FUTEX_WAIT, seen, nullptr, nullptr, 0);
  }
}

/// Adds one and wakes who waits; which one it was.
std::uint32_t add_one(std::atomic<std::uint32_t>& count) {
  const std::uint32_t before = count.fetch_add(1);
  syscall(SYS_futex, &count, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  return before;
}

}  // namespace

struct strata_vendor_comm {
  Meeting* meeting;
  std::uint32_t rank;
  std::uint32_t size;
};

extern "C" {
#define EXPORTED __attribute__((visibility("default")))

EXPORTED uint32_t strata_vendor_version(void) { return STRATA_VENDOR_VERSION; }

EXPORTED int strata_vendor_root_info(strata_vendor_root* root) {
  if (const int result = misbehave("root_info", 0); result != 0) return result;
  if (g_pending >= 0) close(g_pending);
  g_pending = memfd_create("fake-vendor", MFD_CLOEXEC);
  if (g_pending < 0 || ftruncate(g_pending, sizeof(Meeting)) != 0) return 1;
  const int bytes = snprintf(reinterpret_cast<char*>(root->data), sizeof root->data,
                             "/proc/%d/fd/%d", getpid(), g_pending);
  root->bytes = static_cast<uint32_t>(bytes) + 1;
  return 0;
}

EXPORTED int strata_vendor_init(const strata_vendor_root* root, uint32_t rank, uint32_t size,
                                strata_vendor_comm** comm) {
  if (const int result = misbehave("init", rank); result != 0) return result;
  const int memory = open(reinterpret_cast<const char*>(root->data), O_RDWR | O_CLOEXEC);
  if (memory < 0) return 2;
  void* const mapped =
      mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  close(memory);
  if (mapped == MAP_FAILED) return 1;
  auto* const made = new strata_vendor_comm{static_cast<Meeting*>(mapped), rank, size};
  add_one(made->meeting->joined);
  wait_for(made->meeting->joined, size);
  if (rank == 0) {
    close(g_pending);  // All have it.
    g_pending = -1;
  }
  *comm = made;
  return 0;
}

EXPORTED int strata_vendor_barrier(strata_vendor_comm* comm) {
  if (const int result = misbehave("barrier", comm->rank); result != 0) return result;
  const std::uint32_t round = add_one(comm->meeting->arrived) / comm->size;
  wait_for(comm->meeting->arrived, (round + 1) * comm->size);
  return 0;
}

EXPORTED int strata_vendor_destroy(strata_vendor_comm* comm) {
  const int result = misbehave("destroy", comm->rank);
  munmap(comm->meeting, sizeof(Meeting));
  delete comm;
  return result;
}

EXPORTED const char* strata_vendor_error_text(int result) {
  switch (result) {
    case 1:
      return "no memory";
    case 2:
      return "the root is not there";
    case 7:
      return "told to fail";
    default:
      return "unknown";
  }
}
}
