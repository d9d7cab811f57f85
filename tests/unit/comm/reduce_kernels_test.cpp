// reduce_kernels: all versions of the loops give the same bits, and the right ones.
#include "comm/reduce_kernels.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "elements.hpp"

namespace strata::comm {
namespace {

using Bytes = std::vector<std::byte>;

Bytes random_bytes(std::size_t count, std::uint64_t seed) {
  test::Random random(seed);
  Bytes data(count);
  for (std::byte& byte : data)
    byte = static_cast<std::byte>(random.below(256));
  return data;
}

Bytes reduced(const ReduceLoops& loops, DType dtype, ReduceOp op, const std::vector<Bytes>& inputs,
              std::size_t count, Stores stores) {
  std::vector<const std::byte*> in;
  in.reserve(inputs.size());
  for (const Bytes& input : inputs)
    in.push_back(input.data());
  Bytes out(count * size_of(dtype));
  std::byte* const to = out.data();
  reduce_arrays_with(loops, dtype, op, in, {&to, 1}, count, stores);
  return out;
}

double value_of_half(std::uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const int mantissa = half & 0x3ff;
  const double sign = (half & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) return mantissa == 0 ? sign * HUGE_VAL : std::nan("");
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

TEST(ReduceKernels, AllVersionsGiveTheSameBitsForAnyBits) {
  const std::size_t count = 2 * kReduceBlock + 37;
  for (const DType dtype : kReducible) {
    for (const ReduceOp op : kOps) {
      for (std::size_t ranks = 1; ranks <= 6; ++ranks) {
        std::vector<Bytes> inputs;
        for (std::size_t r = 0; r < ranks; ++r)
          inputs.push_back(random_bytes(count * size_of(dtype), 7 * r + 1));
        const Bytes first = reduced(*reduce_loops()[0], dtype, op, inputs, count, Stores::in_turn);
        for (const ReduceLoops* const loops : reduce_loops()) {
          for (const Stores stores : {Stores::in_turn, Stores::at_once, Stores::past_caches}) {
            EXPECT_EQ(reduced(*loops, dtype, op, inputs, count, stores), first)
                << loops->name << ", " << name_of(dtype) << ", " << name_of(op) << ", " << ranks;
          }
        }
      }
    }
  }
}

TEST(ReduceKernels, EveryTypeAndOperationGivesTheExactResult) {
  for (const DType dtype : kReducible) {
    for (const ReduceOp op : kOps) {
      for (const std::uint32_t ranks : {1U, 2U, 3U, 4U, 5U, 8U}) {
        std::vector<Bytes> inputs;
        for (std::uint32_t r = 0; r < ranks; ++r)
          inputs.push_back(input(dtype, op, r, 1100));
        for (const ReduceLoops* const loops : reduce_loops()) {
          EXPECT_EQ(reduced(*loops, dtype, op, inputs, 1100, Stores::in_turn),
                    expected(dtype, op, ranks, 1100))
              << loops->name << ", " << name_of(dtype) << ", " << name_of(op) << ", " << ranks;
        }
      }
    }
  }
}

/// Adds two 16-bit numbers with every version of the loops.
std::uint16_t add_halves(const ReduceLoops& loops, DType dtype, std::uint16_t a, std::uint16_t b) {
  std::vector<Bytes> inputs(2, Bytes(32));  // Enough for a vector, so that the wide path is taken.
  for (std::size_t i = 0; i < 16; ++i) {
    std::memcpy(&inputs[0][2 * i], &a, 2);
    std::memcpy(&inputs[1][2 * i], &b, 2);
  }
  const Bytes out = reduced(loops, dtype, ReduceOp::sum, inputs, 16, Stores::in_turn);
  std::uint16_t sum = 0;
  std::memcpy(&sum, out.data(), 2);
  return sum;
}

TEST(ReduceKernels, EveryFloat16SurvivesAnAdditionOfNothing) {
  for (const ReduceLoops* const loops : reduce_loops()) {
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
      const auto half = static_cast<std::uint16_t>(bits);
      const std::uint16_t got = add_halves(*loops, DType::float16, half, 0);
      if (std::isnan(value_of_half(half))) {
        ASSERT_TRUE(std::isnan(value_of_half(got))) << loops->name << " " << bits;
      } else {
        ASSERT_EQ(value_of_half(got), value_of_half(half)) << loops->name << " " << bits;
      }
    }
  }
}

TEST(ReduceKernels, SumsOfFloat16AreTheNearestWithTiesToEven) {
  test::Random random(3);
  for (const ReduceLoops* const loops : reduce_loops()) {
    for (int i = 0; i < 20000; ++i) {
      const auto a = static_cast<std::uint16_t>(random.below(0x7c00) | random.below(2) << 15);
      const auto b = static_cast<std::uint16_t>(random.below(0x7c00) | random.below(2) << 15);
      // Exact in float64, and in float32 too unless the exponents are far apart, where float32's
      // own rounding comes first; the test has the same two steps.
      const double sum = static_cast<double>(static_cast<float>(value_of_half(a)) +
                                             static_cast<float>(value_of_half(b)));
      const double got = value_of_half(add_halves(*loops, DType::float16, a, b));
      if (std::abs(sum) >= 65520) {
        ASSERT_TRUE(std::isinf(got)) << sum;
        continue;
      }
      const std::uint16_t bits = add_halves(*loops, DType::float16, a, b);
      const double above = value_of_half(static_cast<std::uint16_t>(bits + 1));
      const double below =
          (bits & 0x7fff) == 0 ? got : value_of_half(static_cast<std::uint16_t>(bits - 1));
      const double error = std::abs(got - sum);
      if (!std::isinf(above)) {
        ASSERT_LE(error, std::abs(above - sum)) << a << " + " << b;
      }
      ASSERT_LE(error, std::abs(below - sum) + (got == below ? error : 0)) << a << " + " << b;
      if (error != 0 && !std::isinf(above) &&
          (error == std::abs(above - sum) || error == std::abs(below - sum))) {
        ASSERT_EQ(bits & 1U, 0U) << "a tie goes to the even one: " << a << " + " << b;
      }
    }
  }
}

TEST(ReduceKernels, Bfloat16RoundsToNearestEvenAndKeepsNaN) {
  const auto bf16 = [](float value) {
    return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
  };
  for (const ReduceLoops* const loops : reduce_loops()) {
    const auto add = [&](float a, float b) {
      return add_halves(*loops, DType::bfloat16, bf16(a), bf16(b));
    };
    EXPECT_EQ(add(256, 1), bf16(256)) << "a tie, and 256 is even";
    EXPECT_EQ(add(258, 1), bf16(260)) << "a tie, and 258 is odd";
    EXPECT_EQ(add(256, 1.5F), bf16(258));
    const float inf = std::numeric_limits<float>::infinity();
    EXPECT_EQ(add(inf, 1), bf16(inf));
    EXPECT_GT(add(inf, -inf) & 0x7fff, 0x7f80) << "infinity - infinity is no number";
  }
}

TEST(ReduceKernels, MinAndMaxOfANaNAreNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceLoops* const loops : reduce_loops()) {
    for (const ReduceOp op : {ReduceOp::min, ReduceOp::max}) {
      for (const bool first : {true, false}) {
        std::vector<Bytes> inputs(2, Bytes(4 * 20));
        for (std::size_t i = 0; i < 20; ++i) {
          const float a = first ? nan : 1;
          const float b = first ? 1 : nan;
          std::memcpy(&inputs[0][4 * i], &a, 4);
          std::memcpy(&inputs[1][4 * i], &b, 4);
        }
        const Bytes out = reduced(*loops, DType::float32, op, inputs, 20, Stores::in_turn);
        float got = 0;
        std::memcpy(&got, out.data(), 4);
        EXPECT_TRUE(std::isnan(got)) << loops->name;
      }
    }
  }
}

TEST(ReduceKernels, EveryOutputMayBeAnInput) {
  const std::size_t count = kReduceBlock + 5;
  for (const DType dtype : kReducible) {
    for (const std::uint32_t ranks : {2U, 3U, 4U, 5U, 7U}) {
      for (const Stores stores : {Stores::in_turn, Stores::at_once, Stores::past_caches}) {
        std::vector<Bytes> arrays;
        std::vector<const std::byte*> in;
        std::vector<std::byte*> out;
        for (std::uint32_t r = 0; r < ranks; ++r)
          arrays.push_back(input(dtype, ReduceOp::sum, r, count));
        for (Bytes& array : arrays) {
          in.push_back(array.data());
          out.insert(out.begin(), array.data());
        }
        reduce_arrays(dtype, ReduceOp::sum, in, out, count, stores);
        for (const Bytes& array : arrays)
          EXPECT_EQ(array, expected(dtype, ReduceOp::sum, ranks, count)) << name_of(dtype);
      }
    }
  }
}

TEST(ReduceKernels, OnlySixTypesAreReducible) {
  std::size_t reducible = 0;
  for (std::uint8_t i = 0; i < kDTypes; ++i)
    reducible += is_reducible(static_cast<DType>(i)) ? 1 : 0;
  EXPECT_EQ(reducible, kReducible.size());
  for (const DType dtype : kReducible)
    EXPECT_TRUE(is_reducible(dtype));
}

}  // namespace
}  // namespace strata::comm
