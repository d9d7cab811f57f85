// Harness: measures competitors side by side and remembers every figure by name.
//
// A *figure* is one number with a name, "graph/chain/2t" for Strata and "graph/chain/2t@libomp" for
// a peer. A *series* is what has to be compared with each other: in each of several rounds every
// contender of the series is measured once, between two raw pings between two threads, which say
// whether the machine's cores are near each other or far apart in that round. Values are compared
// within a round, or as medians over the rounds.
//
// To add benchmarks: a file NAME_bench.cpp with a function that adds its series, called from
// main.cpp.
//
// Thread safety: used by the main thread only.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace strata::bench {

/// Where the cores that two spinning threads run on are. A round trip under 0.25 us is near.
enum class Distance { near, far };
std::string_view name_of(Distance distance) noexcept;

/// Round trip of a raw spin ping between two threads, in us; milliseconds of work. Not pinned: it
/// finds the cores as the benchmarks do.
double ping_us();
Distance distance_of(double ping_us) noexcept;

/// What a contender says of one figure in one round.
struct Reading {
  double value = 0;  ///< Median of the repetitions within the round.
  double min = 0;
  std::string unit;
};

/// What a contender says in one round, by what is added to the series' name; "" adds nothing.
/// "NAME@PEER" is a figure of another contender, which was measured in turns with this one.
struct Outcome {
  std::map<std::string, Reading> readings;
  bool infers = true;  ///< Finds dependencies by itself, as opposed to being given edges.
  std::string note;
  std::string missing;  ///< If there are no readings: why.
};

struct Contender {
  std::string name;  ///< Empty for Strata.
  std::function<Outcome()> measure;
};

struct Series {
  std::string name;
  std::string says;  ///< What is measured, in a line.
  std::vector<Contender> contenders;
  int rounds = 0;  ///< 0: as many as asked for on the command line.
};

/// One figure over the rounds of its series.
struct Figure {
  std::string name;
  std::string series;
  std::string contender;
  std::string unit;
  std::vector<std::optional<double>> by_round;
  double min = 0;
  bool infers = true;
  std::string note;
  std::string missing;  ///< Why no round has a value.
  [[nodiscard]] bool present() const noexcept { return missing.empty(); }
};

/// Which rounds count.
enum class Condition { always, near, far };

struct SeriesResult {
  std::string name;
  std::string says;
  std::vector<double> pings_us;  ///< Before each round and after the last.
  std::vector<Figure> figures;
  [[nodiscard]] std::size_t rounds() const noexcept { return pings_us.size() - 1; }
  /// A round counts as near, or as far, where the pings before and after it agree on that.
  [[nodiscard]] bool selected(std::size_t round, Condition condition) const noexcept;
};

class Results {
 public:
  void add(SeriesResult result);
  [[nodiscard]] const std::vector<SeriesResult>& series() const noexcept { return series_; }

  /// The figure of that name, or null. "SERIES@best-inferring" is the peer with the lowest median
  /// among those of the series that infer dependencies.
  [[nodiscard]] const Figure* find(std::string_view name) const;
  /// Median over the rounds that the condition selects; nothing if there are none.
  [[nodiscard]] std::optional<double> value(const Figure& figure,
                                            Condition condition = Condition::always) const;
  /// Figure / other, as median of the rounds' ratios where both were measured in the same rounds,
  /// as ratio of the medians otherwise.
  [[nodiscard]] std::optional<double> ratio(const Figure& figure, const Figure& other,
                                            Condition condition = Condition::always) const;
  /// Whether the series was measured at all.
  [[nodiscard]] const SeriesResult* series_of(std::string_view figure) const;

 private:
  std::vector<SeriesResult> series_;
};

SeriesResult measure_series(const Series& series, int rounds);

}  // namespace strata::bench
