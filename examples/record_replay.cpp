// Records y = a x + y over blocks once, then replays it with other vectors and another a.
//
// The recorded orchestration sees parameters in place of tensors and scalars. It is run once and
// executes nothing. A replay submits its tasks with what is bound, ordered among themselves and
// with everything else as if they had been submitted one by one.
#include <cstdint>
#include <cstdio>
#include <strata/strata.hpp>
#include <vector>

int main() {
  constexpr std::int64_t kSize = 1000;
  constexpr std::int64_t kBlock = 250;
  std::vector<double> x(kSize, 1.0);
  std::vector<double> y(kSize, 0.0);
  std::vector<double> z(kSize, 100.0);
  strata::Engine engine;
  const strata::Tensor tx = engine.tensor(x);
  const strata::Tensor ty = engine.tensor(y);
  const strata::Tensor tz = engine.tensor(z);

  const auto axpy = [](strata::TaskContext& task) {
    const auto a = task.scalar<double>(0);
    const auto* from = task.data<const double>(0);
    auto* to = task.data<double>(1);
    for (std::int64_t i = 0; i < task.tensor(1).extent(0); ++i)
      to[i] += a * from[i];
  };

  // The examples give dtype, shape and strides; which bytes they are does not matter here.
  const strata::RecordingSpec spec{.tensors = {tx, ty}, .scalars = 1};
  const strata::Recording recording =
      engine.record(spec, [&](strata::Orchestration& run, const strata::Parameters& parameters) {
        const strata::Tensor& from = parameters.tensor(0);
        const strata::Tensor& to = parameters.tensor(1);
        for (std::int64_t i = 0; i < kSize; i += kBlock) {
          run.submit(axpy, in(from.slice(0, i, i + kBlock)), inout(to.slice(0, i, i + kBlock)),
                     parameters.scalar(0), strata::named("axpy"));
        }
      });
  if (y[0] != 0) return 1;  // Recording executed nothing.

  engine.run([&](strata::Orchestration& run) {
    run.replay(recording, {tx, ty}, {strata::scalar(2.0)});  // y = 2 x + y
    run.replay(recording, {ty, tz}, {strata::scalar(0.5)});  // z = y / 2 + z: waits for y's blocks.
  });

  const strata::RecordingStats stats = recording.stats();
  std::printf("%llu tasks, replayed %llu times: y = %g, z = %g\n",
              static_cast<unsigned long long>(stats.tasks),
              static_cast<unsigned long long>(stats.replays), y[0], z[0]);
  return y == std::vector<double>(kSize, 2.0) && z == std::vector<double>(kSize, 101.0) ? 0 : 1;
}
