// Collectives over shared windows, ranks as processes, beside the least that could do the work.
//
//   comm MEASURE RANKS [BUDGET_MS]     see measure.hpp; a line of JSON
//
//   ""        tensors in the windows
//   "own"     tensors in each rank's own memory
//   "@floor"  of all_reduce: the ranks meet by spinning, rank r adds part r of all inputs straight
//             into all outputs, and they meet again; up to 4 KiB each reads what all have, and they
//             meet once. Of barrier: they meet by spinning.
//   "@memcpy" as many bytes copied once by each rank
//
// What is named takes turns, so that all meet the same machine. MEASURE put_notify is a word and a
// notification there and back, beside a raw one; all_reduce_ALGORITHM is that algorithm.
//
// Thread safety: one thread in each process.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>
#include <stdexcept>

#include "comm/plain_waits.hpp"
#include "comm/shared_windows.hpp"
#include "floor.hpp"
#include "measure.hpp"
#include "strata/communicator.hpp"

namespace {

using namespace strata;
using namespace strata::bench;

using Algorithm = CollectiveAlgorithm;

Algorithm algorithm_of(std::string_view collective) {
  for (const Algorithm algorithm : {Algorithm::one_phase, Algorithm::two_phase, Algorithm::ring,
                                    Algorithm::bidirectional_ring}) {
    if (collective.ends_with(name_of(algorithm))) return algorithm;
  }
  return Algorithm::automatic;
}

void call(const Communicator& ranks, const CommMeasure& measure, const float* in, float* out) {
  const std::uint64_t all = measure.bytes / sizeof(float);
  const std::uint64_t part = all / ranks.size();
  const std::string& name = measure.collective;
  constexpr DType kFloat = DType::float32;
  if (name.starts_with("all_reduce")) {
    ranks.all_reduce(in, out, all, kFloat, ReduceOp::sum, {0, algorithm_of(name)});
  } else if (name == "reduce") {
    ranks.reduce(in, out, all, kFloat, ReduceOp::sum, 0);
  } else if (name == "broadcast") {
    ranks.broadcast(out, all, kFloat, 0);
  } else if (name == "reduce_scatter") {
    ranks.reduce_scatter(in, out, part, kFloat, ReduceOp::sum);
  } else if (name == "all_gather") {
    ranks.all_gather(in, out, part, kFloat);
  } else if (name == "all_to_all") {
    ranks.all_to_all(in, out, part, kFloat);
  } else if (name == "barrier") {
    ranks.barrier();
  } else {
    throw std::invalid_argument("no collective is called '" + name + "'");
  }
}

/// One rank's measurements, in turns.
class Rank {
 public:
  Rank(const CommMeasure& measure, const DomainContext& domain)
      : measure_(measure), domain_(domain), ranks_(waits_, domain_) {}

  /// Of the last run: the bus bandwidth.
  [[nodiscard]] const std::string& note() const noexcept { return note_; }
  Values run() {
    if (measure_.collective == "put_notify") return put_notify();
    const std::size_t count = measure_.bytes / sizeof(float) + 16;
    std::vector<float> own_in(count, 1), own_out(count, 0);
    const auto in = ranks_.slice<float>("in");
    const auto out = ranks_.slice<float>("out");
    std::fill(in.begin(), in.end(), 1.0F);
    std::fill(out.begin(), out.end(), 0.0F);
    ranks_.barrier();
    add("", [&] { call(ranks_, measure_, in.data(), out.data()); });
    if (measure_.collective != "barrier")
      add("own", [&] { call(ranks_, measure_, own_in.data(), own_out.data()); });
    Floor floor(domain_, measure_.bytes / sizeof(float));
    if (measure_.collective == "all_reduce") add("@floor", [&] { floor.all_reduce(); });
    if (measure_.collective == "barrier") add("@floor", [&] { floor.meet(); });
    if (measure_.bytes != 0)
      add("@memcpy", [&] { std::memcpy(own_out.data(), own_in.data(), measure_.bytes); });
    return measure_all();
  }

 private:
  void add(std::string name, std::function<void()> body) {
    contenders_.push_back({std::move(name), std::move(body), {}});
  }

  Values measure_all() {
    Repetitions once = repetitions(measure_);
    constexpr int kTurns = 5;
    once.samples = std::max(2, once.samples / kTurns / static_cast<int>(contenders_.size()));
    for (int turn = 0; turn < kTurns; ++turn) {
      for (Contender& contender : contenders_) {
        const auto samples = time_calls(
            once, [&] { ranks_.barrier(); }, contender.call);
        contender.samples.insert(contender.samples.end(), samples.begin(), samples.end());
      }
    }
    Values values;
    for (const Contender& contender : contenders_)
      values[contender.name] = microseconds(contender.samples);
    note_ = bus_note(measure_, contenders_.front().samples);
    return values;
  }

  Values put_notify() {
    const auto data = ranks_.slice<float>("in").first(1);
    const auto flag = ranks_.slice<Signal>("flags").first(1);
    const std::uint32_t other = 1 - ranks_.rank();
    std::uint32_t round = 0;
    add("", [&, other] {
      ++round;
      const auto there = [&] {
        ranks_.put(other, data.data(), data);
        ranks_.notify(other, flag[0], round);
      };
      if (ranks_.rank() == 0) there();
      ranks_.wait(flag[0], Compare::equal, round);
      if (ranks_.rank() == 1) there();
    });
    RawPing ping(domain_);
    add("@raw", [&] { ping.round_trip(); });
    return measure_all();
  }

  struct Contender {
    std::string name;
    std::function<void()> call;
    std::vector<double> samples;
  };
  const CommMeasure& measure_;
  const DomainContext& domain_;
  comm::PlainWaits waits_;
  Communicator ranks_;
  std::vector<Contender> contenders_;
  std::string note_;
};

comm::DomainSpec domain_of(const CommMeasure& measure) {
  const std::uint64_t count = measure.bytes / sizeof(float) + 16;
  return {.name = "bench",
          .size = measure.ranks,
          .slices = {{"in", DType::float32, count},
                     {"out", DType::float32, count},
                     {"flags", DType::uint64, 64}}};
}

void run_rank(const CommMeasure& measure, int fd, std::uint32_t rank) {
  bind_rank(rank, measure.ranks);
  const comm::WindowLayout layout(domain_of(measure));
  const comm::SharedWindows windows(layout, fd, os::Mapping::Populate::yes);
  const DomainContext domain = windows.context(rank);
  Rank body(measure, domain);
  const Values values = body.run();
  if (rank == 0) print_values(values, true, body.note());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s COLLECTIVE:BYTES RANKS [BUDGET_MS]\n", argv[0]);
    return 2;
  }
  try {
    const CommMeasure measure = parse_measure(argc, argv);
    const comm::WindowLayout layout(domain_of(measure));
    const os::UniqueFd file = comm::SharedWindows::make(layout);
    for (std::uint32_t rank = 1; rank < measure.ranks; ++rank) {
      if (fork() != 0) continue;
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      run_rank(measure, file.get(), rank);
      _exit(0);
    }
    run_rank(measure, file.get(), 0);
    while (wait(nullptr) > 0) {
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}
