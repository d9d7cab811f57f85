#include "chip/program/program_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>

#include "chip/program/elf_image.hpp"
#include "chip/program/program_build.hpp"
#include "chip/program/program_interface.hpp"
#include "chip/program/program_json.hpp"
#include "os/unique_fd.hpp"
#include "strata/chip_error.hpp"
#include "strata/version.hpp"

namespace strata::chip {
namespace {

constexpr std::string_view kSection = ".strata.program";
constexpr std::string_view kMagic("STRATAP\1", 8);
constexpr std::int64_t kMaxFileBytes = std::int64_t{4} << 30;
constexpr std::size_t kHashOffset = offsetof(ProgramHeader, hash_high);
constexpr std::size_t kHashBytes = sizeof(ProgramHeader) - kHashOffset;

/// Where the section lies in a file, if there is one with a header.
std::optional<std::size_t> find_section(const ElfImage& image, std::string_view& section) {
  const auto found = image.find(kSection);
  if (!found) return std::nullopt;
  const auto content = image.content(*found);
  if (!content || content->size() < sizeof(ProgramHeader)) return std::nullopt;
  section = *content;
  return found->sh_offset;
}

Digest digest_around(std::string_view file, std::size_t hash_at) {
  return KeyText()
      .add(digest_of(file.substr(0, hash_at)).hex())
      .add(digest_of(file.substr(hash_at + kHashBytes)).hex())
      .digest();
}

[[noreturn]] void refuse(ErrorCode code, const std::string& name, std::string_view why) {
  throw ChipError(code, fmt::format("{}: {}", name, why));
}

[[noreturn]] void refuse_image(const ElfImage& image, const std::string& name) {
  switch (image.problem()) {
    case ElfImage::Problem::not_elf:
      refuse(ErrorCode::bad_program_file, name,
             "it is not a chip program, but another kind of file; `strata build program.json` "
             "makes one and prints its name");
    case ElfImage::Problem::foreign_format:
      refuse(
          ErrorCode::foreign_program, name,
          fmt::format("it was built for a machine of another kind, this one is {}; build it here",
                      machine_name()));
    case ElfImage::Problem::foreign_machine:
      refuse(ErrorCode::foreign_program, name,
             fmt::format("it was built for another machine (number {} in elf.h), this one is {}; "
                         "build it here",
                         image.machine(), machine_name()));
    case ElfImage::Problem::cut_off:
    case ElfImage::Problem::none:
      break;
  }
  refuse(ErrorCode::bad_program_file, name, "its end is missing; copy or build it again");
}

ProgramSanitizer sanitizer_from(StrictObject& object) {
  const std::string text = object.text("sanitizer");
  for (const auto kind :
       {ProgramSanitizer::none, ProgramSanitizer::address, ProgramSanitizer::thread}) {
    if (text == name_of(kind)) return kind;
  }
  object.refuse("sanitizer", fmt::format("is '{}', which is unknown", text));
}

ChipProgramInfo info_from(std::string_view json_text, const std::string& name) {
  const nlohmann::json json = parse_strictly(json_text, name);
  StrictObject object(json, name, "");
  const std::string interface = object.text("interface");
  const std::string version = object.text("strata");
  if (interface != interface_version()) {
    refuse(ErrorCode::stale_program, name,
           fmt::format("it was built with Strata {} (interface {}), this is Strata {} (interface "
                       "{}); build it again",
                       version, interface.substr(0, 8), strata::version(),
                       interface_version().substr(0, 8)));
  }
  ChipProgramInfo info;
  info.machine = object.text("machine");
  if (info.machine != machine_name()) {
    refuse(ErrorCode::foreign_program, name,
           fmt::format("it was built for a machine '{}', this one is '{}'; build it here",
                       info.machine, machine_name()));
  }
  info.name = object.text("name");
  info.signature = signature_from(object.object("signature"));
  for (StrictObject& kernel : object.objects("kernels")) {
    info.kernels.push_back({.name = kernel.text("name"),
                            .core = core_from(kernel, "core"),
                            .symbol = kernel.text("symbol"),
                            .source = kernel.text("source")});
    kernel.refuse_others();
  }
  info.orchestration_symbol = object.text("orchestration");
  info.build_id = object.text("build_id");
  info.compiler = object.text("compiler");
  info.sanitizer = sanitizer_from(object);
  info.sanitizer_runtime = object.text_or("sanitizer_runtime", "");
  info.check = object.boolean("check");
  info.unseen = object.texts("unseen");
  object.refuse_others();
  if (!is_program_name(info.name) || !Digest::from_hex(info.build_id)) {
    refuse(ErrorCode::bad_program_file, name, "its name or build id is none that Strata gives");
  }
  return info;
}

}  // namespace

std::string_view machine_name() noexcept {
#if defined(__x86_64__)
  return "x86_64";
#elif defined(__aarch64__)
  return "aarch64";
#else
  return "riscv64";
#endif
}

std::string program_section(const ChipProgramInfo& info) {
  nlohmann::json kernels = nlohmann::json::array();
  for (const auto& kernel : info.kernels) {
    kernels.push_back({{"name", kernel.name},
                       {"core", name_of(kernel.core)},
                       {"symbol", kernel.symbol},
                       {"source", kernel.source}});
  }
  nlohmann::json json = {{"interface", interface_version()},
                         {"strata", strata::version()},
                         {"machine", info.machine},
                         {"name", info.name},
                         {"signature", to_json(info.signature)},
                         {"kernels", std::move(kernels)},
                         {"orchestration", info.orchestration_symbol},
                         {"build_id", info.build_id},
                         {"compiler", info.compiler},
                         {"sanitizer", name_of(info.sanitizer)},
                         {"check", info.check},
                         {"unseen", info.unseen}};
  if (!info.sanitizer_runtime.empty()) json["sanitizer_runtime"] = info.sanitizer_runtime;
  // Paths need not be UTF-8; those in here are for messages.
  const std::string text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  ProgramHeader header = {};
  std::copy(kMagic.begin(), kMagic.end(), header.magic);
  header.json_bytes = text.size();
  std::string section(sizeof(header), '\0');
  std::memcpy(section.data(), &header, sizeof(header));
  return section + text;
}

bool seal_program(std::span<char> file) {
  const std::string_view bytes(file.data(), file.size());
  const ElfImage image(bytes);
  if (image.problem() != ElfImage::Problem::none) return false;
  std::string_view section;
  const auto at = find_section(image, section);
  if (!at) return false;
  ProgramHeader header;
  std::memcpy(&header, section.data(), sizeof(header));
  header.file_bytes = file.size();
  std::memcpy(file.data() + *at, &header, sizeof(header));
  const Digest digest = digest_around(bytes, *at + kHashOffset);
  header.hash_high = digest.high;
  header.hash_low = digest.low;
  std::memcpy(file.data() + *at, &header, sizeof(header));
  return true;
}

Digest sealed_digest(std::string_view file) {
  std::string_view section;
  if (!find_section(ElfImage(file), section)) return {};
  ProgramHeader header;
  std::memcpy(&header, section.data(), sizeof(header));
  return {.high = header.hash_high, .low = header.hash_low};
}

ChipProgramInfo parse_program(std::string_view file, const std::string& name) {
  const ElfImage image(file);
  if (image.problem() != ElfImage::Problem::none) refuse_image(image, name);
  std::string_view section;
  const auto at = find_section(image, section);
  if (!at) {
    refuse(ErrorCode::foreign_program, name,
           fmt::format("it has no section {}: Strata did not build it", kSection));
  }
  ProgramHeader header;
  std::memcpy(&header, section.data(), sizeof(header));
  if (std::string_view(header.magic, sizeof(header.magic)) != kMagic) {
    refuse(ErrorCode::foreign_program, name,
           fmt::format("its section {} is not of this form: another Strata built it", kSection));
  }
  if (header.file_bytes != file.size()) {
    refuse(
        ErrorCode::bad_program_file, name,
        fmt::format("it has {} bytes and was built with {}: it was cut off or stripped; build it "
                    "again",
                    file.size(), header.file_bytes));
  }
  if (digest_around(file, *at + kHashOffset) !=
      Digest{.high = header.hash_high, .low = header.hash_low}) {
    refuse(ErrorCode::bad_program_file, name,
           "it is damaged: its content is not what was built; build it again");
  }
  if (header.json_bytes != section.size() - sizeof(header)) {
    refuse(ErrorCode::bad_program_file, name, "its description has another size than it says");
  }
  return info_from(section.substr(sizeof(header)), name);
}

std::string read_program_file(const std::filesystem::path& path) {
  const std::string name = path.string();
  const auto refuse_errno = [&](std::string_view what) {
    refuse(ErrorCode::bad_program_file, name, fmt::format("{}: {}", what, std::strerror(errno)));
  };
  // Non-blocking: the name may be that of a pipe.
  const os::UniqueFd file(::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) refuse_errno("it can't be opened");
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) refuse_errno("it can't be read");
  if (!S_ISREG(status.st_mode)) refuse(ErrorCode::bad_program_file, name, "it is not a file");
  if (status.st_size > kMaxFileBytes) {
    refuse(ErrorCode::bad_program_file, name, "it is too large to be a chip program");
  }
  std::string bytes(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = ::read(file.get(), bytes.data() + done, bytes.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse_errno("it can't be read");
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  bytes.resize(done);
  return bytes;
}

std::string cached_name(const ChipProgramInfo& info) {
  return fmt::format("{}-{}.strata", info.name, info.build_id);
}

ObjectSymbols symbols_of(std::string_view object) {
  const ElfImage image(object);
  if (image.problem() != ElfImage::Problem::none) {
    throw Error("the compiler's result is not an object file of this machine");
  }
  ObjectSymbols symbols;
  for (std::size_t i = 0; i < image.section_count(); ++i) {
    const Elf64_Shdr section = image.section(i);
    if (section.sh_type != SHT_SYMTAB || section.sh_link >= image.section_count()) continue;
    const auto table = image.content(section);
    const auto names = image.content(image.section(section.sh_link));
    if (!table || !names) throw Error("the compiler's object file is cut off");
    for (std::size_t at = 0; at + sizeof(Elf64_Sym) <= table->size(); at += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol;
      std::memcpy(&symbol, table->data() + at, sizeof(symbol));
      const std::string_view name = ElfImage::text_at(*names, symbol.st_name);
      if (name.empty() || ELF64_ST_BIND(symbol.st_info) == STB_LOCAL) continue;
      if (symbol.st_shndx == SHN_UNDEF) {
        symbols.undefined.emplace_back(name);
      } else if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC) {
        symbols.functions.emplace_back(name);
      }
    }
  }
  return symbols;
}

}  // namespace strata::chip

namespace strata {

ChipProgramInfo ChipProgramInfo::read(const std::filesystem::path& file) {
  return chip::parse_program(chip::read_program_file(file), file.string());
}

}  // namespace strata
