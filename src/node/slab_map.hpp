// SlabMap: the slabs that this worker process has mapped, and the way from a tensor of a frame to
// its memory.
//
// Thread safety: add(), forget() and list() are for the service thread; resolve() for the main
// thread; wake() for any, and takes no lock.
//
// Invariants
//   (1) resolve() gives an address only for memory whose slab is mapped, whose bytes lie in it, and
//       whose first and last page carry the frame's generation.
//   (2) Pages that this process has not used under that generation are made present in one call
//       before a task gets them.
//   (3) A slab stays mapped from add() to forget(), which the parent sends only when no task uses
//       it any more.
//
// Who writes, who reads: the list of slabs is copied and published anew with release; resolve()
// reads it with acquire. Old lists are kept: slabs are few. `changes_` counts the changes and is
// what resolve() sleeps on.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ipc/frame.hpp"
#include "os/mapping.hpp"
#include "os/unique_fd.hpp"

namespace strata::node {

class SlabMap {
 public:
  enum class Outcome : std::uint8_t {
    found,
    stale,      ///< The range was released, or its slab forgotten.
    malformed,  ///< The frame names bytes that the slab does not have.
    gave_up,    ///< The slab is not there and `give_up` said not to wait for it.
  };
  struct Resolved {
    Outcome outcome = Outcome::found;
    std::byte* data = nullptr;  ///< Of element (0, 0, ...); null if there is none.
  };

  SlabMap();
  ~SlabMap();
  SlabMap(const SlabMap&) = delete;
  SlabMap& operator=(const SlabMap&) = delete;

  /// Maps a slab; the descriptor may be closed afterwards. Returns where its data lie, or null if
  /// the slab is known already. Throws InvalidArgument if the memory is not of that size,
  /// SystemError if it can't be mapped.
  std::byte* add(std::uint32_t slab, std::uint64_t bytes, const os::UniqueFd& memory);
  /// Unmaps it.
  void forget(std::uint32_t slab);

  /// Where a tensor lies. Waits for a slab that is not there yet, as long as `give_up` returns
  /// false.
  [[nodiscard]] Resolved resolve(const ipc::TensorFrame& tensor,
                                 const std::function<bool()>& give_up);
  /// Makes a resolve() that waits ask `give_up` again.
  void wake() noexcept;

 private:
  struct Slab;
  using List = std::vector<Slab*>;
  [[nodiscard]] Slab* find(std::uint32_t number) const noexcept;
  void publish(List list);

  std::atomic<const List*> list_{nullptr};
  std::atomic<std::uint32_t> changes_{0};
  // The service thread's.
  std::vector<std::unique_ptr<const List>> lists_;  ///< All that were published.
  std::vector<std::unique_ptr<Slab>> slabs_;        ///< Forgotten ones too, without their memory.
  // The main thread's.
  Slab* last_ = nullptr;  ///< The slab that was found last.
};

}  // namespace strata::node
