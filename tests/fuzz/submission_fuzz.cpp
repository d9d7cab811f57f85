// Submission frames: what decodes is within its bounds, and writing it gives the same bytes.

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "fuzz_target.hpp"
#include "ipc/frame.hpp"

using namespace strata;
using strata::fuzz::require;

namespace {

/// Whether the first and the last element of each dimension lie within the reach.
bool within_reach(const ipc::TensorFrame& tensor) {
  __extension__ using Wide = __int128;
  if (std::ranges::find(tensor.extents, 0) != tensor.extents.end()) return true;
  const auto size = static_cast<Wide>(size_of(tensor.dtype));
  Wide low = tensor.offset;
  Wide high = low + size;
  for (std::size_t i = 0; i < tensor.extents.size(); ++i) {
    const Wide span = (static_cast<Wide>(tensor.extents[i]) - 1) * tensor.strides[i] * size;
    (span < 0 ? low : high) += span;
  }
  return low >= tensor.reach_begin && high <= tensor.reach_end;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // Aligned as a frame is.
  const std::unique_ptr<std::uint64_t[]> words(new std::uint64_t[(size + 7) / 8]);
  auto* bytes = reinterpret_cast<std::byte*>(words.get());
  if (size != 0) std::memcpy(bytes, data, size);
  const auto decoded = ipc::decode_submission({bytes, size});
  if (const auto* malformed = std::get_if<ipc::Malformed>(&decoded)) {
    require(!malformed->reason.empty(), "a malformed frame has a reason");
    return 0;
  }
  const auto& view = *std::get_if<ipc::SubmissionView>(&decoded);
  std::vector<ipc::TensorFrame> tensors;
  for (const ipc::TensorFrame& tensor : view.tensors()) {
    require(tensor.extents.size() <= static_cast<std::size_t>(kMaxRank), "rank");
    require(std::ranges::all_of(tensor.extents, [](std::int64_t n) { return n >= 0; }), "extents");
    require(within_reach(tensor), "reach");
    tensors.push_back(tensor);
  }
  require(tensors.size() == view.tensor_count(), "as many tensors as said");
  const ipc::Submission again{
      .header = view.header(), .tensors = tensors, .scalars = view.scalars(), .name = view.name()};
  const ipc::SubmissionWriter writer(again);
  require(writer.possible() && writer.bytes() == size, "it can be written");
  const std::unique_ptr<std::uint64_t[]> copy(new std::uint64_t[(size + 7) / 8]);
  writer.write(reinterpret_cast<std::byte*>(copy.get()));
  require(std::memcmp(copy.get(), bytes, size) == 0, "it is written as it was");
  return 0;
}
