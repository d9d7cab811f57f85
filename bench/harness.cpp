#include "harness.hpp"

#include <algorithm>
#include <atomic>

#include "peers/timing.hpp"

namespace strata::bench {
namespace {

constexpr double kNearBelowUs = 0.25;

std::optional<double> median_of(const std::vector<double>& values) {
  if (values.empty()) return std::nullopt;
  return median(values);
}

/// The figure of this name within the result, made where it is new, with no value in earlier
/// rounds.
Figure& figure_in(SeriesResult& result, const Contender& contender, const std::string& reading) {
  // One program may measure Strata and a peer in turns: then the reading names the peer.
  const std::size_t at_sign = reading.find('@');
  const std::string suffix = reading.substr(0, at_sign);
  const std::string owner =
      at_sign == std::string::npos ? contender.name : reading.substr(at_sign + 1);
  std::string name = result.name + (suffix.empty() ? "" : "/" + suffix);
  if (!owner.empty()) name += "@" + owner;
  const auto same = [&](const Figure& f) { return f.name == name; };
  const auto at = std::find_if(result.figures.begin(), result.figures.end(), same);
  if (at != result.figures.end()) return *at;
  Figure& figure = result.figures.emplace_back();
  figure.name = std::move(name);
  figure.series = result.name;
  figure.contender = owner;
  return figure;
}

/// A contender that fails once has no figures at all: half of them would look like the whole.
void note_missing(SeriesResult& result, const Contender& contender, const Outcome& outcome) {
  bool any = false;
  for (Figure& figure : result.figures) {
    if (figure.contender != contender.name) continue;
    figure.missing = outcome.missing;
    any = true;
  }
  if (!any) figure_in(result, contender, "").missing = outcome.missing;
}

void note_readings(SeriesResult& result, const Contender& contender, const Outcome& outcome) {
  const std::size_t round = result.pings_us.size() - 1;
  for (const auto& [suffix, reading] : outcome.readings) {
    Figure& figure = figure_in(result, contender, suffix);
    const bool first = std::none_of(figure.by_round.begin(), figure.by_round.end(),
                                    [](const auto& value) { return value.has_value(); });
    figure.by_round.resize(round);
    figure.by_round.push_back(reading.value);
    figure.min = first ? reading.min : std::min(figure.min, reading.min);
    figure.unit = reading.unit;
    figure.infers = outcome.infers;
    figure.note = outcome.note;
  }
}

}  // namespace

std::string_view name_of(Distance distance) noexcept {
  return distance == Distance::near ? "near" : "far";
}

Distance distance_of(double ping_us) noexcept {
  return ping_us < kNearBelowUs ? Distance::near : Distance::far;
}

bool SeriesResult::selected(std::size_t round, Condition condition) const noexcept {
  if (condition == Condition::always) return true;
  const Distance wanted = condition == Condition::near ? Distance::near : Distance::far;
  return distance_of(pings_us[round]) == wanted && distance_of(pings_us[round + 1]) == wanted;
}

double ping_us() {
  constexpr int kBatches = 21, kRoundTrips = 1000;
  // Odd values are for the second thread to answer, with the next even one.
  alignas(64) std::atomic<int> ball{0};
  std::vector<double> batches;
  parallel_ns(2, [&](unsigned index) {
    for (int batch = 0; batch < kBatches; ++batch) {
      const double begin = now_ns();
      for (int i = 0; i < kRoundTrips; ++i) {
        const int serve = 2 * (batch * kRoundTrips + i) + 1;
        if (index == 0) {
          ball.store(serve, std::memory_order_release);
          while (ball.load(std::memory_order_acquire) != serve + 1) {
          }
        } else {
          while (ball.load(std::memory_order_acquire) != serve) {
          }
          ball.store(serve + 1, std::memory_order_release);
        }
      }
      if (index == 0) batches.push_back((now_ns() - begin) / kRoundTrips / 1000);
    }
  });
  return median(batches);
}

void Results::add(SeriesResult result) { series_.push_back(std::move(result)); }

const SeriesResult* Results::series_of(std::string_view figure) const {
  for (const SeriesResult& series : series_) {
    if (!figure.starts_with(series.name)) continue;
    const std::string_view rest = figure.substr(series.name.size());
    if (rest.empty() || rest[0] == '/' || rest[0] == '@') return &series;
  }
  return nullptr;
}

const Figure* Results::find(std::string_view name) const {
  constexpr std::string_view kBest = "@best-inferring";
  const SeriesResult* series = series_of(name);
  if (series == nullptr) return nullptr;
  if (!name.ends_with(kBest)) {
    for (const Figure& figure : series->figures) {
      if (figure.name == name) return &figure;
    }
    return nullptr;
  }
  const std::string_view base = name.substr(0, name.size() - kBest.size());
  const Figure* best = nullptr;
  for (const Figure& figure : series->figures) {
    if (figure.contender.empty() || !figure.present() || !figure.infers) continue;
    if (figure.name != std::string(base) + "@" + figure.contender) continue;
    if (best == nullptr || value(figure) < value(*best)) best = &figure;
  }
  return best;
}

std::optional<double> Results::value(const Figure& figure, Condition condition) const {
  const SeriesResult* series = series_of(figure.series);
  std::vector<double> values;
  for (std::size_t round = 0; round < figure.by_round.size(); ++round) {
    if (!figure.by_round[round] || !series->selected(round, condition)) continue;
    values.push_back(*figure.by_round[round]);
  }
  return median_of(values);
}

std::optional<double> Results::ratio(const Figure& figure, const Figure& other,
                                     Condition condition) const {
  if (figure.series == other.series) {
    const SeriesResult* series = series_of(figure.series);
    std::vector<double> ratios;
    const std::size_t rounds = std::min(figure.by_round.size(), other.by_round.size());
    for (std::size_t round = 0; round < rounds; ++round) {
      if (!figure.by_round[round] || !other.by_round[round]) continue;
      if (!series->selected(round, condition)) continue;
      ratios.push_back(*figure.by_round[round] / *other.by_round[round]);
    }
    return median_of(ratios);
  }
  const std::optional<double> a = value(figure, condition), b = value(other, condition);
  if (!a || !b) return std::nullopt;
  return *a / *b;
}

SeriesResult measure_series(const Series& series, int rounds) {
  SeriesResult result{.name = series.name, .says = series.says, .pings_us = {}, .figures = {}};
  std::vector<bool> given_up(series.contenders.size());
  for (int round = 0; round < (series.rounds > 0 ? series.rounds : rounds); ++round) {
    result.pings_us.push_back(ping_us());
    for (std::size_t i = 0; i < series.contenders.size(); ++i) {
      // Each round begins with another contender: none always follows the same one.
      const std::size_t turn = (i + static_cast<std::size_t>(round)) % series.contenders.size();
      if (given_up[turn]) continue;
      const Contender& contender = series.contenders[turn];
      const Outcome outcome = contender.measure();
      given_up[turn] = outcome.readings.empty();
      if (given_up[turn]) {
        note_missing(result, contender, outcome);
      } else {
        note_readings(result, contender, outcome);
      }
    }
  }
  result.pings_us.push_back(ping_us());
  return result;
}

}  // namespace strata::bench
