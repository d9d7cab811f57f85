// ProcessScope: lets worker processes run the functions of the user's own executable.
//
//   int main(int argc, char** argv) {
//     strata::ProcessScope scope(argc, argv);  // First of all.
//     ...
//   }
//
// A worker process that runs this_program is a fresh start of the executable, never a copy of the
// living program. In such a process the constructor does the worker's work and ends the process:
// nothing after it is run. In the user's own process it notes that workers can be made like that,
// opens the executable (so that it may be replaced on disk meanwhile), and does nothing else.
//
// Thread safety: constructed once, by the main thread, before threads are started.
#pragma once

namespace strata {

class ProcessScope {
 public:
  /// Throws InvalidState when constructed twice.
  ProcessScope(int argc, char** argv);
  ProcessScope(const ProcessScope&) = delete;
  ProcessScope& operator=(const ProcessScope&) = delete;
  ~ProcessScope() = default;

  /// Whether one was constructed in this process.
  [[nodiscard]] static bool entered() noexcept;
};

}  // namespace strata
