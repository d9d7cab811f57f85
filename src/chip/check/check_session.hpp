// What CheckSession keeps, and how it tells of it.
//
// Thread safety: all members, any thread.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "chip/check/check_task.hpp"

namespace strata::chip {

/// The first of many accesses of one sort.
struct Violation {
  CheckedAccess access = CheckedAccess::load;
  Fault fault = Fault::undeclared;
  std::string kernel = {};
  TaskId task = {};
  std::string task_name = {};
  std::uint32_t block = 0, blocks = 1, core = 0, cluster = 0;
  ClusterLane lane = ClusterLane::aic;
  std::uintptr_t address = 0;              ///< Of the first byte that was not declared.
  std::uint64_t bytes = 0;                 ///< Of the access.
  std::vector<std::uintptr_t> stack = {};  ///< Return addresses; the first is that of the access.
  std::shared_ptr<const CheckedRegions> regions = {};
  std::size_t nearest = 0;  ///< Of the regions.
  std::uint64_t count = 1;
};

/// Where an instruction is in the source.
struct CodePlace {
  struct Line {
    std::string text = {};   ///< "x.cpp:12", or what else is known.
    bool of_system = false;  ///< In a header of the compiler or its libraries.
  };
  std::vector<Line> lines = {};  ///< What is inlined there first. Not empty.
  std::string module = {};
};

class CheckSession::Impl {
 public:
  explicit Impl(ChipProgramInfo program) : program_(std::move(program)) {}

  /// The task that a block belongs to; made by its first block, forgotten with its last.
  std::shared_ptr<CheckedTask> begin_block(const TaskContext& context, const Launch& launch,
                                           const detail::KernelBlock& block);
  void note(const CheckedThread& thread, CheckedAccess access, Fault fault, std::uintptr_t address,
            std::uint64_t bytes, Accessor accessor);

  [[nodiscard]] std::uint64_t violations() const;
  [[nodiscard]] std::string report() const;

 private:
  struct LiveTask {
    std::shared_ptr<CheckedTask> task;
    std::uint64_t calls_left = 0;  ///< Of kernels, that have not begun.
  };
  /// Who had which memory, to tell whose bytes were touched.
  struct Owner {
    TaskId task;
    std::string name;
    std::shared_ptr<const CheckedRegions> regions;
  };
  struct Told {
    Violation violation;
    std::vector<std::string> lines;  ///< Where it is, and how the kernel came there.
  };
  using Key = std::tuple<std::string, std::uintptr_t, CheckedAccess, Fault, std::size_t>;

  [[nodiscard]] std::vector<Told> by_line() const;
  [[nodiscard]] std::string violation_text(const Told& told) const;
  [[nodiscard]] std::string owner_text(const Violation& violation) const;

  const ChipProgramInfo program_;
  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, LiveTask> live_;
  std::deque<Owner> owners_;
  std::map<Key, Violation> violations_;
  std::vector<Key> order_;      ///< In which they were found first.
  std::uint64_t total_ = 0;     ///< Accesses.
  std::uint64_t unlisted_ = 0;  ///< Accesses at places beyond those that are listed.
};

/// Return addresses of the calling thread from an access outwards, as far as frame pointers go.
[[nodiscard]] std::vector<std::uintptr_t> frames_from(Accessor accessor, std::uintptr_t stack_end);

/// Where return addresses of this process are.
[[nodiscard]] std::vector<CodePlace> code_places(const std::vector<std::uintptr_t>& addresses);
/// The lines of a stack from the access outwards, as far as it is the kernel's; from the first on
/// that is not in a header of the system.
[[nodiscard]] std::vector<std::string> lines_of_access(std::span<const CodePlace> stack);
/// "'counter' of libx.so", if that is known of an address of data.
[[nodiscard]] std::string variable_at(std::uintptr_t address);

}  // namespace strata::chip
