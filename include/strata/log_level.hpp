// LogLevel: how much a line of a log matters.
#pragma once

#include <cstdint>

namespace strata {

enum class LogLevel : std::uint8_t { debug, info, warning, error, off };

}  // namespace strata
