// Domain: chips that work together, as the user has them.

#include "strata/domain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/window_layout.hpp"
#include "node/copy_in_turn.hpp"
#include "node/domain_state.hpp"
#include "node/owned.hpp"
#include "node/worker_state.hpp"
#include "strata/error.hpp"

namespace strata {

namespace {

using node::DomainState;

const DomainState& require_some(const std::shared_ptr<DomainState>& state, const char* what) {
  if (state == nullptr)
    throw InvalidState(std::string(what) + ": this Domain has no ranks, or was released");
  return *state;
}

void check_rank(const DomainState& domain, std::uint32_t rank, const char* what) {
  if (rank < domain.chips.size()) return;
  throw InvalidArgument(fmt::format("{}: domain '{}' has no rank {}: it has {}", what,
                                    domain.name(), rank, domain.chips.size()));
}

const WindowSlice& find_slice(const DomainState& domain, std::string_view name, const char* what) {
  const std::span slices(domain.view.slices, domain.view.slice_count);
  const auto found = std::find_if(slices.begin(), slices.end(),
                                  [&](const WindowSlice& each) { return each.name == name; });
  if (found != slices.end()) return *found;
  std::string known;
  for (const WindowSlice& each : slices)
    known += (known.empty() ? "'" : ", '") + std::string(each.name) + "'";
  throw InvalidArgument(fmt::format("{}: domain '{}' has no slice '{}'; it has {}", what,
                                    domain.name(), name, known.empty() ? "none" : known));
}

/// Bytes of a slice of one rank, checked.
struct SlicePart {
  const DomainState& domain;
  std::uint32_t rank;
  std::size_t offset;  ///< In the rank's part.
  std::size_t bytes;

  [[nodiscard]] Tensor tensor() const {
    const auto extent = static_cast<std::int64_t>(bytes);
    return {domain.buffers[rank], static_cast<std::int64_t>(offset), DType::uint8,
            std::span(&extent, 1)};
  }
  [[nodiscard]] std::byte* data() const noexcept { return domain.part(rank) + offset; }
};

SlicePart part_of(const std::shared_ptr<DomainState>& state, std::uint32_t rank,
                  std::string_view name, std::size_t offset, std::size_t bytes, const char* what) {
  const DomainState& domain = require_some(state, what);
  check_rank(domain, rank, what);
  const WindowSlice& slice = find_slice(domain, name, what);
  if (offset > slice.bytes || bytes > slice.bytes - offset) {
    throw InvalidArgument(fmt::format("{} needs {} bytes at {}; slice '{}' of domain '{}' has {}",
                                      what, bytes, offset, name, domain.name(), slice.bytes));
  }
  return {domain, rank, domain.window_offset + slice.offset + offset, bytes};
}

template <class Wait, class Copy>
void copy_part(const DomainState& domain, const char* what, const Wait& wait, const Copy& copy) {
  node::copy_in_turn(
      domain.owner, what, [&](node::WorkerState&) { node::require_whole(domain, what); }, wait,
      copy);
}

}  // namespace

Domain::Domain(Domain&&) noexcept = default;

Domain& Domain::operator=(Domain&& other) noexcept {
  Domain taken(std::move(other));
  std::swap(state_, taken.state_);
  return *this;
}

Domain::~Domain() { release(); }

void Domain::release() noexcept {
  node::let_go(state_,
               [](node::WorkerState& owner, const auto& state) { owner.release_domain(state); });
}

std::string_view Domain::name() const noexcept { return state_ ? state_->name() : ""; }

std::uint32_t Domain::size() const noexcept {
  return state_ ? static_cast<std::uint32_t>(state_->chips.size()) : 0;
}

LaneId Domain::chip(std::uint32_t rank) const {
  const DomainState& domain = require_some(state_, "Domain::chip");
  check_rank(domain, rank, "Domain::chip");
  return domain.chips[rank];
}

std::uint32_t Domain::rank_of(LaneId chip) const {
  const DomainState& domain = require_some(state_, "Domain::rank_of");
  const auto found = std::find(domain.chips.begin(), domain.chips.end(), chip);
  if (found == domain.chips.end()) {
    throw InvalidArgument(
        fmt::format("Domain::rank_of: lane {} is not in domain '{}'", chip.value, domain.name()));
  }
  return static_cast<std::uint32_t>(found - domain.chips.begin());
}

bool Domain::broken() const noexcept {
  return state_ != nullptr &&
         (state_->broken.load(std::memory_order_acquire) || state_->owner.expired());
}

Tensor Domain::context(std::uint32_t rank) const {
  const DomainState& domain = require_some(state_, "Domain::context");
  check_rank(domain, rank, "Domain::context");
  return domain.context(rank);
}

Tensor Domain::slice(std::uint32_t rank, std::string_view name) const {
  constexpr const char* kWhat = "Domain::slice";
  const DomainState& domain = require_some(state_, kWhat);
  check_rank(domain, rank, kWhat);
  const WindowSlice& found = find_slice(domain, name, kWhat);
  const auto count = static_cast<std::int64_t>(found.bytes / size_of(found.dtype));
  return {domain.buffers[rank], static_cast<std::int64_t>(domain.window_offset + found.offset),
          found.dtype, std::span(&count, 1)};
}

void Domain::copy_from_host(std::uint32_t rank, std::string_view slice,
                            std::span<const std::byte> bytes, std::size_t byte_offset) {
  constexpr const char* kWhat = "Domain::copy_from_host";
  const SlicePart part = part_of(state_, rank, slice, byte_offset, bytes.size(), kWhat);
  if (bytes.empty()) return;
  const Tensor tensor = part.tensor();
  copy_part(
      part.domain, kWhat, [&](Orchestration& run) { run.overwrite(tensor); },
      [&] { std::memcpy(part.data(), bytes.data(), bytes.size()); });
}

void Domain::copy_to_host(std::uint32_t rank, std::string_view slice, std::span<std::byte> bytes,
                          std::size_t byte_offset) const {
  constexpr const char* kWhat = "Domain::copy_to_host";
  const SlicePart part = part_of(state_, rank, slice, byte_offset, bytes.size(), kWhat);
  if (bytes.empty()) return;
  const Tensor tensor = part.tensor();
  copy_part(
      part.domain, kWhat, [&](Orchestration& run) { run.wait(tensor); },
      [&] { std::memcpy(bytes.data(), part.data(), bytes.size()); });
}

std::vector<std::string> Domain::waits() const {
  if (state_ == nullptr) return {};
  return comm::describe_waits(state_->view);
}

}  // namespace strata
