// The way into every collective: what is wrong with a call, the post, and the choice of algorithm.
#include <fmt/format.h>

#include <array>
#include <cstring>
#include <limits>

#include "comm/algorithms.hpp"
#include "comm/reduce_kernels.hpp"
#include "comm/services.hpp"
#include "strata/comm_error.hpp"

namespace strata::comm {

using detail::CollectiveCall;
using detail::CollectiveKind;
using detail::CommWaits;

CallBytes bytes_of(const CollectiveCall& call, std::uint32_t ranks) noexcept {
  const std::uint64_t one = call.count * size_of(call.dtype);
  switch (call.kind) {
    case CollectiveKind::reduce_scatter:
      return {one * ranks, one};
    case CollectiveKind::all_gather:
      return {one, one * ranks};
    case CollectiveKind::all_to_all:
      return {one * ranks, one * ranks};
    case CollectiveKind::none:
    case CollectiveKind::refused:
    case CollectiveKind::barrier:
      return {};
    default:
      return {one, one};
  }
}

bool all_inputs_in_windows(const Call& call) noexcept {
  for (std::uint32_t r = 0; r < call.size(); ++r) {
    if (call.record(r).in == kPrivate) return false;
  }
  return true;
}

bool all_outputs_in_windows(const Call& call) noexcept {
  for (std::uint32_t r = 0; r < call.size(); ++r) {
    if (call.record(r).out == kPrivate) return false;
  }
  return true;
}

bool any_in_place(const Call& call) noexcept {
  for (std::uint32_t r = 0; r < call.size(); ++r) {
    if (call.record(r).in == call.record(r).out && call.record(r).in != kPrivate) return true;
  }
  return false;
}

void copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  if (to != from && bytes != 0) std::memcpy(to, from, bytes);
}

namespace {

bool reduces(CollectiveKind kind) noexcept {
  return kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce_scatter ||
         kind == CollectiveKind::reduce;
}
bool has_root(CollectiveKind kind) noexcept {
  return kind == CollectiveKind::broadcast || kind == CollectiveKind::reduce;
}

/// Whether this rank gives an input, or takes an output, in this call at all.
bool has_output(const CollectiveCall& call, std::uint32_t rank) noexcept {
  return call.kind != CollectiveKind::barrier &&
         (call.kind != CollectiveKind::reduce || rank == call.root);
}

std::uintptr_t address(const void* p) noexcept { return reinterpret_cast<std::uintptr_t>(p); }

/// Offset in this rank's window of memory that lies there as a whole, else kPrivate.
std::uint64_t window_offset(const DomainContext& domain, const void* data,
                            std::uint64_t bytes) noexcept {
  const std::uint64_t offset = address(data) - address(domain.window());
  const bool inside = offset < domain.window_bytes && bytes <= domain.window_bytes - offset;
  return inside ? offset : kPrivate;
}

bool overlap(const void* a, std::uint64_t a_bytes, const void* b, std::uint64_t b_bytes) noexcept {
  return address(a) < address(b) + b_bytes && address(b) < address(a) + a_bytes;
}

/// The output is where an in-place call has it.
bool in_place(const CollectiveCall& call, std::uint32_t rank) noexcept {
  const std::uint64_t one = call.count * size_of(call.dtype);
  switch (call.kind) {
    case CollectiveKind::reduce_scatter:
      return address(call.out) == address(call.in) + rank * one;
    case CollectiveKind::all_gather:
      return address(call.in) == address(call.out) + rank * one;
    default:
      return call.in == call.out;
  }
}

/// What can be seen to be wrong by this rank alone; empty if nothing.
std::string_view fault_in(const DomainContext& domain, const CollectiveCall& call) noexcept {
  if (call.kind == CollectiveKind::barrier) return {};
  if (call.count > (std::uint64_t{1} << 40U)) return "there can't be so many elements";
  const CallBytes bytes = bytes_of(call, domain.size);
  if (has_root(call.kind) && call.root >= domain.size) return "the root is no rank of the domain";
  if (reduces(call.kind) && !is_reducible(call.dtype))
    return "elements of that type can't be combined; float32, float16, bfloat16, int32, int64 and "
           "uint8 can";
  if (call.algorithm != CollectiveAlgorithm::automatic && call.kind != CollectiveKind::all_reduce)
    return "only all_reduce has a choice of algorithms";
  if (call.count == 0) return {};
  if (call.in == nullptr) return "the input is null";
  const bool output = has_output(call, domain.rank);
  if (output && call.out == nullptr) return "the output is null";
  if (output && !in_place(call, domain.rank) && overlap(call.in, bytes.in, call.out, bytes.out))
    return "input and output overlap, but are not the same memory";
  const auto in_internals = [&](const void* data, std::uint64_t size) {
    return overlap(data, size, domain.window(), domain.slices_offset);
  };
  if (in_internals(call.in, bytes.in) || (output && in_internals(call.out, bytes.out)))
    return "the memory is what collectives keep in the window, not a slice";
  return {};
}

CallRecord record_of(const DomainContext& domain, const CollectiveCall& call) noexcept {
  CallRecord record = {};
  record.kind = call.kind;
  if (call.kind == CollectiveKind::barrier) return record;
  const CallBytes bytes = bytes_of(call, domain.size);
  record.op = reduces(call.kind) ? call.op : ReduceOp::sum;
  record.dtype = call.dtype;
  record.algorithm = call.algorithm;
  record.root = has_root(call.kind) ? call.root : 0;
  record.count = call.count;
  record.in = window_offset(domain, call.in, bytes.in);
  record.out =
      has_output(call, domain.rank) ? window_offset(domain, call.out, bytes.out) : kPrivate;
  return record;
}

CollectiveAlgorithm algorithm_of(const DomainContext& domain, const CollectiveCall& call) noexcept {
  if (call.algorithm != CollectiveAlgorithm::automatic) return call.algorithm;
  if (call.kind != CollectiveKind::all_reduce) return CollectiveAlgorithm::one_phase;
  return choose_all_reduce(domain.size, bytes_of(call, domain.size).in);
}

/// Whether inputs travel with the posts.
bool is_small(const DomainContext& domain, const CollectiveCall& call,
              CollectiveAlgorithm algorithm) noexcept {
  const std::uint64_t bytes = bytes_of(call, domain.size).in;
  if (algorithm != CollectiveAlgorithm::one_phase || bytes > domain.small_bytes) return false;
  // Asked for by name, one phase is small whenever there is room.
  return call.algorithm == CollectiveAlgorithm::one_phase || bytes <= small_limit(domain.size);
}

/// Tells the others that this call is refused, so that they do not wait for it.
[[noreturn]] void refuse(Call& call, std::string_view why) {
  CallRecord record = {};
  record.kind = CollectiveKind::refused;
  call.post(record, 0, nullptr);
  try {
    call.meet();
  } catch (const CommError& error) {
    if (error.cause() != CommError::Cause::mismatch) throw;
  }
  const CollectiveCall& what = call.what();
  throw InvalidArgument(
      fmt::format("{} #{} on channel {} of domain '{}', rank {}, {} elements of {}: {}",
                  name_of(what.kind), call.sequence(), what.channel, call.domain().name,
                  call.rank(), what.count, name_of(what.dtype), why));
}

void run_large(Call& call, CollectiveAlgorithm algorithm) {
  switch (call.what().kind) {
    case CollectiveKind::all_reduce:
      return all_reduce(call, algorithm);
    case CollectiveKind::reduce_scatter:
      return reduce_scatter(call);
    case CollectiveKind::all_gather:
      return all_gather(call);
    case CollectiveKind::broadcast:
      return broadcast(call);
    case CollectiveKind::all_to_all:
      return all_to_all(call);
    case CollectiveKind::reduce:
      return reduce(call);
    case CollectiveKind::none:
    case CollectiveKind::refused:
    case CollectiveKind::barrier:
      return;
  }
}

void run_call(Call& call, const CommWaits& waits) {
  const DomainContext& domain = call.domain();
  const CollectiveCall& what = call.what();
  if (waits.cancelled != nullptr && waits.cancelled(waits)) {
    throw Cancelled(
        fmt::format("{} #{} on channel {} of domain '{}', rank {}: cancelled before it "
                    "began",
                    name_of(what.kind), call.sequence(), what.channel, domain.name, domain.rank));
  }
  if (const std::string_view wrong = fault_in(domain, what); !wrong.empty()) refuse(call, wrong);
  const CollectiveAlgorithm algorithm = algorithm_of(domain, what);
  const bool small = is_small(domain, what, algorithm);
  const bool gives =
      !has_root(what.kind) || what.kind == CollectiveKind::reduce || domain.rank == what.root;
  call.post(record_of(domain, what), small ? bytes_of(what, domain.size).in : 0,
            small && gives ? what.in : nullptr);
  call.meet();
  if (what.count == 0) return;
  if (small) return finish_small(call);
  run_large(call, algorithm);
}

}  // namespace

