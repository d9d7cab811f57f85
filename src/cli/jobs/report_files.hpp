// Results as files: JUnit's XML, which CI systems show, and JSON, which has all of it.
//
// Thread safety: free functions; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/jobs/job.hpp"
#include "cli/jobs/result.hpp"

namespace strata::cli::jobs {

[[nodiscard]] std::string junit_text(const std::vector<Job>& jobs, const SessionResult& result);
[[nodiscard]] std::string json_text(const std::vector<Job>& jobs, const SessionResult& result);

/// Whatever bytes it has, it is text that may stand between XML's tags and quotes: what is not
/// allowed there becomes U+FFFD.
[[nodiscard]] std::string xml_text(std::string_view bytes);

}  // namespace strata::cli::jobs
