// A program that hangs in a way that its arguments say, one after the other:
//
//   fork       the rest is done by a child; this process waits for it
//   daemon     the rest is done by a grandchild that has no parent left, in a session of its own;
//   this
//              process waits for a signal that never comes
//   two        the rest is done by two children; this process waits for both
//   threads=N  N threads get stuck in stuck_in_a_pool()
//   ignore     SIGTERM is ignored
//   say=TEXT   writes a line
//   fill=N     writes N bytes into a pipe that nobody reads, so that it is nearly full
//   ready      writes the line "ready"
//   die        ends itself by SIGKILL once a byte comes on stdin
//   stop       stops itself by SIGSTOP
//   count      writes numbered lines for ever, each flushed
//   flood      writes lines that name the process for ever
//   exit=N
//   futex, lock, spin, sleep, read
//
// No C++ library is used, so that it can be linked statically, too.
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

unsigned word = 0;
pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
volatile unsigned turns = 0;

[[noreturn]] void wait_for_children() {
  while (::wait(nullptr) > 0) {
  }
  ::_exit(0);
}

void say(const char* text) { (void)!::write(STDOUT_FILENO, text, strlen(text)); }

}  // namespace

// What the tests look for in stacks. Each does something after its call, so that none is the last
// thing in it and becomes a jump.
extern "C" {
__attribute__((noinline)) void stuck_on_a_futex() {
  for (;;) {
    ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0U, nullptr);
    turns = turns + 1;
  }
}
__attribute__((noinline)) void stuck_on_a_lock() {
  ::pthread_mutex_lock(&mutex);
  turns = turns + 1;
}
__attribute__((noinline)) void stuck_in_a_spin() {
  for (;;)
    turns = turns + 1;
}
__attribute__((noinline)) void stuck_in_a_sleep() {
  for (;;) {
    ::sleep(1000);
    turns = turns + 1;
  }
}
__attribute__((noinline)) void stuck_in_a_read() {
  int ends[2];
  char byte = 0;
  if (::pipe(ends) == 0) (void)!::read(ends[0], &byte, 1);
  turns = turns + 1;
}
__attribute__((noinline)) void* stuck_in_a_pool(void*) {
  stuck_on_a_futex();
  turns = turns + 1;
  return nullptr;
}
void* waits_for_the_lock(void*) {
  stuck_on_a_lock();
  return nullptr;
}
}

namespace {

void write_lines(bool numbered) {
  char line[64];
  for (unsigned long i = 0;; ++i) {
    const int size = numbered ? snprintf(line, sizeof line, "line %lu\n", i)
                              : snprintf(line, sizeof line, "flood of %d\n", ::getpid());
    (void)!::write(STDOUT_FILENO, line, static_cast<size_t>(size));
    if (numbered) ::usleep(200);
  }
}

void fill_pipe(long bytes) {
  int ends[2];
  if (::pipe(ends) != 0) return;
  char* const block = static_cast<char*>(calloc(1, static_cast<size_t>(bytes)));
  (void)!::write(ends[1], block, static_cast<size_t>(bytes));
  free(block);
}

void start_threads(int count) {
  for (int i = 0; i < count; ++i) {
    pthread_t thread;
    (void)pthread_create(&thread, nullptr, stuck_in_a_pool, nullptr);
  }
}

void take_step(const char* step) {
  const char* const value = strchr(step, '=') != nullptr ? strchr(step, '=') + 1 : "";
  if (strcmp(step, "fork") == 0 && ::fork() != 0) wait_for_children();
  if (strcmp(step, "two") == 0 && ::fork() != 0 && ::fork() != 0) wait_for_children();
  if (strcmp(step, "daemon") == 0) {
    if (::fork() != 0) {
      ::wait(nullptr);
      for (;;)
        ::pause();
    }
    if (::fork() != 0) ::_exit(0);
    (void)::setsid();
  }
  if (strncmp(step, "threads=", 8) == 0) start_threads(atoi(value));
  if (strcmp(step, "ignore") == 0) (void)::signal(SIGTERM, SIG_IGN);
  if (strncmp(step, "say=", 4) == 0) {
    say(value);
    say("\n");
  }
  if (strncmp(step, "fill=", 5) == 0) fill_pipe(atol(value));
  if (strcmp(step, "ready") == 0) say("ready\n");
  if (strcmp(step, "die") == 0) {
    char byte = 0;
    (void)!::read(STDIN_FILENO, &byte, 1);
    (void)::kill(::getpid(), SIGKILL);
  }
  if (strcmp(step, "stop") == 0) (void)::raise(SIGSTOP);
  if (strcmp(step, "count") == 0) write_lines(true);
  if (strcmp(step, "flood") == 0) write_lines(false);
  if (strncmp(step, "exit=", 5) == 0) ::_exit(atoi(value));
  if (strcmp(step, "futex") == 0) stuck_on_a_futex();
  if (strcmp(step, "spin") == 0) stuck_in_a_spin();
  if (strcmp(step, "sleep") == 0) stuck_in_a_sleep();
  if (strcmp(step, "read") == 0) stuck_in_a_read();
  if (strcmp(step, "lock") == 0) {
    pthread_t thread;
    (void)pthread_mutex_lock(&mutex);
    (void)pthread_create(&thread, nullptr, waits_for_the_lock, nullptr);
    stuck_in_a_sleep();
  }
}

}  // namespace

int main(int count, char** words) {
  for (int i = 1; i < count; ++i)
    take_step(words[i]);
  return 0;
}
