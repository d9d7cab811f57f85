// Frames: what goes through a mailbox, as bytes.
//
// A submission frame is a fixed header, then one descriptor per tensor (with its extents and
// strides), then the scalars, then the task's name; a completion frame is one cache line. There is
// no serialisation library, no allocation and no table: writing is copying, and reading is
// checking.
//
// Reading is *total*. Any bytes whatever give either a frame all of whose fields are within their
// bounds, or Malformed with the reason; never a crash and never a read outside the bytes given. The
// reader decodes a copy of its own (MailboxWorker and MailboxParent make it), so what was checked
// can't change afterwards.
//
// Thread safety: plain values and pure functions. A SubmissionView refers to the bytes it was
// decoded from and lives no longer than they do.
//
// Invariants
//   (1) decode_submission(write(s)) is a view of s, for every Submission that can be written.
//   (2) A view's spans and its name lie within the bytes that were decoded.
//   (3) For each tensor of a view: rank <= kMaxRank, extents >= 0, and every element that the
//       extents and strides reach lies in [reach_begin, reach_end). No sum or product on the way to
//       this has overflowed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <variant>

#include "strata/dtype.hpp"
#include "strata/task.hpp"
#include "strata/tensor.hpp"

namespace strata::ipc {

/// Why bytes are not a frame: a sentence with a lower-case beginning and static lifetime.
struct Malformed {
  std::string_view reason;
};

// ---- Submissions --------------------------------------------------------------------------------

/// The numbers of one dispatch.
struct SubmissionHeader {
  std::uint64_t dispatch = 0;       ///< The engine's DispatchId; comes back in the completion.
  std::uint64_t task = 0;           ///< TaskId::value.
  std::uint64_t time_limit_ns = 0;  ///< How long the task may run; 0 for no limit.
  std::uint32_t callable = 0;       ///< Which registered callable.
  std::uint32_t member = 0;         ///< For a group task: which member, below `members`.
  std::uint32_t members = 1;        ///< Members of the group; 1 for a task of its own.
  friend bool operator==(const SubmissionHeader&, const SubmissionHeader&) = default;
};

/// Number of no slab: that of tensors without elements, which have no memory to name.
inline constexpr std::uint32_t kNoSlab = 0;

/// One tensor argument. All offsets are bytes from the beginning of the slab.
struct TensorFrame {
  std::uint32_t slab = kNoSlab;
  std::uint32_t generation = 0;   ///< Of the range in the slab; a worker refuses a stale one.
  std::uint64_t offset = 0;       ///< Where element (0, 0, ...) lies. Strides may go below it.
  std::uint64_t reach_begin = 0;  ///< The bytes that the elements may lie in ...
  std::uint64_t reach_end = 0;    ///< ... end is the byte behind the last.
  DType dtype = DType::uint8;
  Access access = Access::in;
  std::span<const std::int64_t> extents = {};
  std::span<const std::int64_t> strides = {};  ///< In elements; as many as extents.
};

/// What is to be sent. Refers to its parts, which live until it is written.
struct Submission {
  SubmissionHeader header;
  std::span<const TensorFrame> tensors = {};
  std::span<const std::uint64_t> scalars = {};
  std::string_view name = {};  ///< Of the task; empty where the callable's name says enough.
};

inline constexpr std::size_t kMaxFrameTensors = 65535;
inline constexpr std::size_t kMaxFrameScalars = 65535;
inline constexpr std::size_t kMaxFrameName = 65535;

/// Bytes of a frame with no tensor, scalar or name: with the slot's own words, one cache line.
inline constexpr std::size_t kSubmissionHeaderBytes = 48;
/// Bytes of a tensor descriptor before its extents and strides.
inline constexpr std::size_t kTensorHeaderBytes = 40;

/// Writes one submission: first how long it is, then the bytes, to wherever there is that much
/// room.
class SubmissionWriter {
 public:
  /// `submission` and what it refers to must live until write().
  explicit SubmissionWriter(const Submission& submission) noexcept;

