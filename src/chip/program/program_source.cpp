// ChipProgramSource::load: program.json. docs/reference/chip-programs.md has the whole form.
#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <system_error>

#include "chip/program/program_build.hpp"
#include "chip/program/program_json.hpp"
#include "strata/chip_error.hpp"

namespace strata {
namespace {

namespace fs = std::filesystem;
using chip::StrictObject;

/// A source that the file names, and which must be there.
fs::path source_at(const fs::path& folder, const std::string& text, const StrictObject& object,
                   std::string_view field) {
  fs::path path = (folder / text).lexically_normal();
  std::error_code failed;
  if (!fs::is_regular_file(path, failed)) {
    object.refuse(field, fmt::format("names a file that is not there: {}", path.string()));
  }
  return path;
}

/// Folders of headers: relative ones are relative to program.json, $VARIABLES come later.
std::vector<std::string> folders_at(const fs::path& folder, std::vector<std::string> texts) {
  for (std::string& text : texts) {
    if (text.front() != '/' && text.front() != '$') text = (folder / text).string();
  }
  return texts;
}

/// A source, a list of sources, or an object with these and a symbol.
void read_orchestration(const fs::path& folder, StrictObject& object, ChipProgramSource& source) {
  const auto& value = object.at("orchestration");
  if (value.is_string()) {
    source.orchestration = {
        source_at(folder, object.text("orchestration"), object, "orchestration")};
    return;
  }
  const auto read_list = [&](StrictObject& holder, const char* field) {
    for (const std::string& text : holder.texts(field))
      source.orchestration.push_back(source_at(folder, text, holder, field));
    if (source.orchestration.empty()) holder.refuse(field, "names no source");
  };
  if (value.is_array()) return read_list(object, "orchestration");
  if (!value.is_object()) {
    object.refuse("orchestration",
                  "must be a source, a list of sources, or an object with sources and symbol");
  }
  StrictObject inner = object.object("orchestration");
  (void)inner.at("sources");
  read_list(inner, "sources");
  source.orchestration_symbol = inner.text_or("symbol", "");
  inner.refuse_others();
}

KernelSource read_kernel(const fs::path& folder, StrictObject& object) {
  KernelSource kernel;
  kernel.name = object.text("name");
  kernel.source = source_at(folder, object.text("source"), object, "source");
  kernel.core = chip::core_from(object, "core");
  kernel.symbol = object.text_or("symbol", "");
  kernel.include_candidates = folders_at(folder, object.texts("include_candidates"));
  if (object.has("include_candidates") && kernel.include_candidates.empty()) {
    object.refuse("include_candidates", "is an empty list");
  }
  object.refuse_others();
  return kernel;
}

}  // namespace

ChipProgramSource ChipProgramSource::load(const fs::path& program_json) {
  const std::string file = program_json.string();
  std::error_code failed;
  std::ifstream stream(program_json, std::ios::binary);
  if (!stream || !fs::is_regular_file(program_json, failed)) {
    throw ChipError(ErrorCode::bad_program_file, fmt::format("{}: there is no such file", file));
  }
  const std::string text(std::istreambuf_iterator<char>(stream), {});
  const nlohmann::json json = chip::parse_strictly(text, file);
  const fs::path folder = fs::absolute(program_json).parent_path().lexically_normal();

  StrictObject object(json, file, "");
  ChipProgramSource source;
  source.name = object.text("name");
  read_orchestration(folder, object, source);
  if (object.has("signature")) source.signature = chip::signature_from(object.object("signature"));
  std::vector<StrictObject> kernels = object.objects("kernels");
  source.kernels.reserve(kernels.size());
  for (StrictObject& kernel : kernels)
    source.kernels.push_back(read_kernel(folder, kernel));
  source.include = folders_at(folder, object.texts("include"));
  source.standard = object.text_or("standard", source.standard);
  source.macros = object.texts("macros");
  source.flags = object.texts("flags");
  object.refuse_others();
  if (const std::string problem = chip::problem_of(source); !problem.empty()) {
    throw ChipError(ErrorCode::bad_program_file, fmt::format("{}: {}", file, problem));
  }
  return source;
}

}  // namespace strata
