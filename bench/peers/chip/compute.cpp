// Real kernels: what a chip adds to the time that they take by themselves.
//
// The same functions are called by tasks of a chip, from a plain loop on one thread, and from an
// OpenMP loop over what is independent. "busy" is the time of the plain loop divided by the
// threads: what no schedule can beat.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "in_process.hpp"
#include "measures.hpp"
#include "node/cpu_shares.hpp"
#include "timing.hpp"

namespace strata::bench {
namespace {

// ---- Kernels ------------------------------------------------------------------------------------

/// c += a * b, all of size x size floats, row-major with strides.
void multiply(const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride,
              float* c, std::int64_t c_stride, std::int64_t size) {
  for (std::int64_t i = 0; i < size; ++i) {
    for (std::int64_t k = 0; k < size; ++k) {
      const float factor = a[i * a_stride + k];
      const float* const row = b + k * b_stride;
      float* const to = c + i * c_stride;
      for (std::int64_t j = 0; j < size; ++j)
        to[j] += factor * row[j];
    }
  }
}

void multiply_kernel(const Kernel& kernel) {
  const KernelTensor a = kernel.tensor(0), b = kernel.tensor(1), c = kernel.tensor(2);
  multiply(a.data_as<float>(), a.stride(0), b.data_as<float>(), b.stride(0), c.data_as<float>(),
           c.stride(0), a.extent(0));
}

/// One step of online softmax attention: queries x one block of keys and values. state: per query
/// the running maximum and the running sum; out: queries x dim, not yet divided by the sum.
struct AttentionStep {
  const float* q;
  const float* keys;
  const float* values;
  float* state;
  float* out;
  std::int64_t queries, block, dim;
};

void attend(const AttentionStep& step) {
  std::vector<float> scores(static_cast<std::size_t>(step.block));
  for (std::int64_t i = 0; i < step.queries; ++i) {
    const float* const query = step.q + i * step.dim;
    float top = step.state[2 * i];
    for (std::int64_t j = 0; j < step.block; ++j) {
      float dot = 0;
      for (std::int64_t d = 0; d < step.dim; ++d)
        dot += query[d] * step.keys[j * step.dim + d];
      scores[static_cast<std::size_t>(j)] = dot;
      top = std::max(top, dot);
    }
    const float keep = std::exp(step.state[2 * i] - top);
    float sum = step.state[2 * i + 1] * keep;
    float* const out = step.out + i * step.dim;
    for (std::int64_t d = 0; d < step.dim; ++d)
      out[d] *= keep;
    for (std::int64_t j = 0; j < step.block; ++j) {
      const float weight = std::exp(scores[static_cast<std::size_t>(j)] - top);
      sum += weight;
      for (std::int64_t d = 0; d < step.dim; ++d)
        out[d] += weight * step.values[j * step.dim + d];
    }
    step.state[2 * i] = top;
    step.state[2 * i + 1] = sum;
  }
}

void attend_kernel(const Kernel& kernel) {
  const KernelTensor q = kernel.tensor(0), keys = kernel.tensor(1);
  attend({.q = q.data_as<float>(),
          .keys = keys.data_as<float>(),
          .values = kernel.data<float>(2),
          .state = kernel.data<float>(3),
          .out = kernel.data<float>(4),
          .queries = q.extent(0),
          .block = keys.extent(0),
          .dim = q.extent(1)});
}

// ---- Blocked product ----------------------------------------------------------------------------

constexpr std::int64_t kGridM = 10, kGridN = 10, kGridK = 5;  ///< 500 tasks.

void matmul(ChipOrchestration& chip) {
  const Launch launch = chip.aic("multiply");
  const Tensor &a = chip.tensor(0), &b = chip.tensor(1), &c = chip.tensor(2);
  const std::int64_t size = a.extent(0) / kGridM;
  for (std::int64_t k = 0; k < kGridK; ++k) {
    for (std::int64_t i = 0; i < kGridM; ++i) {
      for (std::int64_t j = 0; j < kGridN; ++j) {
        chip.submit(launch, in(a.tile({i * size, k * size}, {size, size})),
                    in(b.tile({k * size, j * size}, {size, size})),
                    inout(c.tile({i * size, j * size}, {size, size})));
      }
    }
  }
}

// ---- Paged attention ----------------------------------------------------------------------------

constexpr std::int64_t kHeads = 32, kBlocksPerHead = 16, kQueries = 16, kDim = 64;

void attention(ChipOrchestration& chip) {
  const Launch launch = chip.aiv("attend");
  const Tensor &q = chip.tensor(0), &keys = chip.tensor(1), &values = chip.tensor(2);
  const Tensor &state = chip.tensor(3), &out = chip.tensor(4), &table = chip.tensor(5);
  for (std::int64_t block = 0; block < kBlocksPerHead; ++block) {
    for (std::int64_t head = 0; head < kHeads; ++head) {
      const auto page = chip.read<std::int32_t>(table, {head, block});
      chip.submit(launch, in(q.select(0, head)), in(keys.select(0, page)),
                  in(values.select(0, page)), inout(state.select(0, head)),
                  inout(out.select(0, head)));
    }
  }
}

// ---- How they are compared ----------------------------------------------------------------------

/// Calls step(i) for all i in [0, count) on the threads, each what is next.
void share_out([[maybe_unused]] unsigned threads, std::int64_t count,
               const std::function<void(std::int64_t)>& step) {
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
  for (std::int64_t i = 0; i < count; ++i)
    step(i);
}

/// A chip whose cores are this machine's, with a CPU of its own for each thread, as a Worker gives
/// it where there are enough.
InProcessChip native_chip(unsigned threads) {
  std::vector<int> cpus = node::allowed_cpu_list();
  cpus.resize(std::min<std::size_t>(cpus.size(), threads));
  return {{.platform = Platform::parse("cpu"), .cpus = std::move(cpus)}, threads};
}

/// How long OpenMP's threads spin at most once they have nothing to do. (libgomp: 300,000 times.)
constexpr double kOpenMpSpinsNs = 40e6;

/// In turns, so that what else goes on meets all three. The plain loop comes behind OpenMP's, whose
/// threads spin on for a while: it is repeated until they have gone to sleep.
Values compare(unsigned threads, double budget_ns, const std::function<void()>& on_chip,
               const std::function<void()>& plain, const std::function<void()>& shared, int tasks) {
  std::vector<double> chip_times, plain_times, shared_times, over_busy, over_shared;
  on_chip();
  const double begin = now_ns();
  while (chip_times.size() < 5 || now_ns() - begin < budget_ns) {
    chip_times.push_back(timed(on_chip));
    shared_times.push_back(timed(shared));
    const double shared_end = now_ns();
    double plain_time = timed(plain);
    while (now_ns() - shared_end < kOpenMpSpinsNs)
      plain_time = timed(plain);
    plain_times.push_back(plain_time);
    over_busy.push_back(chip_times.back() * threads / plain_times.back());
    over_shared.push_back(chip_times.back() / shared_times.back());
  }
  const auto per_task = [&](std::vector<double> times, double factor) {
    for (double& time : times)
      time *= factor / tasks / 1000;
    return summary(times, "us/task");
  };
  Values values = {{"", per_task(chip_times, 1)},
                   {"@busy", per_task(plain_times, 1.0 / threads)},
                   {"over-busy", summary(over_busy, "x")}};
#ifdef _OPENMP
  values["@openmp"] = per_task(shared_times, 1);
  values["over-openmp"] = summary(over_shared, "x");
#endif
  return values;
}

}  // namespace

Values measure_matmul(unsigned threads, int tile, double budget_ns) {
  const std::int64_t size = tile;
  const std::int64_t m = kGridM * size, n = kGridN * size, k = kGridK * size;
  std::vector<float> a(static_cast<std::size_t>(m * k), 0.5F),
      b(static_cast<std::size_t>(k * n), 2);
  std::vector<float> c(static_cast<std::size_t>(m * n));
  Arguments arguments;
  arguments.add(a, {m, k}, Access::in);
  arguments.add(b, {k, n}, Access::in);
  arguments.add(c, {m, n}, Access::inout);
  InProcessChip chip = native_chip(threads);
  chip.set_program({{"multiply", CoreType::aic, multiply_kernel}}, matmul);
  const auto tile_product = [&](std::int64_t at, std::int64_t step) {
    const std::int64_t i = at / kGridN, j = at % kGridN;
    multiply(&a[static_cast<std::size_t>(i * size * k + step * size)], k,
             &b[static_cast<std::size_t>(step * size * n + j * size)], n,
             &c[static_cast<std::size_t>(i * size * n + j * size)], n, size);
  };
  const auto layer = [&](unsigned on, std::int64_t step) {
    share_out(on, kGridM * kGridN, [&](std::int64_t at) { tile_product(at, step); });
  };
  const auto plain = [&] {
    for (std::int64_t step = 0; step < kGridK; ++step) {
      for (std::int64_t at = 0; at < kGridM * kGridN; ++at)
        tile_product(at, step);
    }
  };
  const auto shared = [&] {
    for (std::int64_t step = 0; step < kGridK; ++step)
      layer(threads, step);
  };
  return compare(
      threads, budget_ns, [&] { chip.run(arguments.block()); }, plain, shared,
      static_cast<int>(kGridM * kGridN * kGridK));
}

Values measure_attention(unsigned threads, int block_size, double budget_ns) {
  const std::int64_t block = block_size;
  constexpr std::int64_t kPages = kHeads * kBlocksPerHead;
  const auto floats = [](std::int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(i % 17) / 64;
    return values;
  };
  std::vector<float> q = floats(kHeads * kQueries * kDim), keys = floats(kPages * block * kDim);
  std::vector<float> values = floats(kPages * block * kDim), state = floats(kHeads * kQueries * 2);
  std::vector<float> out = floats(kHeads * kQueries * kDim);
  std::vector<std::int32_t> table(static_cast<std::size_t>(kPages));
  for (std::size_t i = 0; i < table.size(); ++i)
    table[i] = static_cast<std::int32_t>(i * 7 % table.size());
  Arguments arguments;
  arguments.add(q, {kHeads, kQueries, kDim}, Access::in);
  arguments.add(keys, {kPages, block, kDim}, Access::in);
  arguments.add(values, {kPages, block, kDim}, Access::in);
  arguments.add(state, {kHeads, kQueries, 2}, Access::inout);
  arguments.add(out, {kHeads, kQueries, kDim}, Access::inout);
  arguments.add(table, {kHeads, kBlocksPerHead}, Access::in);
  InProcessChip chip = native_chip(threads);
  chip.set_program({{"attend", CoreType::aiv, attend_kernel}}, attention);
  const auto one = [&](std::int64_t head) {
    for (std::int64_t i = 0; i < kBlocksPerHead; ++i) {
      const std::int64_t page = table[static_cast<std::size_t>(head * kBlocksPerHead + i)];
      attend({.q = &q[static_cast<std::size_t>(head * kQueries * kDim)],
              .keys = &keys[static_cast<std::size_t>(page * block * kDim)],
              .values = &values[static_cast<std::size_t>(page * block * kDim)],
              .state = &state[static_cast<std::size_t>(head * kQueries * 2)],
              .out = &out[static_cast<std::size_t>(head * kQueries * kDim)],
              .queries = kQueries,
              .block = block,
              .dim = kDim});
    }
  };
  const auto plain = [&] {
    for (std::int64_t head = 0; head < kHeads; ++head)
      one(head);
  };
  return compare(
      threads, budget_ns, [&] { chip.run(arguments.block()); }, plain,
      [&] { share_out(threads, kHeads, one); }, static_cast<int>(kPages));
}

}  // namespace strata::bench
