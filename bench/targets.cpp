#include "targets.hpp"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace strata::bench {
namespace {

Condition condition_of(const std::string& name) {
  if (name == "always") return Condition::always;
  if (name == "near") return Condition::near;
  if (name == "far") return Condition::far;
  throw std::runtime_error("'when' is '" + name + "', which is none of always, near, far");
}

/// An entry may name several figures; "@" at the beginning of "to" stands for a peer of each.
void append_entry(const nlohmann::json& entry, std::vector<Target>& targets) {
  for (const nlohmann::json& figure : entry.at("figures")) {
    Target target;
    target.figure = figure.get<std::string>();
    target.when = condition_of(entry.at("when").get<std::string>());
    target.says = entry.at("says").get<std::string>();
    const std::string compare = entry.at("compare").get<std::string>();
    if (compare == "ratio") {
      const std::string to = entry.at("to").get<std::string>();
      target.to = to.starts_with("@") ? target.figure + to : to;
    } else if (compare != "value") {
      throw std::runtime_error("'compare' is '" + compare + "', which is none of value, ratio");
    }
    target.max = entry.at("max").get<double>();
    targets.push_back(std::move(target));
  }
}

}  // namespace

std::string_view name_of(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::met:
      return "met";
    case Verdict::missed:
      return "MISSED";
    case Verdict::not_applicable:
      return "n.a.";
  }
  return "";
}

std::vector<Target> read_targets(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path + ": can't be read");
  std::vector<Target> targets;
  try {
    const nlohmann::json json = nlohmann::json::parse(file);
    for (const nlohmann::json& entry : json.at("targets"))
      append_entry(entry, targets);
  } catch (const std::exception& e) {
    throw std::runtime_error(path + ": " + e.what());
  }
  return targets;
}

Judgement judge(const Target& target, const Results& results) {
  Judgement judgement;
  if (results.series_of(target.figure) == nullptr) {
    judgement.why = "not measured";
    return judgement;
  }
  const Figure* figure = results.find(target.figure);
  if (figure == nullptr || !figure->present()) {
    judgement.verdict = Verdict::missed;
    judgement.why = figure == nullptr ? "no value" : figure->missing;
    return judgement;
  }
  if (target.to.empty()) {
    judgement.got = results.value(*figure, target.when);
  } else {
    const Figure* other = results.find(target.to);
    if (other == nullptr || !other->present()) {
      judgement.why = "nothing to compare with";
      return judgement;
    }
    judgement.compared_with = other->name;
    judgement.got = results.ratio(*figure, *other, target.when);
  }
  if (!judgement.got) {
    judgement.why = target.when == Condition::near ? "no round was near" : "no round was far";
    return judgement;
  }
  judgement.verdict = *judgement.got <= target.max ? Verdict::met : Verdict::missed;
  return judgement;
}

std::string describe(const Target& target, const Results& results) {
  const Figure* figure = results.find(target.figure);
  if (target.to.empty()) {
    return fmt::format("<= {:g} {}", target.max, figure == nullptr ? "" : figure->unit);
  }
  // A peer in the same series is named alone.
  std::string_view to = target.to;
  if (to.starts_with(target.figure + "@")) to.remove_prefix(target.figure.size() + 1);
  return fmt::format("<= {:.3g} x {}", target.max, to);
}

}  // namespace strata::bench
