// Communicator: what a kernel does together with the kernels of other ranks.
//
//   STRATA_KERNEL(sum_up) {
//     const strata::Communicator ranks(kernel, *kernel.data<strata::DomainContext>(0));
//     const auto gradient = ranks.slice<float>("gradient");
//     ranks.all_reduce<float>(gradient, gradient, strata::ReduceOp::sum);
//   }
//
// All ranks of the domain call the same collectives, in the same order on each channel, with the
// same counts, types and operations. If they do not, all of them throw an error that says which
// rank called what, and the domain can be used further. If a rank gives up in the middle (an
// exception, a cancelled run, its death), the others end with an error that names it, and that
// channel is broken from then on.
//
// Where data lies. Memory in this rank's window is read and written there by the other ranks and
// not copied. Any other memory is staged through the window piece by piece. Ranks may differ in
// this. Input and output may be the same memory ("in place"), or must not overlap at all.
//
// Channels. Collectives on different channels do not know of each other, so several blocks of a
// kernel can have one each under way. One channel takes one call at a time.
//
// Memory order. What a rank did before notify(), send(), or before it entered a collective happens
// before what another does once it has seen that in wait(), recv(), or has left the collective if
// the collective's result depends on it; a barrier orders everything. put() and get() order
// nothing by themselves.
//
// Thread safety: a value of the kernel that made it.
#pragma once

#include <atomic>
#include <cstring>
#include <span>
#include <type_traits>

#include "strata/domain_context.hpp"

namespace strata {

namespace detail {
/// Where in its own window a rank counts the notifications that it sends: reports name the rank
/// that has sent fewer than the others.
inline constexpr std::uint64_t kNotifiedOffset = 1984;

inline void count_notification(const DomainContext& domain) noexcept {
  auto& count = *reinterpret_cast<std::uint64_t*>(domain.window() + kNotifiedOffset);
  std::atomic_ref(count).fetch_add(1, std::memory_order_relaxed);
}
}  // namespace detail

/// Which channel a collective uses, and how it is done.
struct CollectiveOptions {
  std::uint32_t channel = 0;
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::automatic;
};

class Communicator {
 public:
  /// For a kernel: its waits are the kernel's.
  Communicator(const Kernel& kernel, const DomainContext& domain) noexcept
      : domain_(&domain), own_waits_(kernel_waits(kernel)), given_waits_(nullptr) {}
  /// For other code; `waits` outlives this object.
  Communicator(const detail::CommWaits& waits, const DomainContext& domain) noexcept
      : domain_(&domain), own_waits_(), given_waits_(&waits) {}

  [[nodiscard]] std::uint32_t rank() const noexcept { return domain_->rank; }
  [[nodiscard]] std::uint32_t size() const noexcept { return domain_->size; }
  [[nodiscard]] const DomainContext& domain() const noexcept { return *domain_; }

  // --- Windows ---

  /// The slice of that name in this rank's window, or in that of another.
  template <class T>
  [[nodiscard]] std::span<T> slice(std::string_view name) const {
    return slice<T>(name, rank());
  }
  template <class T>
  [[nodiscard]] std::span<T> slice(std::string_view name, std::uint32_t of_rank) const {
    const WindowSlice& found = find(name);
    if (sizeof(T) != size_of(found.dtype) && sizeof(T) != sizeof(Signal))
      misuse("a slice is asked for with elements of another size than it has");
    std::byte* const window = window_of(of_rank);
    return {reinterpret_cast<T*>(window + found.offset), found.bytes / sizeof(T)};
  }
  /// Where another rank has what this rank has at `mine`, an address in this rank's window.
  template <class T>
  [[nodiscard]] T* at(std::uint32_t of_rank, T* mine) const {
    const auto offset = static_cast<std::uint64_t>(address(mine) - address(domain_->window()));
    if (offset >= domain_->window_bytes) misuse("an address is not in this rank's window");
    return reinterpret_cast<T*>(window_of(of_rank) + offset);
  }

