// Where jobs come from: what ctest, a GoogleTest program, pytest or a file lists, as jobs. Each has
// a function that reads the listing, which touches nothing, and one that asks for it.
//
// Thread safety: as capture().
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/jobs/job.hpp"

namespace strata::cli::jobs {

/// From `ctest --show-only=json-v1`. Throws InvalidArgument for what is no such listing.
[[nodiscard]] std::vector<Job> jobs_from_ctest(const std::string& listing);
/// Of a build directory.
[[nodiscard]] std::vector<Job> ctest_jobs(const std::string& directory);

enum class GtestBy : std::uint8_t { test, suite };
/// From `PROGRAM --gtest_list_tests`.
[[nodiscard]] std::vector<Job> jobs_from_gtest(const std::string& program, std::string_view listing,
                                               GtestBy by);
[[nodiscard]] std::vector<Job> gtest_jobs(const std::string& program, GtestBy by);

/// JSON, or a JSON value a line. A job is a command for the shell, or an object
/// (docs/how-to/run-tests.md).
[[nodiscard]] std::vector<Job> jobs_from_file_text(const std::string& text);
[[nodiscard]] std::vector<Job> file_jobs(const std::string& path);

}  // namespace strata::cli::jobs
