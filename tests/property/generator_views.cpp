// Random layouts and views.
#include <algorithm>

#include "generator.hpp"

namespace strata::property {
namespace {

DType random_dtype(test::Random& random) {
  static constexpr DType kTypes[] = {DType::uint8, DType::uint8,   DType::int16,
                                     DType::int32, DType::float32, DType::float64};
  return kTypes[random.below(std::size(kTypes))];
}

std::int64_t size(DType dtype) { return static_cast<std::int64_t>(size_of(dtype)); }

void slice(View& view, std::size_t d, std::int64_t start, std::int64_t count, std::int64_t step) {
  view.offset += start * view.strides[d] * size(view.dtype);
  view.shape[d] = count;
  view.strides[d] *= step;
}

void reverse(View& view, std::size_t d) {
  if (view.shape[d] == 0) return;
  view.offset += (view.shape[d] - 1) * view.strides[d] * size(view.dtype);
  view.strides[d] = -view.strides[d];
}

/// A range of bytes as elements of some type, in one or two dimensions.
View plain_range(test::Random& random, int storage, std::int64_t bytes) {
  DType dtype = random_dtype(random);
  if (size(dtype) > bytes) dtype = DType::uint8;
  const std::int64_t count = random.between(1, bytes / size(dtype));
  View view = whole(storage, dtype, {count});
  view.offset = random.between(0, bytes - count * size(dtype));
  if (random.chance(70)) view.offset -= view.offset % size(dtype);
  if (count % 2 == 0 && random.chance(20)) {
    view.shape = {2, count / 2};
    view.strides = {count / 2, 1};
  }
  return view;
}

/// Strides that fit no layout.
View odd_strides(test::Random& random, int storage, std::int64_t bytes) {
  View view{
      .storage = storage, .dtype = random_dtype(random), .offset = 0, .shape = {}, .strides = {}};
  if (size(view.dtype) > bytes) view.dtype = DType::uint8;
  const std::int64_t rank = random.between(1, 3);
  for (std::int64_t d = 0; d < rank; ++d) {
    view.shape.push_back(random.between(1, 4));
    view.strides.push_back(random.between(-5, 9));
  }
  for (;;) {
    view.offset = 0;
    const Span span = span_of(view);
    if (span.end - span.begin <= bytes) {
      view.offset = random.between(-span.begin, bytes - span.end);
      return view;
    }
    for (std::int64_t& stride : view.strides)
      stride /= 2;
    for (std::int64_t& extent : view.shape)
      extent = std::max<std::int64_t>(1, extent - 1);
  }
}

}  // namespace

Layout random_layout(test::Random& random, std::int64_t most_bytes) {
  Layout layout{.dtype = random_dtype(random), .shape = {}};
  const std::int64_t rank = random.between(1, 4);
  std::int64_t room = most_bytes / size(layout.dtype);
  for (std::int64_t d = 0; d < rank; ++d) {
    const std::int64_t most = std::min<std::int64_t>(room, rank == 1 ? room : 12);
    const std::int64_t extent = random.between(1, std::max<std::int64_t>(1, most));
    layout.shape.push_back(extent);
    room /= extent;
  }
  return layout;
}

View random_part(test::Random& random, View view) {
  for (std::size_t d = 0; d < view.shape.size(); ++d) {
    const std::int64_t extent = view.shape[d];
    if (extent > 1 && random.chance(60)) {
      const std::int64_t start = random.between(0, extent - 1);
      const std::int64_t step = random.chance(25) ? random.between(2, 3) : 1;
      const std::int64_t most = (extent - start + step - 1) / step;
      slice(view, d, start, random.between(1, most), step);
    }
    if (random.chance(10)) reverse(view, d);
    if (random.chance(1)) view.shape[d] = 0;
  }
  if (view.shape.size() > 1 && random.chance(30)) {
    const std::size_t a = random.below(view.shape.size()), b = random.below(view.shape.size());
    std::swap(view.shape[a], view.shape[b]);
    std::swap(view.strides[a], view.strides[b]);
  }
  if (view.shape.size() > 1 && view.shape.back() == 1 && random.chance(50)) {
    view.shape.pop_back();
    view.strides.pop_back();
  }
  return view;
}

View random_view(test::Random& random, int storage, const Layout& layout, std::int64_t bytes) {
  const View all = whole(storage, layout.dtype, layout.shape);
  const std::uint64_t sort = random.below(100);
  if (sort < 8) return all;
  if (sort < 70) return random_part(random, all);
  if (sort < 90) return plain_range(random, storage, bytes);
  if (sort < 98) return odd_strides(random, storage, bytes);
  // The same bytes again and again.
  View view = random_part(random, all);
  if (view.shape.size() < static_cast<std::size_t>(kMaxRank)) {
    view.shape.insert(view.shape.begin(), random.between(1, 3));
    view.strides.insert(view.strides.begin(), 0);
  }
  return view;
}

std::optional<View> moved(test::Random& random, const View& view, int storage, std::int64_t bytes) {
  View result = view;
  result.storage = storage;
  result.offset = 0;
  const Span span = span_of(result);
  if (span.end - span.begin > bytes) return std::nullopt;
  result.offset = random.between(-span.begin, bytes - span.end);
  if (random.chance(60)) {
    const std::int64_t aligned = result.offset - (result.offset + span.begin) % size(view.dtype);
    if (aligned + span.begin >= 0 && aligned + span.end <= bytes) result.offset = aligned;
  }
  return result;
}

}  // namespace strata::property
