// ChipBuffer: memory of a chip, as the user has it.

#include <cstring>
#include <string>
#include <utility>

#include "node/copy_in_turn.hpp"
#include "node/owned.hpp"
#include "node/worker_state.hpp"
#include "strata/chip_memory.hpp"
#include "strata/error.hpp"

namespace strata {

namespace {

using node::ChipBufferState;
using node::WorkerState;

[[noreturn]] void refuse(const std::string& what, std::size_t bytes, std::size_t offset,
                         std::size_t there) {
  throw InvalidArgument(what + " needs " + std::to_string(bytes) + " bytes at " +
                        std::to_string(offset) + "; the buffer has " + std::to_string(there));
}

/// The bytes [offset, offset + bytes) of the buffer as a tensor, checked.
Tensor part_of(const ChipBuffer& buffer, std::size_t bytes, std::size_t offset, const char* what) {
  if (offset > buffer.bytes() || bytes > buffer.bytes() - offset) {
    refuse(what, bytes, offset, buffer.bytes());
  }
  const auto extent = static_cast<std::int64_t>(bytes);
  return {buffer.id(), static_cast<std::int64_t>(offset), DType::uint8, std::span(&extent, 1)};
}

template <class Wait, class Copy>
void copy_part(const ChipBufferState& state, const char* what, const Wait& wait, const Copy& copy) {
  node::copy_in_turn(
      state.owner, what,
      [&](WorkerState& owner) { owner.chip_memory().require(state.place, what); }, wait, copy);
}

}  // namespace

ChipBuffer::ChipBuffer(ChipBuffer&&) noexcept = default;

ChipBuffer& ChipBuffer::operator=(ChipBuffer&& other) noexcept {
  ChipBuffer taken(std::move(other));
  std::swap(state_, taken.state_);
  return *this;
}

ChipBuffer::~ChipBuffer() { release(); }

void ChipBuffer::release() noexcept {
  node::let_go(state_, [](WorkerState& owner, const auto& state) {
    owner.engine().remove_buffer_later(
        state->id, [&slabs = owner.slabs(), &memory = owner.chip_memory(), id = state->id,
                    place = state->place, range = state->range] {
          memory.remove(id);
          memory.give_back(place);
          slabs.release(range);
        });
  });
}

std::size_t ChipBuffer::bytes() const noexcept {
  return state_ == nullptr ? 0 : state_->range.bytes;
}
BufferId ChipBuffer::id() const noexcept { return state_ == nullptr ? BufferId{} : state_->id; }
LaneId ChipBuffer::chip() const noexcept { return state_ == nullptr ? LaneId{} : state_->chip; }

bool ChipBuffer::lost() const noexcept {
  if (state_ == nullptr) return false;
  const std::shared_ptr<WorkerState> owner = state_->owner.lock();
  return owner == nullptr || owner->chip_memory().lost(state_->place);
}

Tensor ChipBuffer::tensor(DType dtype, std::span<const std::int64_t> shape,
                          std::size_t byte_offset) const {
  const Tensor tensor(id(), static_cast<std::int64_t>(byte_offset), dtype, shape);
  if (byte_offset > bytes() || static_cast<std::size_t>(tensor.bytes()) > bytes() - byte_offset) {
    refuse("ChipBuffer::tensor: " + tensor.to_string(), static_cast<std::size_t>(tensor.bytes()),
           byte_offset, bytes());
  }
  return tensor;
}

void ChipBuffer::copy_from_host(std::span<const std::byte> from, std::size_t byte_offset) {
  constexpr const char* kWhat = "ChipBuffer::copy_from_host";
  const Tensor part = part_of(*this, from.size(), byte_offset, kWhat);
  if (from.empty()) return;
  copy_part(
      *state_, kWhat, [&](Orchestration& run) { run.overwrite(part); },
      [&] { std::memcpy(state_->range.data + byte_offset, from.data(), from.size()); });
}

void ChipBuffer::copy_to_host(std::span<std::byte> to, std::size_t byte_offset) const {
  constexpr const char* kWhat = "ChipBuffer::copy_to_host";
  const Tensor part = part_of(*this, to.size(), byte_offset, kWhat);
  if (to.empty()) return;
  copy_part(
      *state_, kWhat, [&](Orchestration& run) { run.wait(part); },
      [&] { std::memcpy(to.data(), state_->range.data + byte_offset, to.size()); });
}

}  // namespace strata
