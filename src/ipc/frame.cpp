#include "ipc/frame.hpp"

#include <limits>
#include <new>

namespace strata::ipc {
namespace {

// The bytes of a frame. Both ends run on one machine and are of one build (checked at READY), so
// these are simply structs; fixed sizes all the same, so that a debugger's view is easy to read.
struct WireHeader {
  std::uint64_t dispatch, task, time_limit_ns;
  std::uint32_t callable, member, members;
  std::uint16_t tensors, scalars, name_bytes, reserved;
  std::uint32_t reserved2;
};
static_assert(sizeof(WireHeader) == kSubmissionHeaderBytes &&
              std::is_trivially_copyable_v<WireHeader>);

struct WireTensor {
  std::uint32_t slab, generation;
  std::uint64_t offset, reach_begin, reach_end;
  std::uint8_t dtype, access, rank, reserved[5];
};
static_assert(sizeof(WireTensor) == kTensorHeaderBytes && std::is_trivially_copyable_v<WireTensor>);

template <class T>
T load(const std::byte* from) noexcept {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

std::size_t bytes_of_tensor(std::size_t rank) noexcept {
  return kTensorHeaderBytes + 2 * rank * sizeof(std::int64_t);
}

/// Why the extents and strides reach outside [reach_begin, reach_end), or null.
const char* check_reach(const WireTensor& tensor, const std::byte* shape) noexcept {
  // Byte positions as signed 64-bit numbers: no slab is larger than 2^63 bytes.
  if (tensor.reach_begin > tensor.reach_end) return "a tensor's reach ends before it begins";
  if (tensor.reach_end > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    return "a tensor reaches beyond any slab";
  }
  const auto rank = static_cast<std::size_t>(tensor.rank);
  const auto size = static_cast<std::int64_t>(size_of(static_cast<DType>(tensor.dtype)));
  bool empty = false;
  for (std::size_t i = 0; i < rank; ++i) {
    const auto extent = load<std::int64_t>(shape + i * sizeof(std::int64_t));
    if (extent < 0) return "a tensor has a negative extent";
    if (extent == 0) empty = true;
  }
  if (tensor.offset > tensor.reach_end) return "a tensor begins outside its reach";
  if (empty) return nullptr;
  auto low = static_cast<std::int64_t>(tensor.offset);
  std::int64_t high = low;
  if (__builtin_add_overflow(high, size, &high)) return "a tensor reaches beyond any slab";
  for (std::size_t i = 0; i < rank; ++i) {
    const auto extent = load<std::int64_t>(shape + i * sizeof(std::int64_t));
    const auto stride = load<std::int64_t>(shape + (rank + i) * sizeof(std::int64_t));
    std::int64_t step = 0;
    std::int64_t span = 0;
    if (__builtin_mul_overflow(stride, size, &step) ||
        __builtin_mul_overflow(step, extent - 1, &span) ||
        __builtin_add_overflow(span < 0 ? low : high, span, span < 0 ? &low : &high)) {
      return "a tensor's strides overflow";
    }
  }
  if (low < static_cast<std::int64_t>(tensor.reach_begin) ||
      high > static_cast<std::int64_t>(tensor.reach_end)) {
    return "a tensor's elements lie outside its reach";
  }
  return nullptr;
}

}  // namespace

// ---- Writing ------------------------------------------------------------------------------------

SubmissionWriter::SubmissionWriter(const Submission& submission) noexcept
    : submission_(submission) {
  possible_ = submission.tensors.size() <= kMaxFrameTensors &&
              submission.scalars.size() <= kMaxFrameScalars &&
              submission.name.size() <= kMaxFrameName;
  if (!possible_) return;
  for (const TensorFrame& tensor : submission.tensors) {
    if (tensor.extents.size() > static_cast<std::size_t>(kMaxRank) ||
        tensor.strides.size() != tensor.extents.size()) {
      possible_ = false;
      return;
    }
    bytes_ += bytes_of_tensor(tensor.extents.size());
  }
  bytes_ += submission.scalars.size_bytes() + submission.name.size();
}

void SubmissionWriter::write(std::byte* to) const noexcept {
  const SubmissionHeader& from = submission_.header;
  // Made in place: a copy of what was just written in parts waits for all of them.
  new (to) WireHeader{.dispatch = from.dispatch,
                      .task = from.task,
                      .time_limit_ns = from.time_limit_ns,
                      .callable = from.callable,
                      .member = from.member,
                      .members = from.members,
                      .tensors = static_cast<std::uint16_t>(submission_.tensors.size()),
                      .scalars = static_cast<std::uint16_t>(submission_.scalars.size()),
                      .name_bytes = static_cast<std::uint16_t>(submission_.name.size()),
                      .reserved = 0,
                      .reserved2 = 0};
  to += sizeof(WireHeader);
  for (const TensorFrame& tensor : submission_.tensors) {
    new (to) WireTensor{.slab = tensor.slab,
                        .generation = tensor.generation,
                        .offset = tensor.offset,
                        .reach_begin = tensor.reach_begin,
                        .reach_end = tensor.reach_end,
                        .dtype = static_cast<std::uint8_t>(tensor.dtype),
                        .access = static_cast<std::uint8_t>(tensor.access),
                        .rank = static_cast<std::uint8_t>(tensor.extents.size()),
                        .reserved = {}};
    to += sizeof(WireTensor);
    if (tensor.extents.empty()) continue;
    std::memcpy(to, tensor.extents.data(), tensor.extents.size_bytes());
    to += tensor.extents.size_bytes();
    std::memcpy(to, tensor.strides.data(), tensor.strides.size_bytes());
    to += tensor.strides.size_bytes();
  }
  if (!submission_.scalars.empty()) {
    std::memcpy(to, submission_.scalars.data(), submission_.scalars.size_bytes());
    to += submission_.scalars.size_bytes();
  }
  if (!submission_.name.empty()) std::memcpy(to, submission_.name.data(), submission_.name.size());
}

// ---- Reading ------------------------------------------------------------------------------------

TensorFrame SubmissionView::TensorIterator::operator*() const noexcept {
  const auto wire = load<WireTensor>(at_);
  const auto rank = static_cast<std::size_t>(wire.rank);
  // Aligned: the frame is, and all before this is multiples of 8 bytes.
  const auto* shape = reinterpret_cast<const std::int64_t*>(at_ + sizeof wire);
  return {.slab = wire.slab,
          .generation = wire.generation,
          .offset = wire.offset,
          .reach_begin = wire.reach_begin,
          .reach_end = wire.reach_end,
          .dtype = static_cast<DType>(wire.dtype),
          .access = static_cast<Access>(wire.access),
          .extents = {shape, rank},
          .strides = {shape + rank, rank}};
}

SubmissionView::TensorIterator& SubmissionView::TensorIterator::operator++() noexcept {
  at_ += bytes_of_tensor(load<WireTensor>(at_).rank);
  return *this;
}

std::variant<SubmissionView, Malformed> decode_submission(
    std::span<const std::byte> bytes) noexcept {
  SubmissionView view;
  const std::string_view problem = view.decode(bytes);
  if (!problem.empty()) return Malformed{problem};
  return view;
}

std::string_view SubmissionView::decode(std::span<const std::byte> bytes) noexcept {
  if (bytes.size() < sizeof(WireHeader)) return "it is shorter than its header";
  const auto header = load<WireHeader>(bytes.data());
  if (header.members == 0) return "a group has no members";
  if (header.member >= header.members) return "a member is not one of its group";
  if (header.reserved != 0 || header.reserved2 != 0) return "a reserved field is set";

  std::size_t at = sizeof header;
  // `at` never exceeds the size, so the differences below don't wrap.
  for (unsigned i = 0; i < header.tensors; ++i) {
    if (bytes.size() - at < sizeof(WireTensor)) return "it ends within a tensor";
    const auto tensor = load<WireTensor>(bytes.data() + at);
    if (tensor.rank > kMaxRank) return "a tensor has too many dimensions";
    if (tensor.dtype >= kDTypes) {
      return "a tensor's element type is unknown";
    }
    if (tensor.access > static_cast<std::uint8_t>(Access::inout)) {
      return "a tensor's access mode is unknown";
    }
    for (const std::uint8_t byte : tensor.reserved) {
      if (byte != 0) return "a reserved field is set";
    }
    const std::size_t length = bytes_of_tensor(tensor.rank);
    if (bytes.size() - at < length) return "it ends within a tensor's shape";
    if (const char* why = check_reach(tensor, bytes.data() + at + sizeof tensor)) {
      return why;
    }
    at += length;
  }
  header_ = {.dispatch = header.dispatch,
             .task = header.task,
             .time_limit_ns = header.time_limit_ns,
             .callable = header.callable,
             .member = header.member,
             .members = header.members};
  tensor_count_ = header.tensors;
  tensors_ = bytes.data() + sizeof header;
  tensors_end_ = bytes.data() + at;

  const std::size_t scalar_bytes = std::size_t{header.scalars} * sizeof(std::uint64_t);
  if (bytes.size() - at < scalar_bytes) return "it ends within the scalars";
  scalars_ = {reinterpret_cast<const std::uint64_t*>(bytes.data() + at), header.scalars};
  at += scalar_bytes;
  if (bytes.size() - at != header.name_bytes) {
    return "its length is not that of its parts";
  }
  name_ = {reinterpret_cast<const char*>(bytes.data() + at), header.name_bytes};
  return {};
}

std::string_view name_of(CompletionStatus status) noexcept {
  switch (status) {
    case CompletionStatus::ok:
      return "ok";
    case CompletionStatus::failed:
      return "failed";
    case CompletionStatus::cancelled:
      return "cancelled";
    case CompletionStatus::stale_buffer:
      return "stale buffer";
    case CompletionStatus::refused:
      return "refused";
  }
  return "unknown";
}

const char* check_completion(const CompletionFrame& frame) noexcept {
  if (frame.status > CompletionStatus::refused) return "a completion's status is unknown";
  if (frame.has_value > 1 || frame.story_follows > 1)
    return "a completion's flag is neither 0 nor 1";
  if (frame.value_bytes > CompletionFrame::kInlineBytes) return "a completion's value is too long";
  if (frame.value_bytes != 0 && frame.has_value == 0)
    return "a completion's value is not announced";
  if (frame.reserved != 0) return "a completion's reserved field is set";
  return nullptr;
}

}  // namespace strata::ipc
