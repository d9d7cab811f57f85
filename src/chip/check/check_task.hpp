// CheckedTask: what one task has declared, shared by its blocks. CheckedThread: the block that a
// thread runs, and the test of one access.
//
// Thread safety: a CheckedTask is constant save for its atomic WrittenBytes. A CheckedThread
// belongs to its thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "chip/check/check.hpp"
#include "chip/check/check_region.hpp"

namespace strata::chip {

/// Tensor arguments as declared; reports keep them when the task has long ended.
using CheckedRegions = std::vector<CheckedRegion>;

class CheckedTask {
 public:
  CheckedTask(const TaskContext& context, const Launch& launch, const detail::ArgumentBlock& block);

  /// How many bytes from `address` on, at most `bytes`, may be accessed in this way as bytes of
  /// arguments: none if the first may not. A store counts as made.
  [[nodiscard]] std::uint64_t declared(CheckedAccess access, std::uintptr_t address,
                                       std::uint64_t bytes, const CheckedRegion** hit);
  /// Whether all accesses of this sort to all of the region's bytes are declared, and nothing has
  /// to be noted for them.
  [[nodiscard]] bool is_free(CheckedAccess access, const CheckedRegion& region) const noexcept;

  [[nodiscard]] const std::shared_ptr<const CheckedRegions>& regions() const noexcept {
    return regions_;
  }
  [[nodiscard]] TaskId id() const noexcept { return id_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  [[nodiscard]] bool load_needs_store(std::size_t i) const noexcept {
    return written_[i] != nullptr && !has_initial_value_[i];
  }

  TaskId id_;
  std::string name_;
  std::shared_ptr<const CheckedRegions> regions_;
  std::vector<std::unique_ptr<WrittenBytes>> written_;  ///< By argument; null unless `out`.
  std::vector<bool> has_initial_value_;
  bool overlaps_ = false;  ///< Some two of the regions may share bytes.
};

/// What is wrong with an access.
enum class Fault : std::uint8_t {
  undeclared,         ///< Of no argument.
  store_to_input,     ///< Of an `in`.
  load_before_store,  ///< Of an `out`, before the task has written the byte.
  shared_state,       ///< A store to a global variable.
  constant,           ///< A store to a constant.
};

/// Who makes an access.
struct Accessor {
  std::uintptr_t frame = 0;           ///< Of its function.
  std::uintptr_t return_address = 0;  ///< Behind its call of us.
};

struct CheckedThread {
  CheckSession::Impl* session = nullptr;
  std::shared_ptr<CheckedTask> task = {};
  const KernelEntry* entry = nullptr;
  const Kernel* kernel = nullptr;
  std::uintptr_t stack_end = 0;  ///< Of the kernel's part of the stack: its highest address.
  /// What the kernel has allocated itself, and what it throws.
  struct Memory {
    const void* begin = nullptr;
    std::size_t bytes = 0;
  };
  std::vector<Memory> own_memory = {};

  /// The last run of a region that was hit, by access: all its bytes may be accessed.
  struct Hit {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
  };
  std::array<Hit, 2> hits = {};

  /// `frame` is that of the function that the kernel calls before the access.
  void test(CheckedAccess access, std::uintptr_t address, std::uint64_t bytes,
            const void* const* frame) {
    const Hit& hit = hits[static_cast<std::size_t>(access)];
    if (address >= hit.begin && address < hit.end && bytes <= hit.end - address) return;
    const auto stack = reinterpret_cast<std::uintptr_t>(frame);
    if (address >= stack && address < stack_end && bytes <= stack_end - address) return;
    // What the frame holds is read here: a call that is the last would end it.
    test_slowly(
        access, address, bytes,
        {reinterpret_cast<std::uintptr_t>(frame[0]), reinterpret_cast<std::uintptr_t>(frame[1])});
  }

 private:
  void test_slowly(CheckedAccess access, std::uintptr_t address, std::uint64_t bytes,
                   Accessor accessor);
  /// The same for what is not of an argument.
  [[nodiscard]] std::uint64_t elsewhere(CheckedAccess access, std::uintptr_t address,
                                        std::uint64_t bytes, Fault& fault) const;
  [[nodiscard]] std::uint64_t handed_over(std::uintptr_t address, std::uint64_t bytes) const;
  [[nodiscard]] Fault fault_of(CheckedAccess access, std::uintptr_t address) const;
};

/// The block that the calling thread runs, if it is checked.
extern constinit thread_local CheckedThread* current_checked_thread;

/// Whether this build answers what checked kernels call: not if Strata itself was built with a
/// sanitizer, which then has those names.
[[nodiscard]] bool can_check() noexcept;

/// What the loader has mapped at an address: the segment of a file, or a thread's variables.
struct LoadedPlace {
  std::uintptr_t end = 0;  ///< Of it.
  bool writable = false;
  bool thread_local_variable = false;  ///< Of the calling thread.
};
[[nodiscard]] std::optional<LoadedPlace> loaded_place(std::uintptr_t address);

}  // namespace strata::chip
