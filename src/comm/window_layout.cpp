#include "comm/window_layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/call.hpp"
#include "comm/services.hpp"
#include "strata/error.hpp"

namespace strata::comm {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kLine = 64;
/// Room for a piece of 64 parts, each a line, three times and some.
constexpr std::uint64_t kLeastStaging = 16384;
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 46U;

std::uint64_t round_up(std::uint64_t value, std::uint64_t to) noexcept {
  return (value + to - 1) / to * to;
}

[[noreturn]] void refuse(const DomainSpec& spec, const std::string& why) {
  throw InvalidArgument(fmt::format("domain '{}' can't be made: {}", spec.name, why));
}

void check(const DomainSpec& spec) {
  if (spec.size == 0 || spec.size > kMaxRanks)
    refuse(spec, fmt::format("it has {} ranks; 1 to {} are possible", spec.size, kMaxRanks));
  if (spec.slices.size() > kMaxSlices)
    refuse(spec, fmt::format("it has {} slices; there may be {}", spec.slices.size(), kMaxSlices));
  if (spec.channels == 0 || spec.channels > 64)
    refuse(spec, fmt::format("it has {} channels; 1 to 64 are possible", spec.channels));
  for (const SliceSpec& slice : spec.slices) {
    if (slice.name.empty() || slice.name.size() >= sizeof WindowSlice::name)
      refuse(spec, fmt::format("the name of slice '{}' must have 1 to {} bytes", slice.name,
                               sizeof WindowSlice::name - 1));
    if (slice.count > kMostBytes / size_of(slice.dtype))
      refuse(spec, fmt::format("slice '{}' has {} elements", slice.name, slice.count));
    const auto same = [&](const SliceSpec& other) { return other.name == slice.name; };
    if (std::count_if(spec.slices.begin(), spec.slices.end(), same) != 1)
      refuse(spec, fmt::format("two slices are called '{}'", slice.name));
  }
}

void set_name(char (&to)[32], std::string_view name) noexcept {
  std::memset(to, 0, sizeof to);
  std::memcpy(to, name.data(), std::min(name.size(), sizeof to - 1));
}

}  // namespace

WindowLayout::WindowLayout(const DomainSpec& spec) {
  check(spec);
  shape_.size = spec.size;
  shape_.channels = spec.channels;
  shape_.slice_count = static_cast<std::uint32_t>(spec.slices.size());
  shape_.small_bytes = round_up(std::max(spec.small_bytes, kLine), kLine);
  shape_.message_bytes = round_up(std::max(spec.message_bytes, kLine), kLine);
  shape_.staging_bytes = round_up(std::max(spec.staging_bytes, kLeastStaging), kLine);
  const ChannelLayout channel{shape_.size, shape_.small_bytes, shape_.message_bytes,
                              shape_.staging_bytes};
  shape_.channel_bytes = round_up(channel.total(), kPage);
  shape_.slices_offset = round_up(kHeaderBytes + shape_.channels * shape_.channel_bytes, kPage);
  std::uint64_t offset = shape_.slices_offset;
  for (std::size_t i = 0; i < spec.slices.size(); ++i) {
    WindowSlice& slice = shape_.slices[i];
    set_name(slice.name, spec.slices[i].name);
    slice.dtype = spec.slices[i].dtype;
    slice.offset = offset;
    slice.bytes = spec.slices[i].count * size_of(slice.dtype);
    // Each on a page of its own: large copies then have the same alignment on all sides.
    offset = round_up(offset + slice.bytes, kPage);
    if (offset > kMostBytes) refuse(spec, "its window would be larger than memory can be");
  }
  shape_.window_bytes = offset;
  shape_.services = &services();
  set_name(shape_.name, spec.name);
}

DomainContext WindowLayout::context(std::uint32_t rank, std::span<std::byte* const> windows) const {
  if (rank >= shape_.size || windows.size() != shape_.size) {
    throw InvalidArgument(fmt::format("domain '{}' has {} ranks: rank {} with {} windows is none",
                                      shape_.name, shape_.size, rank, windows.size()));
  }
  DomainContext context = shape_;
  context.rank = rank;
  std::copy(windows.begin(), windows.end(), context.windows);
  return context;
}

std::vector<std::string> describe_waits(const DomainContext& domain) {
  std::vector<std::string> lines;
  const auto of_rank = [&](std::uint32_t rank) {
    DomainContext context = domain;
    context.rank = rank;
    return context;
  };
  for (std::uint32_t rank = 0; rank < domain.size; ++rank) {
    if (std::string wait = describe_signal_wait(of_rank(rank)); !wait.empty())
      lines.push_back(std::move(wait));
  }
  if (!lines.empty()) {
    if (std::string line = describe_notifications(domain); !line.empty())
      lines.push_back(std::move(line));
  }
  for (std::uint32_t rank = 0; rank < domain.size; ++rank) {
    for (std::uint32_t channel = 0; channel < domain.channels; ++channel) {
      const WaitNote& note = Channel(domain, channel).control(rank).note;
      if (note.waiting.load(std::memory_order_relaxed) == 0) continue;
      const WaitReason reason = {
          static_cast<detail::CollectiveKind>(note.kind.load(std::memory_order_relaxed)),
          note.sequence.load(std::memory_order_relaxed), channel,
          note.peer.load(std::memory_order_relaxed)};
      lines.push_back(describe_in_full(of_rank(rank), reason));
    }
  }
  return lines;
}

void mark_gone(const DomainContext& domain, std::uint32_t rank, std::string_view why) {
  note_fault(domain, rank, why);
  for (std::uint32_t channel = 0; channel < domain.channels; ++channel)
    mark_channel_gone(domain, rank, channel);
}

}  // namespace strata::comm
