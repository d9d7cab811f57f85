// A TreeReport as text for people and as JSON for programs, with the same content.
//
// Thread safety: free functions; any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "diag/tree_report.hpp"

namespace strata::diag {

/// The verdict, a table of the processes, and one block for each. Ends with a line feed.
[[nodiscard]] std::string to_text(const TreeReport& report);
[[nodiscard]] nlohmann::json to_json(const TreeReport& report);
/// As text; whatever bytes names have, it is valid UTF-8.
[[nodiscard]] std::string dump(const nlohmann::json& json);

/// Whatever a terminal would take as a command becomes '?'; line feeds too.
[[nodiscard]] std::string printable(std::string text);

}  // namespace strata::diag