  /// False if a count or the name is above its limit, a rank is above kMaxRank, or a tensor has
  /// not as many strides as extents: no frame can carry it.
  [[nodiscard]] bool possible() const noexcept { return possible_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// Requires possible() and room for bytes() at `to`, aligned to 8.
  void write(std::byte* to) const noexcept;

 private:
  const Submission& submission_;
  std::size_t bytes_ = kSubmissionHeaderBytes;
  bool possible_ = true;
};

/// A submission as it was received and checked.
class SubmissionView {
 public:
  /// Steps through the tensors, in order. Dereferencing costs a copy of a TensorFrame.
  class TensorIterator {
   public:
    using value_type = TensorFrame;
    using difference_type = std::ptrdiff_t;
    TensorIterator() = default;
    [[nodiscard]] TensorFrame operator*() const noexcept;
    TensorIterator& operator++() noexcept;
    TensorIterator operator++(int) noexcept {
      TensorIterator before = *this;
      ++*this;
      return before;
    }
    friend bool operator==(const TensorIterator&, const TensorIterator&) = default;

   private:
    friend class SubmissionView;
    explicit TensorIterator(const std::byte* at) noexcept : at_(at) {}
    const std::byte* at_ = nullptr;
  };
  struct Tensors {
    TensorIterator first, last;
    [[nodiscard]] TensorIterator begin() const noexcept { return first; }
    [[nodiscard]] TensorIterator end() const noexcept { return last; }
  };

  SubmissionView() = default;
  /// Becomes a view of `bytes`, in memory that nobody else writes, aligned to 8. Returns why they
  /// are malformed, or nothing; a view that could not be decoded is only of use to decode again.
  [[nodiscard]] std::string_view decode(std::span<const std::byte> bytes) noexcept;
  [[nodiscard]] const SubmissionHeader& header() const noexcept { return header_; }
  [[nodiscard]] std::size_t tensor_count() const noexcept { return tensor_count_; }
  [[nodiscard]] Tensors tensors() const noexcept {
    return {TensorIterator(tensors_), TensorIterator(tensors_end_)};
  }
  [[nodiscard]] std::span<const std::uint64_t> scalars() const noexcept { return scalars_; }
  [[nodiscard]] std::string_view name() const noexcept { return name_; }

 private:
  SubmissionHeader header_;
  std::size_t tensor_count_ = 0;
  const std::byte* tensors_ = nullptr;
  const std::byte* tensors_end_ = nullptr;
  std::span<const std::uint64_t> scalars_;
  std::string_view name_;
};

/// The same as SubmissionView::decode, as a value.
[[nodiscard]] std::variant<SubmissionView, Malformed> decode_submission(
    std::span<const std::byte> bytes) noexcept;

// ---- Completions --------------------------------------------------------------------------------

/// How a dispatch ended.
enum class CompletionStatus : std::uint8_t {
  ok,
  failed,        ///< It threw.
  cancelled,     ///< It saw that it was cancelled, or had not begun.
  stale_buffer,  ///< Not run: a tensor's range was released, or is of another generation.
  refused,       ///< Not run: the callable is not known here, or the worker takes no more.
};
/// "ok", "failed", ...
[[nodiscard]] std::string_view name_of(CompletionStatus status) noexcept;

/// A completion as it lies in the ring, behind the sequence word; the two are one cache line.
struct CompletionFrame {
  static constexpr std::size_t kInlineBytes = 40;
  std::uint64_t dispatch = 0;
  CompletionStatus status = CompletionStatus::ok;
  std::uint8_t value_bytes = 0;    ///< Of value[]: what the task returned, if it is that short.
  std::uint8_t has_value = 0;      ///< 1 if the task returned a value, be it an empty one.
  std::uint8_t story_follows = 0;  ///< 1 if the control channel brings an error or a long value.
  std::uint32_t reserved = 0;      ///< Zero.
  std::array<std::byte, kInlineBytes> value = {};

  [[nodiscard]] std::string_view inline_value() const noexcept {
    return {reinterpret_cast<const char*>(value.data()), value_bytes};
  }
  /// Takes a value of at most kInlineBytes.
  void set_inline_value(std::string_view bytes) noexcept {
    value_bytes = static_cast<std::uint8_t>(bytes.size());
    has_value = 1;
    std::memcpy(value.data(), bytes.data(), bytes.size());
  }
};
static_assert(std::is_trivially_copyable_v<CompletionFrame> && sizeof(CompletionFrame) == 56);

/// Null if the frame's fields are within their bounds; otherwise why it is malformed.
[[nodiscard]] const char* check_completion(const CompletionFrame& frame) noexcept;

}  // namespace strata::ipc
