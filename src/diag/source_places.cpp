#include "diag/source_places.hpp"

#include <fmt/format.h>

#include <utility>

namespace strata::diag {

std::vector<SourcePlace> places_of(const trace::StackFrame& frame) {
  std::vector<SourcePlace> places;
  places.reserve(frame.inlined.size() + 1);
  // Each inlined function is called at a line of the next one.
  trace::SourceLine at{frame.file, frame.line};
  for (std::size_t i = 0; i < frame.inlined.size(); ++i) {
    places.push_back({frame.inlined[i], at.file, at.line});
    at = i < frame.called_at.size() ? frame.called_at[i] : trace::SourceLine{};
  }
  places.push_back({frame.function, std::move(at.file), at.line});
  return places;
}

std::string to_text(const SourcePlace& place) {
  // A C function's name as a call, so that it is seen to be a function.
  std::string text = place.function;
  if (text.find('(') == std::string::npos) text += "()";
  if (!place.file.empty()) text += fmt::format(" at {}:{}", place.file, place.line);
  return text;
}

}  // namespace strata::diag