void finish_small(Call& call) {
  const CollectiveCall& what = call.what();
  const std::uint64_t one = what.count * size_of(what.dtype);
  const std::uint32_t me = call.rank();
  std::byte* const out = own_output(call);
  switch (what.kind) {
    case CollectiveKind::reduce:
      if (me != what.root) return;
      [[fallthrough]];
    case CollectiveKind::all_reduce:
    case CollectiveKind::reduce_scatter: {
      const std::uint64_t offset = what.kind == CollectiveKind::reduce_scatter ? me * one : 0;
      std::array<const std::byte*, kMaxRanks> inputs;
      for (std::uint32_t r = 0; r < call.size(); ++r)
        inputs[r] = call.data(r) + offset;
      return reduce_arrays(what.dtype, what.op, {inputs.data(), call.size()}, {&out, 1}, what.count,
                           Stores::in_turn);
    }
    case CollectiveKind::all_gather:
      for (std::uint32_t r = 0; r < call.size(); ++r)
        std::memcpy(out + r * one, call.data(r), one);
      return;
    case CollectiveKind::broadcast:
      if (me != what.root) std::memcpy(out, call.data(what.root), one);
      return;
    case CollectiveKind::all_to_all:
      for (std::uint32_t r = 0; r < call.size(); ++r)
        std::memcpy(out + r * one, call.data(r) + me * one, one);
      return;
    case CollectiveKind::none:
    case CollectiveKind::refused:
    case CollectiveKind::barrier:
      return;
  }
}

void run_collective(const DomainContext& domain, const CommWaits& waits,
                    const CollectiveCall& what) {
  if (what.channel >= domain.channels) {
    throw CommError(CommError::Cause::misuse,
                    fmt::format("{} on channel {}: domain '{}' has {} channels, from 0",
                                name_of(what.kind), what.channel, domain.name, domain.channels));
  }
  Call call(domain, waits, what);
  try {
    run_call(call, waits);
  } catch (const InvalidArgument&) {
    throw;  // All know that it was refused.
  } catch (const CommError& error) {
    if (error.cause() != CommError::Cause::mismatch) call.abandon(error.what());
    throw;
  } catch (const std::exception& error) {
    call.abandon(error.what());
    throw;
  } catch (...) {
    call.abandon("its run was cancelled, or its wait ended with an error without a text");
    throw;
  }
}

}  // namespace strata::comm
