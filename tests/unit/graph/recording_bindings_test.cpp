// What may be bound to the parameters of a recording, and what may be recorded at all.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "recording_support.hpp"

namespace strata::test {
namespace {

// ---- Aliasing -----------------------------------------------------------------------------------

TEST_F(EngineRecording, BindingsThatAliasWhereTheExamplesDidNotAreInferredAnew) {
  const auto record = [&](const Tensor& x, const Tensor& y) {
    return engine_.record({.tensors = {x, y}}, [&](Orchestration& o, const Parameters& p) {
      for (int i = 0; i < 20; ++i) {
        o.submit(add_scalar, inout(p.tensor(0)), scalar(static_cast<float>(i)));
        o.submit(mix_in, in(p.tensor(1)), inout(p.tensor(0)), scalar(1.0F));
        o.submit(add_scalar, inout(p.tensor(1)), scalar(2.0F));
      }
    });
  };
  const Recording recording = record(tensor(0).slice(0, 0, 8), tensor(1).slice(0, 0, 8));
  engine_.run([&](Orchestration& o) {
    o.replay(recording, {tensor(0).slice(0, 0, 8), tensor(1).slice(0, 0, 8)});
  });
  EXPECT_EQ(recording.stats().reinferred, 0U);
  for (int shift = 0; shift < 8; shift += 3) {
    std::fill(data(2).begin(), data(2).end(), 1.0F);
    std::fill(data(3).begin(), data(3).end(), 1.0F);
    engine_.run([&](Orchestration& o) {
      o.replay(recording, {tensor(2).slice(0, 0, 8), tensor(2).slice(0, shift, shift + 8)});
      const Tensor x = tensor(3).slice(0, 0, 8);
      const Tensor y = tensor(3).slice(0, shift, shift + 8);
      for (int i = 0; i < 20; ++i) {
        o.submit(add_scalar, inout(x), scalar(static_cast<float>(i)));
        o.submit(mix_in, in(y), inout(x), scalar(1.0F));
        o.submit(add_scalar, inout(y), scalar(2.0F));
      }
    });
    EXPECT_EQ(data(2), data(3)) << shift;
  }
  EXPECT_EQ(recording.stats().reinferred, 3U);
}

TEST_F(EngineRecording, ExamplesThatAliasMayBeBoundToBuffersThatDoNot) {
  // Both parameters are the same tensor in the example; at replay each must get its own.
  const Recording recording = engine_.record(
      {.tensors = {tensor(0), tensor(0)}}, [](Orchestration& o, const Parameters& p) {
        o.submit(add_scalar, inout(p.tensor(0)), scalar(1.0F));
        o.submit(add_scalar, inout(p.tensor(1)), scalar(10.0F));
        o.submit(add_scalar, inout(p.tensor(1).slice(0, 0, 4)), scalar(100.0F));
      });
  engine_.run([&](Orchestration& o) { o.replay(recording, {tensor(1), tensor(2)}); });
  EXPECT_EQ(data(1)[0], 1);
  EXPECT_EQ(data(2)[0], 110);
  EXPECT_EQ(data(2)[5], 10);
  EXPECT_EQ(recording.stats().reinferred, 1U);
  engine_.run([&](Orchestration& o) { o.replay(recording, {tensor(3), tensor(3)}); });
  EXPECT_EQ(data(3)[0], 111);
  EXPECT_EQ(recording.stats().reinferred, 1U);
}

TEST_F(EngineRecording, ViewIsBoundToTheParameterItWasTakenOf) {
  // In the example the parameters overlap, and the view lies in both.
  const Tensor x = tensor(0);
  const Recording recording =
      engine_.record({.tensors = {x.slice(0, 0, 8), x.slice(0, 4, 12)}},
                     [](Orchestration& o, const Parameters& p) {
                       o.submit(add_scalar, inout(p.tensor(1).slice(0, 0, 4)), scalar(1.0F));
                     });
  engine_.run([&](Orchestration& o) {
    o.replay(recording, {tensor(1).slice(0, 0, 8), tensor(2).slice(0, 0, 8)});
  });
  EXPECT_EQ(data(1), std::vector<float>(16, 0));
  EXPECT_EQ(data(2)[0], 1);
  EXPECT_EQ(data(2)[4], 0);
}

TEST_F(EngineRecording, ParameterBoundToAFixedTensorIsOrderedWithIt) {
  const Recording recording =
      engine_.record({.tensors = {tensor(0)}}, [&](Orchestration& o, const Parameters& p) {
        for (int i = 0; i < 20; ++i) {
          o.submit(add_scalar, inout(p.tensor(0)), scalar(1.0F));
          o.submit(mix_in, in(tensor(3)), inout(tensor(2)), scalar(0.0F));
        }
      });
  engine_.run([&](Orchestration& o) { o.replay(recording, {tensor(3)}); });
  float expected = 0;
  for (int i = 1; i <= 20; ++i) {
    expected = 2 * expected + static_cast<float>(i);
    while (expected > 1000)
      expected -= 997;
  }
  EXPECT_EQ(data(2)[7], expected);
}

// ---- Refused ------------------------------------------------------------------------------------

TEST_F(EngineRecording, BindingsOfAnotherKindAreRefusedAndTheRunGoesOn) {
  const Recording recording = engine_.record(
      {.tensors = {tensor(0)}, .scalars = 1}, [](Orchestration& o, const Parameters& p) {
        o.submit(add_scalar, inout(p.tensor(0)), p.scalar(0));
      });
  std::vector<double> doubles(16);
  const Tensor other_type = engine_.tensor(doubles);
  Floats matrix(engine_, {16, 2});
  engine_.run([&](Orchestration& o) {
    const Scalar one = scalar(1.0F);
    EXPECT_THROW(o.replay(recording, {other_type}, {one}), InvalidArgument);
    EXPECT_THROW(o.replay(recording, {tensor(1).slice(0, 0, 8)}, {one}), InvalidArgument);
    EXPECT_THROW(o.replay(recording, {matrix.tensor.select(1, 0)}, {one}), InvalidArgument);
    EXPECT_THROW(o.replay(recording, {Tensor(DType::float32, {16})}, {one}), InvalidArgument);
    EXPECT_THROW(o.replay(recording, {tensor(1), tensor(2)}, {one}), InvalidArgument);
    EXPECT_THROW(o.replay(recording, {}, {one}), InvalidArgument);
    EXPECT_THROW(o.replay(recording, {tensor(1)}), InvalidArgument);
    EXPECT_THROW(o.replay(Recording(), {tensor(1)}), InvalidArgument);
    const std::string message = message_of<InvalidArgument>(
        [&] { o.replay(recording, {tensor(1).slice(0, 0, 8)}, {one}); });
    EXPECT_NE(message.find("tensor 0"), std::string::npos) << message;
    o.replay(recording, {tensor(1)}, {one});
  });
  EXPECT_EQ(data(1)[3], 1);
  EXPECT_EQ(recording.stats().replays, 1U);
}

TEST_F(EngineRecording, WhatCanNotBeRecordedIsRefusedByName) {
  struct Case {
    std::string name;
    Body body;
  };
  const Recording other = engine_.record({}, [](Orchestration&, const Parameters&) {});
  const std::vector<Case> cases = {
      {"read",
       [&](Orchestration& o, const Parameters& p) { (void)o.read<float>(p.tensor(0), {0}); }},
      {"write",
       [&](Orchestration& o, const Parameters& p) { o.write<float>(p.tensor(0), {0}, 1); }},
      {"overwrite", [&](Orchestration& o, const Parameters& p) { o.overwrite(p.tensor(0)); }},
      {"wait", [&](Orchestration& o, const Parameters& p) { o.wait(p.tensor(0)); }},
      {"wait", [&](Orchestration& o, const Parameters&) { o.wait(o.submit(nothing)); }},
      {"keep", [&](Orchestration& o, const Parameters& p) { (void)o.keep(p.tensor(0)); }},
      {"allocate",
       [&](Orchestration& o, const Parameters&) { (void)o.allocate(DType::int8, {4}); }},
      {"run", [&](Orchestration& o, const Parameters&) { (void)o.run(); }},
      {"replay", [&](Orchestration& o, const Parameters&) { o.replay(other, {}); }}};
  for (const Case& c : cases) {
    const std::string message =
        message_of<RecordingError>([&] { (void)engine_.record({.tensors = {tensor(0)}}, c.body); });
    EXPECT_NE(message.find(c.name), std::string::npos) << c.name << ": " << message;
  }
}

TEST_F(EngineRecording, BadInputIsRefusedWhileRecordingNamingTheArgument) {
  const auto refused = [&](const Body& body) {
    return message_of<InvalidArgument>(
        [&] { (void)engine_.record({.tensors = {tensor(0)}, .scalars = 1}, body); });
  };
  const std::string outside = refused([](Orchestration& o, const Parameters& p) {
    const Tensor view(p.tensor(0).buffer(), 60, DType::float32, std::vector<std::int64_t>{2});
    o.submit(nothing, in(p.tensor(0)), in(view), named("wide"));
  });
  EXPECT_NE(outside.find("wide"), std::string::npos) << outside;
  EXPECT_NE(outside.find("tensor argument 1"), std::string::npos) << outside;
  refused([](Orchestration&, const Parameters& p) { (void)p.tensor(1); });
  refused([](Orchestration&, const Parameters& p) { (void)p.scalar(1); });
  refused([](Orchestration& o, const Parameters&) { o.submit(nothing, on(LaneId{7})); });
  refused([](Orchestration& o, const Parameters&) {
    const Tensor none(DType::float32, {4});
    o.submit(nothing, in(none));
  });
}

}  // namespace
}  // namespace strata::test
