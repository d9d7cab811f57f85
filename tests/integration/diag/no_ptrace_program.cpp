// Runs a program to which the kernel refuses ptrace, as containers without that permission do; with
// --links also to read where links lead, which is what it refuses to those who may not look at what
// a process has open:
//
//   no_ptrace_program [--links] PROGRAM ARGUMENTS...
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int count, char** words) {
  const bool links = count > 1 && strcmp(words[1], "--links") == 0;
  if (links) {
    --count;
    ++words;
  }
  const unsigned answer_to_links = links ? SECCOMP_RET_ERRNO | EACCES : SECCOMP_RET_ALLOW;
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ptrace, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_readlink, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_readlinkat, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, answer_to_links),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program = {sizeof code / sizeof code[0], code};
  if (count < 2 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    perror("no_ptrace_program");
    return 125;
  }
  execv(words[1], words + 1);
  perror(words[1]);
  return 126;
}