  /// Copies to where rank `to` has what this rank has at `there`.
  template <class T>
  void put(std::uint32_t to, T* there, std::span<const std::type_identity_t<T>> data) const {
    static_assert(std::is_trivially_copyable_v<T>);
    check_range(there, data.size_bytes());
    if (!data.empty()) std::memcpy(at(to, there), data.data(), data.size_bytes());
  }
  /// Copies from where rank `from` has what this rank has at `there`.
  template <class T>
  void get(std::uint32_t from, const T* there, std::span<std::remove_const_t<T>> data) const {
    static_assert(std::is_trivially_copyable_v<T>);
    check_range(there, data.size_bytes());
    if (!data.empty()) std::memcpy(data.data(), at(from, there), data.size_bytes());
  }

  // --- Signals: slices that hold Signal ---

  /// Changes the signal that rank `to` has where this rank has `signal`, and wakes who waits for
  /// it.
  void notify(std::uint32_t to, Signal& signal, std::uint32_t value,
              SignalOp op = SignalOp::set) const {
    check_range(&signal, sizeof(Signal));
    detail::count_notification(*domain_);
    waits().notify(waits(), at(to, &signal), op, value);
  }
  /// Waits for a signal of this rank's window.
  void wait(Signal& signal, Compare compare, std::uint32_t value) const {
    check_range(&signal, sizeof(Signal));
    domain_->services->wait(*domain_, waits(), &signal, compare, value);
  }

  // --- Collectives, for any element type ---

  /// Waits until all ranks are here.
  void barrier(std::uint32_t channel = 0) const {
    collective({.kind = detail::CollectiveKind::barrier, .channel = channel});
  }
  /// out[i] = in[i] of all ranks, combined; the same bits on every rank.
  void all_reduce(const void* in, void* out, std::uint64_t count, DType dtype, ReduceOp op,
                  CollectiveOptions options = {}) const {
    collective({detail::CollectiveKind::all_reduce, op, dtype, options.algorithm, 0,
                options.channel, count, in, out});
  }
  /// out = part `rank` of the combined inputs, each of which is `count` * size elements.
  void reduce_scatter(const void* in, void* out, std::uint64_t count, DType dtype, ReduceOp op,
                      CollectiveOptions options = {}) const {
    collective({detail::CollectiveKind::reduce_scatter, op, dtype, options.algorithm, 0,
                options.channel, count, in, out});
  }
  /// out = the inputs of `count` elements of all ranks, one behind the other. In place: in is part
  /// `rank` of out.
  void all_gather(const void* in, void* out, std::uint64_t count, DType dtype,
                  CollectiveOptions options = {}) const {
    collective({detail::CollectiveKind::all_gather,
                {},
                dtype,
                options.algorithm,
                0,
                options.channel,
                count,
                in,
                out});
  }
  /// data = that of rank `root`.
  void broadcast(void* data, std::uint64_t count, DType dtype, std::uint32_t root,
                 CollectiveOptions options = {}) const {
    collective({detail::CollectiveKind::broadcast,
                {},
                dtype,
                options.algorithm,
                root,
                options.channel,
                count,
                data,
                data});
  }
  /// Part p of out = part `rank` of the input of rank p; a part is `count` elements.
  void all_to_all(const void* in, void* out, std::uint64_t count, DType dtype,
                  CollectiveOptions options = {}) const {
    collective({detail::CollectiveKind::all_to_all,
                {},
                dtype,
                options.algorithm,
                0,
                options.channel,
                count,
                in,
                out});
  }
  /// As all_reduce, with the result on rank `root` only; `out` of the others is not looked at.
  void reduce(const void* in, void* out, std::uint64_t count, DType dtype, ReduceOp op,
              std::uint32_t root, CollectiveOptions options = {}) const {
    collective({detail::CollectiveKind::reduce, op, dtype, options.algorithm, root, options.channel,
                count, in, out});
  }

  // --- The same for C++ types ---

