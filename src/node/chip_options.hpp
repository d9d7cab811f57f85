// How chips are run: options from several places made into one, checked, and sent.
//
// Thread safety: plain values and pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "strata/chip_run_options.hpp"
#include "strata/worker.hpp"

namespace strata::node {

/// What `first` does not say is taken from `second`.
[[nodiscard]] ChipRunOptions merged(const ChipRunOptions& first, const ChipRunOptions& second);

/// Throws ChipError (bad_configuration), beginning with `of`, for options that make no sense.
void check_run_options(const ChipRunOptions& options, const std::string& of);

[[nodiscard]] nlohmann::json to_json(const ChipRunOptions& options);
/// Throws InvalidArgument for what is not of the form that to_json makes.
[[nodiscard]] ChipRunOptions run_options_from(const nlohmann::json& json);

}  // namespace strata::node
