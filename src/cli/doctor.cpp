// `strata doctor`: what of this machine Strata needs, and what to do about what is not there.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.hpp"
#include "cli/doctor_checks.hpp"
#include "strata/version.hpp"

namespace strata::cli {
namespace {

std::string_view name_of(Health health) {
  switch (health) {
    case Health::ok:
      return "ok";
    case Health::warning:
      return "warning";
    case Health::missing:
      return "missing";
  }
  return "?";
}

/// The lines behind the first get their own place below it.
std::string indented(std::string text, std::size_t column) {
  for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 1 + column) {
    text.insert(at + 1, column, ' ');
  }
  return text;
}

std::string text_of(const std::vector<Finding>& findings) {
  std::size_t width = 0;
  for (const Finding& finding : findings)
    width = std::max(width, finding.subject.size());
  std::string text;
  for (const Finding& finding : findings) {
    text += fmt::format("{:<7}  {:<{}}  {}\n", name_of(finding.health), finding.subject, width,
                        indented(finding.found, 11 + width));
    if (!finding.advice.empty()) {
      text += fmt::format("{:{}}  -> {}\n", "", 9 + width, finding.advice);
    }
  }
  return text;
}

}  // namespace

int doctor(const DoctorOptions& options) {
  std::vector<Finding> findings;
  for (const auto check :
       {check_kernel, check_processes, check_limits, check_machine, check_programs}) {
    for (Finding& finding : check())
      findings.push_back(std::move(finding));
  }
  const auto count = [&](Health health) {
    return std::count_if(findings.begin(), findings.end(),
                         [&](const Finding& finding) { return finding.health == health; });
  };
  const auto missing = count(Health::missing);
  const auto warnings = count(Health::warning);

  if (options.json) {
    nlohmann::json json = {
        {"version", version()}, {"ok", missing == 0}, {"checks", nlohmann::json::array()}};
    for (const Finding& finding : findings) {
      json["checks"].push_back({{"subject", finding.subject},
                                {"status", name_of(finding.health)},
                                {"found", finding.found},
                                {"advice", finding.advice}});
    }
    std::fputs((json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n").c_str(),
               stdout);
  } else {
    std::fputs(text_of(findings).c_str(), stdout);
    std::string sum =
        fmt::format("\nStrata {} {} here", version(), missing == 0 ? "can run" : "can't run");
    if (missing + warnings > 0) sum += fmt::format(": {} missing, {} warnings", missing, warnings);
    std::fputs((sum + ".\n").c_str(), stdout);
  }
  return missing == 0 ? 0 : 1;
}

}  // namespace strata::cli
