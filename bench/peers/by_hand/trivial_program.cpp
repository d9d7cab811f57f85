// A program that does nothing, linked as strata-worker is: says that it is there, and ends when its
// standard input does.
#include <unistd.h>

int main() {
  char byte = 't';
  if (write(1, &byte, 1) != 1) return 1;
  while (read(0, &byte, 1) > 0) {
  }
  _exit(0);
}
