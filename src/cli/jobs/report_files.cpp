#include "cli/jobs/report_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "diag/report_text.hpp"

namespace strata::cli::jobs {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

/// Bytes of the character of XML at the beginning; 0 if there is none.
std::size_t xml_character(std::string_view bytes) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) {
    return first >= 0x20 || first == '\t' || first == '\n' || first == '\r' ? 1 : 0;
  }
  const std::size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || bytes.size() < size) return 0;
  std::uint32_t code = first & (0xffU >> (size + 1));
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0U) != 0x80U) return 0;
    code = code << 6U | (byte(i) & 0x3fU);
  }
  constexpr std::uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  const bool allowed =
      code >= kSmallest[size] && code <= 0x10ffff && !surrogate && code != 0xfffe && code != 0xffff;
  return allowed ? size : 0;
}

/// "Suite" and "Case", where a name tells both.
std::pair<std::string, std::string> class_and_name(const std::string& name) {
  const std::size_t colons = name.rfind("::");
  if (colons != std::string::npos) return {name.substr(0, colons), name.substr(colons + 2)};
  const std::size_t dot = name.rfind('.');
  const bool splits = dot != std::string::npos && dot > 0 && dot + 1 < name.size() &&
                      name.find(' ') == std::string::npos;
  if (!splits) return {"jobs", name};
  return {name.substr(0, dot), name.substr(dot + 1)};
}

std::string element(const char* name, const Attempt& attempt, const std::string& content) {
  return fmt::format("      <{} type=\"{}\" message=\"{}\">{}</{}>\n", name,
                     name_of(attempt.outcome), xml_text(attempt.reason), xml_text(content), name);
}

std::string attempt_elements(const JobResult& result) {
  const Attempt& last = result.attempts.back();
  std::string text;
  if (last.outcome == Outcome::skipped) {
    text += fmt::format("      <skipped message=\"{}\"/>\n", xml_text(last.reason));
  } else if (last.outcome == Outcome::failed) {
    text += element("failure", last, last.end.report);
  } else if (!is_good(last.outcome)) {
    text += element("error", last, last.end.report);
  }
  for (std::size_t i = 0; i + 1 < result.attempts.size(); ++i) {
    const Attempt& attempt = result.attempts[i];
    text += element(result.flaky() ? "flakyFailure" : "rerunFailure", attempt,
                    attempt.end.report + attempt.end.output);
  }
  if (!last.end.output.empty()) {
    text += "      <system-out>" + xml_text(last.end.output) + "</system-out>\n";
  }
  return text;
}

nlohmann::json to_json(const Attempt& attempt) {
  const JobEnd& end = attempt.end;
  const auto value_if = [&](os::ExitStatus::Kind kind) {
    return end.status.kind == kind ? nlohmann::json(end.status.value) : nlohmann::json();
  };
  nlohmann::json report;
  if (!end.report_json.empty()) report = nlohmann::json::parse(end.report_json);
  return {{"outcome", name_of(attempt.outcome)},
          {"reason", attempt.reason},
          {"exit_code", value_if(os::ExitStatus::Kind::exited)},
          {"signal", value_if(os::ExitStatus::Kind::signalled)},
          {"started_at_s", attempt.started_at},
          {"seconds", end.seconds},
          {"cpu_s", end.cpu_seconds},
          {"resident_kib", end.resident_kib},
          {"devices", attempt.devices},
          {"pid", end.pid},
          {"descendants", end.descendants},
          {"left_behind", end.left},
          {"not_ended", end.stuck},
          {"output", end.output},
          {"report", report}};
}

}  // namespace

std::string xml_text(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const std::size_t size = xml_character(bytes);
    const char first = bytes.front();
    if (size == 0) {
      text += kReplacement;
    } else if (first == '<') {
      text += "&lt;";
    } else if (first == '>') {
      text += "&gt;";
    } else if (first == '&') {
      text += "&amp;";
    } else if (first == '"') {
      text += "&quot;";
    } else if (first == '\r') {
      text += "&#13;";  // Or else a reader makes a line feed of it.
    } else {
      text += bytes.substr(0, size);
    }
    bytes.remove_prefix(std::max<std::size_t>(size, 1));
  }
  return text;
}

std::string junit_text(const std::vector<Job>& jobs, const SessionResult& result) {
  const std::size_t failures = result.count(Outcome::failed);
  const std::size_t errors =
      result.count(Outcome::hung) + result.count(Outcome::ended) + result.count(Outcome::not_run);
  const std::string counts =
      fmt::format("tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.3f}\"",
                  jobs.size(), failures, errors,
                  result.count(Outcome::skipped) + result.count(Outcome::disabled), result.seconds);
  std::string text = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {}>\n"
      "  <testsuite name=\"strata test\" timestamp=\"{}\" {}>\n",
      counts, result.began, counts);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const JobResult& of = result.jobs[i];
    const auto [class_name, name] = class_and_name(jobs[i].name);
    text += fmt::format("    <testcase classname=\"{}\" name=\"{}\" time=\"{:.3f}\">\n",
                        xml_text(class_name), xml_text(name), of.seconds());
    if (!of.attempts.empty()) {
      text += attempt_elements(of);
    } else {
      text += fmt::format("      <{} type=\"{}\" message=\"{}\"/>\n",
                          is_good(of.outcome) ? "skipped" : "error", name_of(of.outcome),
                          xml_text(of.reason));
    }
    text += "    </testcase>\n";
  }
  return text + "  </testsuite>\n</testsuites>\n";
}

std::string json_text(const std::vector<Job>& jobs, const SessionResult& result) {
  nlohmann::json list = nlohmann::json::array();
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const JobResult& of = result.jobs[i];
    nlohmann::json attempts = nlohmann::json::array();
    for (const Attempt& attempt : of.attempts)
      attempts.push_back(to_json(attempt));
    list.push_back({{"name", jobs[i].name},
                    {"command", jobs[i].command},
                    {"labels", jobs[i].labels},
                    {"outcome", name_of(of.outcome)},
                    {"reason", of.reason},
                    {"seconds", of.seconds()},
                    {"attempts", std::move(attempts)}});
  }
  nlohmann::json counts;
  for (const Outcome outcome : {Outcome::passed, Outcome::failed, Outcome::hung, Outcome::skipped,
                                Outcome::disabled, Outcome::not_run, Outcome::ended})
    counts[std::string(name_of(outcome))] = result.count(outcome);
  return diag::dump({{"began", result.began},
                     {"seconds", result.seconds},
                     {"exit_code", result.exit_code()},
                     {"signal", result.signal ? nlohmann::json(*result.signal) : nlohmann::json()},
                     {"timed_out", result.timed_out},
                     {"counts", std::move(counts)},
                     {"jobs", std::move(list)}});
}

}  // namespace strata::cli::jobs
