// Domain: chips of a node that work together as ranks, each with a window that the others reach.
//
//   strata::Domain tensor_parallel = worker.create_domain({
//       .name = "tp",
//       .chips = {worker.chip(0), worker.chip(1)},
//       .slices = {{"gradient", strata::DType::float32, 1 << 20}},
//   });
//   worker.run([&](strata::Orchestration& run) {
//     strata::all_reduce(run, tensor_parallel, in, out, strata::ReduceOp::sum);  // collectives.hpp
//   });
//
// Ranks are dense and in the order in which the chips are named. A chip may be in any number of
// domains at once. Windows are zeroed before a rank can see them.
//
// Kernels get domain.context(rank) as an in() argument, and make a Communicator of it; a kernel
// that calls collectives must run on all ranks at the same time: submit them as a group.
//
// When the process of a rank has died, the domain is broken: ranks that wait for it get a CommError
// that names it, and so do all later tasks. Make a new one.
//
// Thread safety: as a value; the members that are const may be called from any thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strata/domain_context.hpp"
#include "strata/ids.hpp"
#include "strata/tensor.hpp"

namespace strata {

namespace node {
struct DomainAccess;
struct DomainState;
}  // namespace node

/// Named memory that each rank's window has.
struct SliceOptions {
  std::string name;
  DType dtype = DType::uint8;
  std::uint64_t count = 0;  ///< Elements.
};

struct DomainOptions {
  std::string name = "domain";     ///< For messages; at most 31 bytes.
  std::vector<LaneId> chips = {};  ///< Of one Worker; chips[r] is rank r.
  std::vector<SliceOptions> slices = {};
  std::uint32_t channels = 4;  ///< Collectives that can be under way at once; see Communicator.
  /// Bound on the bring-up of all ranks, from when their chips have time for it.
  std::chrono::milliseconds time_limit{10'000};
};

/// Made by Worker::create_domain. Movable, not copyable. It stays as long as this object, over any
/// number of runs.
class Domain {
 public:
  Domain() noexcept = default;  ///< No ranks.
  Domain(Domain&&) noexcept;
  Domain& operator=(Domain&&) noexcept;
  Domain(const Domain&) = delete;
  Domain& operator=(const Domain&) = delete;
  /// As release().
  ~Domain();

  /// Refuses new tasks from now on, and frees the windows once the last task that uses them has
  /// ended, whether it failed or not. Returns at once. Nothing happens if it was released before.
  void release() noexcept;

  [[nodiscard]] std::string_view name() const noexcept;
  [[nodiscard]] std::uint32_t size() const noexcept;
  [[nodiscard]] LaneId chip(std::uint32_t rank) const;  ///< Throws InvalidArgument.
  /// Throws InvalidArgument if the chip is not in it.
  [[nodiscard]] std::uint32_t rank_of(LaneId chip) const;
  /// A process of it has died.
  [[nodiscard]] bool broken() const noexcept;

  /// The DomainContext of that rank, for a kernel or function on its chip: an in() argument.
  [[nodiscard]] Tensor context(std::uint32_t rank) const;
  /// A slice of that rank's window as a tensor of one dimension. Throws InvalidArgument.
  [[nodiscard]] Tensor slice(std::uint32_t rank, std::string_view name) const;

  /// Copies into and out of a slice, after the tasks that were submitted before and use it. As
  /// ChipBuffer's.
  void copy_from_host(std::uint32_t rank, std::string_view slice, std::span<const std::byte> bytes,
                      std::size_t byte_offset = 0);
  void copy_to_host(std::uint32_t rank, std::string_view slice, std::span<std::byte> bytes,
                    std::size_t byte_offset = 0) const;

  /// What its ranks wait for now, a line each. For reports.
  [[nodiscard]] std::vector<std::string> waits() const;

 private:
  friend class Worker;
  friend struct node::DomainAccess;
  explicit Domain(std::shared_ptr<node::DomainState> state) noexcept : state_(std::move(state)) {}
  std::shared_ptr<node::DomainState> state_;
};

}  // namespace strata
