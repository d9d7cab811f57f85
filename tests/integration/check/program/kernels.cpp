// Kernels that do what they should not, each on the line that says FAULT, and some that do not.
#include <atomic>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include <strata/kernel.hpp>

namespace {

int state = 0;
const float weights[4] = {1, 2, 3, 4};
thread_local float scratch[16];

__attribute__((noinline)) void put(float* at, float value) {
  *at = value;  // FAULT: helper
}

struct Odd : std::exception {
  explicit Odd(int c) : code(c) {}
  int code;
};

}  // namespace

/// All sorts of accesses that are fine: gaps left alone, an `out` read once it is written, stack,
/// constants, variables of the thread, copies, and an exception that is caught.
STRATA_KERNEL(clean) {
  const auto in = kernel.tensor(0), out = kernel.tensor(1);
  float row[64] = {};
  for (std::int64_t i = 0; i < in.extent(0); ++i) {
    for (std::int64_t j = 0; j < in.extent(1); ++j)
      row[j] = in.at<float>(i, j) * weights[j & 3];
    scratch[i & 15] = row[0];
    std::memcpy(&out.at<float>(i, 0), row, static_cast<std::size_t>(in.extent(1)) * sizeof(float));
  }
  for (std::int64_t i = 0; i < out.extent(0); ++i)
    for (std::int64_t j = 0; j < out.extent(1); ++j)
      out.at<float>(i, j) += scratch[i & 15];
  std::vector<float> own(static_cast<std::size_t>(out.extent(1)), 1.0F);
  const std::string text =
      "a text that is too long to be kept within a string: " + std::to_string(own[0]);
  out.at<float>(0, 0) += own.back() + static_cast<float>(text.size());
  try {
    if (in.extent(0) > 0) throw Odd(kernel.scalar<int>(0));
  } catch (const Odd& odd) {
    out.at<float>(0, 0) += static_cast<float>(odd.code);
  }
}

STRATA_KERNEL(gap) {
  const auto out = kernel.tensor(1);
  for (std::int64_t i = 0; i < out.extent(0); ++i) {
    for (std::int64_t j = 0; j < out.extent(1) + 1; ++j) {
      out.at<float>(i, j) = 1;  // FAULT: gap
    }
  }
}

STRATA_KERNEL(unwritten) {
  const auto out = kernel.tensor(1);
  out.at<float>(0, 0) = 1;
  out.at<float>(0, 1) += 1;  // FAULT: unwritten
}

STRATA_KERNEL(neighbour) {
  const auto out = kernel.tensor(1);
  out.at<float>(0, 0) = 1;
  out.at<float>(2, -3) = 1;  // FAULT: neighbour
}

STRATA_KERNEL(past) {
  const auto in = kernel.tensor(0), out = kernel.tensor(1);
  float sum = 0;
  for (std::int64_t j = 0; j <= in.extent(1); ++j) {
    sum += in.at<float>(in.extent(0) - 1, j);  // FAULT: past
  }
  out.at<float>(0, 0) = sum;
}

STRATA_KERNEL(input) {
  const auto in = kernel.tensor(0);
  in.at<float>(1, 2) += 1;  // FAULT: input
}

STRATA_KERNEL(global) {
  kernel.tensor(1).at<float>(0, 0) = 1;
  state += 1;  // FAULT: global
}

STRATA_KERNEL(helper) {
  put(&kernel.tensor(0).at<float>(0, 1), 2);  // FAULT: helper's caller
  kernel.tensor(1).at<float>(0, 0) = 1;
}

STRATA_KERNEL(copy_too_much) {
  const auto in = kernel.tensor(0), out = kernel.tensor(1);
  const auto bytes = static_cast<std::size_t>(in.extent(1)) * sizeof(float);
  std::memcpy(out.data(), in.data(), bytes + 2);  // FAULT: copy_too_much
}

STRATA_KERNEL(atomics) {
  auto* const word = reinterpret_cast<std::atomic<int>*>(kernel.tensor(0).data());
  word->fetch_add(1);  // FAULT: atomics
  kernel.tensor(1).at<float>(0, 0) = 1;
}

/// Every second element only: what it leaves out is fresh memory.
STRATA_KERNEL(half) {
  const auto out = kernel.tensor(0);
  for (std::int64_t i = 0; i < out.elements(); i += 2)
    out.data_as<float>()[i] = 1;
}

STRATA_KERNEL(copy) {
  const auto in = kernel.tensor(0), out = kernel.tensor(1);
  for (std::int64_t i = 0; i < in.extent(0); ++i)
    for (std::int64_t j = 0; j < in.extent(1); ++j)
      out.at<float>(i, j) = in.at<float>(i, j);
}

/// Reads its `out`, which was given an initial value.
STRATA_KERNEL(accumulate) {
  const auto in = kernel.tensor(0), out = kernel.tensor(1);
  for (std::int64_t i = 0; i < in.extent(0); ++i)
    for (std::int64_t j = 0; j < in.extent(1); ++j)
      out.at<float>(i, j) += in.at<float>(i, j);
}

/// Block b writes row b and, once all have, reads the next one's.
STRATA_KERNEL(rows) {
  const auto out = kernel.tensor(0);
  const std::int64_t rows = out.extent(0), row = kernel.block();
  for (std::int64_t j = 0; j < out.extent(1); ++j)
    out.at<float>(row, j) = static_cast<float>(row);
  kernel.barrier();
  float sum = 0;
  for (std::int64_t j = 0; j < out.extent(1); ++j)
    sum += out.at<float>((row + 1) % rows, j);
  kernel.barrier();
  out.at<float>(row, 0) = sum;
}

STRATA_KERNEL(doubled) {
  const auto x = kernel.tensor(0);
  for (std::int64_t i = 0; i < x.extent(0); ++i)
    for (std::int64_t j = 0; j < x.extent(1); ++j)
      x.at<float>(i, j) = x.at<float>(i, j) * 2 + 1;
}

STRATA_KERNEL(throws) {
  kernel.tensor(0).at<float>(0, 0) = 1;  // FAULT: throws
  throw std::runtime_error("thrown on purpose by " + std::to_string(kernel.block()));
}
