// Drives a fuzzer over a kept corpus, and over as many seeded changes of it as asked for.
//
//   fuzz_NAME CORPUS_FOLDER [CHANGES [SEED]]
//   fuzz_NAME FILE               one input, to look at what it does
//
// The change that is being tried is in fuzz-NAME-input.bin in the working directory if the program
// does not come to its end; keep it in the corpus once the fault is mended.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "fuzz_target.hpp"
#include "support/random.hpp"

namespace {

using strata::test::Random;
using Input = std::vector<std::uint8_t>;

const Input* current = nullptr;
std::string crash_path;

/// Keeps the input that ended the program.
void write_current(int signal) {
  if (current != nullptr) {
    const int fd = open(crash_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    (void)!write(fd, current->data(), current->size());
    close(fd);
  }
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void run(const Input& input) {
  current = &input;
  // An exact copy on the heap, so that a sanitizer sees each byte that is read beyond it.
  const Input exact(input);
  (void)LLVMFuzzerTestOneInput(exact.data(), exact.size());
  current = nullptr;
}

Input read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return Input(std::istreambuf_iterator<char>(file), {});
}

/// One change of the kinds that break decoders: bits, bytes, lengths at their limits, cuts,
/// repetitions and parts of other inputs.
void change(Input& input, const std::vector<Input>& corpus, Random& random) {
  static constexpr std::uint64_t kEdges[] = {0,          1,          0x7f,        0x80,
                                             0xff,       0x7fff,     0xffff,      0x7fffffff,
                                             0x80000000, 0xffffffff, ~0ULL >> 1U, ~0ULL};
  const std::size_t at = random.below(input.size() + 1);
  switch (input.empty() ? 5 : random.below(7)) {
    case 0:
      input[at % input.size()] ^= static_cast<std::uint8_t>(1U << random.below(8));
      break;
    case 1:
      input[at % input.size()] = static_cast<std::uint8_t>(random());
      break;
    case 2: {  // A number of 1 to 8 bytes, little-endian.
      const std::uint64_t edge = kEdges[random.below(std::size(kEdges))];
      const std::size_t bytes = std::size_t{1} << random.below(4);
      for (std::size_t i = 0; i < bytes && at + i < input.size(); ++i)
        input[at + i] = static_cast<std::uint8_t>(edge >> (8 * i));
      break;
    }
    case 3:
      input.resize(at);
      break;
    case 4: {
      const auto begin = input.begin() + static_cast<std::ptrdiff_t>(at);
      input.erase(begin, begin + static_cast<std::ptrdiff_t>(random.below(input.size() - at + 1)));
      break;
    }
    case 5:
      for (std::uint64_t count = random.below(16) + 1; count > 0; --count)
        input.insert(input.begin() + static_cast<std::ptrdiff_t>(at),
                     static_cast<std::uint8_t>(random()));
      break;
    default: {
      const Input& other = corpus[random.below(corpus.size())];
      const std::size_t from = random.below(other.size() + 1);
      for (std::size_t i = 0; from + i < other.size() && at + i < input.size(); ++i)
        input[at + i] = other[from + i];
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s CORPUS_FOLDER|FILE [CHANGES [SEED]]\n", argv[0]);
    return 2;
  }
  crash_path = std::filesystem::path(argv[0]).filename().string() + "-input.bin";
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL})
    std::signal(signal, write_current);
  const std::filesystem::path path = argv[1];
  const std::uint64_t changes = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 20000;
  const std::uint64_t seed = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1;
  if (std::filesystem::is_regular_file(path)) {
    run(read_file(path));
    return 0;
  }
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(path))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());  // A seed means the same everywhere.
  std::vector<Input> corpus;
  for (const auto& file : files)
    corpus.push_back(read_file(file));
  if (corpus.empty()) {
    std::fprintf(stderr, "%s: no corpus in %s\n", argv[0], argv[1]);
    return 1;
  }
  for (const Input& input : corpus)
    run(input);
  Random random(seed);
  for (std::uint64_t i = 0; i < changes; ++i) {
    Input input = random.pick(corpus);
    for (std::uint64_t count = random.below(6) + 1; count > 0; --count)
      change(input, corpus, random);
    run(input);
  }
  std::printf("%zu inputs and %llu changes of them, seed %llu\n", corpus.size(),
              static_cast<unsigned long long>(changes), static_cast<unsigned long long>(seed));
  return 0;
}
