// What the tests of recordings share.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <vector>

#include "engine_support.hpp"

namespace strata::test {

/// data(1)[i] = 2 * data(1)[i] + data(0)[i] + scalar: order and bindings show in the values.
inline void mix_in(TaskContext& c) {
  const TensorView from = c.tensor(0);
  const TensorView to = c.tensor(1);
  for (std::int64_t i = 0; i < to.extent(0); ++i) {
    float& value = c.data<float>(1)[i * to.stride(0)];
    value = 2 * value + c.data<float>(0)[i * from.stride(0)] +
            (c.scalar_count() == 0 ? 0 : c.scalar<float>(0));
    while (value > 1000)
      value -= 997;
  }
}

inline void add_scalar(TaskContext& c) {
  for (std::int64_t i = 0; i < c.tensor(0).extent(0); ++i) {
    c.data<float>(0)[i * c.tensor(0).stride(0)] += c.scalar<float>(0);
  }
}

class EngineRecording : public testing::Test {
 protected:
  using Body = std::function<void(Orchestration&, const Parameters&)>;

  Tensor tensor(int i) { return all_[static_cast<std::size_t>(i)].tensor; }
  std::vector<float>& data(int i) { return all_[static_cast<std::size_t>(i)].data; }

  Engine engine_{thread_lanes(2)};
  std::vector<Floats> all_ = [this] {
    std::vector<Floats> made;
    made.reserve(4);  // Never moved: the engine knows where their data is.
    for (int i = 0; i < 4; ++i)
      made.emplace_back(engine_, std::initializer_list<std::int64_t>{16});
    return made;
  }();
};

}  // namespace strata::test
