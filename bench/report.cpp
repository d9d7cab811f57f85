#include "report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <thread>

#include "peers/timing.hpp"

namespace strata::bench {
namespace {

std::string_view name_of(Condition condition) noexcept {
  switch (condition) {
    case Condition::always:
      return "always";
    case Condition::near:
      return "near";
    case Condition::far:
      return "far";
  }
  return "";
}

/// Three significant digits, never an exponent.
std::string short_number(double value) {
  if (value >= 100) return fmt::format("{:.0f}", value);
  if (value >= 10) return fmt::format("{:.1f}", value);
  return fmt::format("{:.2f}", value);
}

/// "strata", "libomp", "first-tenth", "first-tenth@starpu": what is left without the series.
std::string short_name(const Figure& figure) {
  std::string_view rest = std::string_view(figure.name).substr(figure.series.size());
  if (rest.empty()) return "strata";
  rest.remove_prefix(1);
  return std::string(rest);
}

/// The Strata figure that a peer's figure is compared with, or null.
const Figure* strata_figure(const Figure& peer, const Results& results) {
  if (peer.contender.empty()) return nullptr;
  const Figure* ours = results.find(
      std::string_view(peer.name).substr(0, peer.name.size() - peer.contender.size() - 1));
  return ours != nullptr && ours->present() ? ours : nullptr;
}

/// Microseconds, if the figure is a time.
std::optional<double> in_us(double value, std::string_view unit) {
  if (unit == "ns/task" || unit == "ns") return value / 1000;
  if (unit == "us/task" || unit == "us") return value;
  return std::nullopt;
}

/// How many round trips of the raw ping a value is.
std::optional<double> in_pings(const Figure& figure, const SeriesResult& series, double value) {
  const std::optional<double> us = in_us(value, figure.unit);
  if (!us) return std::nullopt;
  return *us / median(series.pings_us);
}

std::string ping_text(const SeriesResult& series) {
  int near = 0, far = 0;
  for (std::size_t round = 0; round < series.rounds(); ++round) {
    near += series.selected(round, Condition::near) ? 1 : 0;
    far += series.selected(round, Condition::far) ? 1 : 0;
  }
  return fmt::format("raw ping {:.2f} us, of {} rounds {} near and {} far", median(series.pings_us),
                     series.rounds(), near, far);
}

void print_figure(const Figure& figure, const SeriesResult& series, const Results& results) {
  if (!figure.present()) {
    fmt::print("  {:<28} {:>9}   {}\n", short_name(figure), "n.a.", figure.missing);
    return;
  }
  const double value = results.value(figure).value_or(0);
  std::string compared;
  if (const Figure* ours = strata_figure(figure, results)) {
    compared = fmt::format("strata {} x", short_number(results.ratio(*ours, figure).value_or(0)));
  } else if (const auto pings = in_pings(figure, series, value);
             pings && figure.contender.empty()) {
    compared = fmt::format("{} pings", short_number(*pings));
  }
  fmt::print("  {:<28} {:>9} {:<8} min {:>8}   {:<16} {}\n", short_name(figure),
             short_number(value), figure.unit, short_number(figure.min), compared, figure.note);
}

void print_target(const Target& target, const Results& results) {
  const Judgement judgement = judge(target, results);
  std::string got = judgement.got ? fmt::format("got {:.3g}", *judgement.got) : judgement.why;
  if (target.to.ends_with("@best-inferring") && !judgement.compared_with.empty()) {
    got += " to " + judgement.compared_with.substr(judgement.compared_with.rfind('@') + 1);
  }
  fmt::print("  {:<6} {} {} ({}): {}  \"{}\"\n", name_of(judgement.verdict), target.figure,
             describe(target, results), name_of(target.when), got, target.says);
}

nlohmann::json figure_to_json(const Figure& figure, const SeriesResult& series,
                              const Results& results) {
  nlohmann::json json = {{"name", figure.name}, {"infers", figure.infers}};
  if (!figure.note.empty()) json["note"] = figure.note;
  if (!figure.present()) {
    json["missing"] = figure.missing;
    return json;
  }
  const double value = results.value(figure).value_or(0);
  json["unit"] = figure.unit;
  json["median"] = value;
  json["min"] = figure.min;
  for (const std::optional<double>& round : figure.by_round) {
    json["by_round"].push_back(round ? nlohmann::json(*round) : nlohmann::json());
  }
  if (const auto pings = in_pings(figure, series, value)) json["pings"] = *pings;
  if (const Figure* ours = strata_figure(figure, results)) {
    json["strata_ratio"] = results.ratio(*ours, figure).value_or(0);
  }
  return json;
}

nlohmann::json target_to_json(const Target& target, const Results& results) {
  const Judgement judgement = judge(target, results);
  nlohmann::json json = {
      {"figure", target.figure},
      {"when", name_of(target.when)},
      {"max", target.max},
      {"says", target.says},
      {"verdict", judgement.verdict == Verdict::missed ? "missed" : name_of(judgement.verdict)}};
  if (!target.to.empty()) json["to"] = target.to;
  if (judgement.got) json["got"] = *judgement.got;
  if (!judgement.compared_with.empty()) json["compared_with"] = judgement.compared_with;
  if (!judgement.why.empty()) json["why"] = judgement.why;
  return json;
}

}  // namespace

void print_series(const SeriesResult& series, const Results& results,
                  const std::vector<Target>& targets) {
  fmt::print("{}: {}; {}\n", series.name, series.says, ping_text(series));
  for (const Figure& figure : series.figures)
    print_figure(figure, series, results);
  for (const Target& target : targets) {
    if (results.series_of(target.figure) == &series) print_target(target, results);
  }
  fmt::print("\n");
  std::fflush(stdout);
}

int print_summary(const Results& results, const std::vector<Target>& targets) {
  int met = 0, missed = 0, not_applicable = 0;
  for (const Target& target : targets) {
    if (results.series_of(target.figure) == nullptr) continue;
    switch (judge(target, results).verdict) {
      case Verdict::met:
        ++met;
        break;
      case Verdict::missed:
        ++missed;
        break;
      case Verdict::not_applicable:
        ++not_applicable;
        break;
    }
  }
  fmt::print("targets: {} met, {} missed, {} n.a.\n", met, missed, not_applicable);
  for (const Target& target : targets) {
    if (results.series_of(target.figure) == nullptr) continue;
    if (judge(target, results).verdict == Verdict::missed) print_target(target, results);
  }
  return missed;
}

nlohmann::json to_json(const Results& results, const std::vector<Target>& targets) {
  nlohmann::json json = {{"cpus", std::thread::hardware_concurrency()},
                         {"series", nlohmann::json::array()},
                         {"targets", nlohmann::json::array()}};
  for (const SeriesResult& series : results.series()) {
    nlohmann::json figures = nlohmann::json::array();
    for (const Figure& figure : series.figures) {
      figures.push_back(figure_to_json(figure, series, results));
    }
    json["series"].push_back({{"name", series.name},
                              {"says", series.says},
                              {"pings_us", series.pings_us},
                              {"figures", figures}});
  }
  for (const Target& target : targets) {
    if (results.series_of(target.figure) != nullptr) {
      json["targets"].push_back(target_to_json(target, results));
    }
  }
  return json;
}

}  // namespace strata::bench