  template <class T>
  void all_reduce(std::span<const std::type_identity_t<T>> in, std::span<T> out, ReduceOp op,
                  CollectiveOptions options = {}) const {
    if (in.size() != out.size()) misuse("all_reduce: input and output have different sizes");
    all_reduce(in.data(), out.data(), in.size(), dtype_of<T>, op, options);
  }
  template <class T>
  void all_gather(std::span<const std::type_identity_t<T>> in, std::span<T> out,
                  CollectiveOptions options = {}) const {
    if (in.size() * size() != out.size())
      misuse("all_gather: the output must be as large as all ranks' inputs");
    all_gather(in.data(), out.data(), in.size(), dtype_of<T>, options);
  }
  template <class T>
  void broadcast(std::span<T> data, std::uint32_t root, CollectiveOptions options = {}) const {
    broadcast(data.data(), data.size(), dtype_of<T>, root, options);
  }

  // --- Messages between two ranks ---

  /// Small messages are buffered and send() returns at once; others wait for the receiver. The two
  /// sides agree on count and dtype. Messages between two ranks on a channel arrive in order.
  void send(const void* data, std::uint64_t count, DType dtype, std::uint32_t to,
            std::uint32_t channel = 0) const {
    message({.to = to, .dtype = dtype, .channel = channel, .out_count = count, .out = data});
  }
  void recv(void* data, std::uint64_t count, DType dtype, std::uint32_t from,
            std::uint32_t channel = 0) const {
    message({.from = from, .dtype = dtype, .channel = channel, .in_count = count, .in = data});
  }
  /// Both at once: ranks that send round a ring with it can't wait for each other for ever.
  void send_recv(const void* out, std::uint64_t out_count, std::uint32_t to, void* in,
                 std::uint64_t in_count, std::uint32_t from, DType dtype,
                 std::uint32_t channel = 0) const {
    message({to, from, dtype, channel, out_count, in_count, out, in});
  }

 private:
  static std::uintptr_t address(const void* p) noexcept {
    return reinterpret_cast<std::uintptr_t>(p);
  }
  [[nodiscard]] const detail::CommWaits& waits() const noexcept {
    return given_waits_ != nullptr ? *given_waits_ : own_waits_;
  }
  void collective(const detail::CollectiveCall& call) const {
    domain_->services->collective(*domain_, waits(), call);
  }
  void message(const detail::MessageCall& call) const {
    domain_->services->message(*domain_, waits(), call);
  }
  [[noreturn]] void misuse(std::string_view text) const {
    domain_->services->misuse(*domain_, text);
    __builtin_unreachable();
  }
  [[nodiscard]] std::byte* window_of(std::uint32_t of_rank) const {
    if (of_rank >= domain_->size) misuse("there is no such rank in this domain");
    return domain_->windows[of_rank];
  }
  [[nodiscard]] const WindowSlice& find(std::string_view name) const {
    for (std::uint32_t i = 0; i < domain_->slice_count; ++i) {
      if (name == domain_->slices[i].name) return domain_->slices[i];
    }
    misuse("the domain's windows have no slice of that name");
  }
  /// Of this rank's window, and none of what collectives keep there.
  void check_range(const void* begin, std::size_t bytes) const {
    const auto offset = static_cast<std::uint64_t>(address(begin) - address(domain_->window()));
    if (offset < domain_->slices_offset || offset > domain_->window_bytes ||
        bytes > domain_->window_bytes - offset)
      misuse("memory is not in the slices of this rank's window");
  }

  static const detail::KernelBlock& block_of(const detail::CommWaits& waits) noexcept {
    return *static_cast<const detail::KernelBlock*>(waits.owner);
  }
  static detail::CommWaits kernel_waits(const Kernel& kernel) noexcept {
    using detail::CommWaits;
    CommWaits waits;
    waits.owner = &kernel.info();
    waits.wait = [](const CommWaits& self, Signal* signal, Compare compare, std::uint32_t value) {
      block_of(self).services->wait_signal(block_of(self), signal, compare, value);
      return CommWaits::End::satisfied;
    };
    waits.notify = [](const CommWaits& self, Signal* signal, SignalOp op, std::uint32_t value) {
      block_of(self).services->notify(block_of(self), signal, op, value);
    };
    waits.cancelled = [](const CommWaits& self) {
      return block_of(self).services->cancelled(block_of(self));
    };
    return waits;
  }

  const DomainContext* domain_;
  detail::CommWaits own_waits_;
  const detail::CommWaits* given_waits_;
};

}  // namespace strata
