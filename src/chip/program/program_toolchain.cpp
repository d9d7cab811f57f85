#include "chip/program/program_toolchain.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <system_error>

#include "os/spawn.hpp"
#include "os/system_error.hpp"
#include "os/unique_fd.hpp"
#include "strata/chip_error.hpp"

namespace strata::chip {
namespace {

namespace fs = std::filesystem;

struct Given {
  std::string command;
  std::string by;
};

Given compiler_given(const std::string& option) {
  if (!option.empty()) return {option, "ChipBuildOptions::compiler or --compiler"};
  for (const char* const name : {"STRATA_CXX", "CXX"}) {
    const char* const value = std::getenv(name);
    if (value != nullptr && *value != '\0') {
      return {value, fmt::format("the environment variable {}", name)};
    }
  }
  return {"c++", "default"};
}

std::vector<std::string> words_of(const std::string& command) {
  if (!find_program(command).empty()) return {command};  // A path may have spaces in it.
  std::vector<std::string> words;
  std::istringstream stream(command);
  for (std::string word; stream >> word;)
    words.push_back(word);
  return words;
}

/// What a compiler prints when it is asked for one thing.
class Questions {
 public:
  Questions(const std::vector<std::string>& command, const ProgramCache& cache)
      : command_(command), work_(cache) {}
  std::string ask(const std::string& option) {
    std::vector<std::string> argv = command_;
    argv.push_back(option);
    const ToolResult result = run_tool(argv, work_.path(), "answer");
    if (!result.status.clean()) {
      throw ChipError(ErrorCode::compile_failed,
                      fmt::format("the compiler can't be used: `{}` {}\n{}", command_line(argv),
                                  result.status.to_string(), result.text));
    }
    return result.text;
  }
  /// The answer as the path of a file; empty if it is none.
  std::string ask_path(const std::string& option) {
    std::string text = ask(option);
    while (!text.empty() && text.back() == '\n')
      text.pop_back();
    std::error_code failed;
    if (text.find('/') == std::string::npos || !fs::exists(text, failed)) return "";
    return fs::canonical(text, failed).string();
  }

 private:
  const std::vector<std::string>& command_;
  WorkFolder work_;
};

/// Asks; the files that the answers depend on go to `paths`.
Toolchain ask_toolchain(const std::vector<std::string>& command, const ProgramCache& cache,
                        std::vector<std::string>& paths) {
  Questions questions(command, cache);
  Toolchain toolchain{.command = command};
  const std::string version = questions.ask("--version");
  toolchain.version = version.substr(0, version.find('\n'));
  const bool is_clang = version.find("clang") != std::string::npos;
  toolchain.family = is_clang ? Toolchain::Family::clang : Toolchain::Family::gcc;
  for (const char* const part : {"-print-prog-name=cc1plus", "-print-prog-name=clang"}) {
    if (std::string path = questions.ask_path(part); !path.empty()) paths.push_back(path);
  }
  toolchain.objcopy = questions.ask_path("-print-prog-name=objcopy");
  if (toolchain.objcopy.empty()) toolchain.objcopy = find_program("objcopy");
  const std::string machine = is_clang ? "-" + std::string(
#if defined(__aarch64__)
                                                   "aarch64"
#elif defined(__riscv)
                                                   "riscv64"
#else
                                                   "x86_64"
#endif
                                                   )
                                       : "";
  const std::string prefix = is_clang ? "libclang_rt." : "lib";
  toolchain.address_runtime =
      questions.ask_path(fmt::format("-print-file-name={}asan{}.so", prefix, machine));
  toolchain.thread_runtime =
      questions.ask_path(fmt::format("-print-file-name={}tsan{}.so", prefix, machine));
  return toolchain;
}

std::string to_text(const Toolchain& toolchain) {
  return nlohmann::json{{"clang", toolchain.family == Toolchain::Family::clang},
                        {"version", toolchain.version},
                        {"objcopy", toolchain.objcopy},
                        {"address_runtime", toolchain.address_runtime},
                        {"thread_runtime", toolchain.thread_runtime}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// `text` was verified by its hash, so it is what to_text() made.
Toolchain from_text(const std::string& text, std::vector<std::string> command) {
  const nlohmann::json json = nlohmann::json::parse(text);
  return {
      .command = std::move(command),
      .family = json.at("clang").get<bool>() ? Toolchain::Family::clang : Toolchain::Family::gcc,
      .version = json.at("version"),
      .objcopy = json.at("objcopy"),
      .address_runtime = json.at("address_runtime"),
      .thread_runtime = json.at("thread_runtime")};
}

/// What the compiler is, by the content of its files.
std::string identity_of(const CacheEntry& entry) {
  KeyText text;
  text.add(entry.result);
  for (const CacheDependency& dependency : entry.dependencies)
    text.add(dependency.digest.hex());
  return text.digest().hex();
}

}  // namespace

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    return ::access(name.c_str(), X_OK) == 0 ? fs::absolute(name).string() : "";
  }
  const char* const variable = std::getenv("PATH");
  std::string_view path = variable != nullptr ? variable : "/usr/local/bin:/usr/bin:/bin";
  for (;;) {
    const std::size_t end = path.find(':');
    const std::string_view folder = path.substr(0, end);
    std::string file = fmt::format("{}/{}", folder.empty() ? "." : folder, name);
    if (::access(file.c_str(), X_OK) == 0) return fs::absolute(file).string();
    if (end == std::string_view::npos) return "";
    path.remove_prefix(end + 1);
  }
}

Toolchain find_toolchain(const std::string& given, const ProgramCache& cache, FileTable& files) {
  const Given compiler = compiler_given(given);
  std::vector<std::string> command = words_of(compiler.command);
  std::string program = command.empty() ? "" : find_program(command.front());
  if (program.empty()) {
    throw ChipError(ErrorCode::compile_failed,
                    fmt::format("there is no C++ compiler '{}' (from: {}); install one (package "
                                "g++), or set STRATA_CXX",
                                compiler.command, compiler.by));
  }
  command.front() = program;

  KeyText key;
  key.add("toolchain 1").add_all(command);
  const char* const path = std::getenv("PATH");
  key.add(path == nullptr ? "" : path);  // Where it finds the other programs.
  const Digest digest = key.digest();
  if (const auto entry = cache.find(digest, files)) {
    if (const auto text = cache.object(entry->result)) {
      Toolchain toolchain = from_text(*text, std::move(command));
      toolchain.identity = identity_of(*entry);
      return toolchain;
    }
  }

  std::vector<std::string> paths = {program};
  Toolchain toolchain = ask_toolchain(command, cache, paths);
  CacheEntry entry;
  for (const std::string& file : paths) {
    if (const auto& content = files.content(file)) {
      entry.dependencies.push_back(
          {.path = file, .stamp = content->stamp, .digest = content->digest});
    }
  }
  const std::string text = to_text(toolchain);
  entry.result = digest_of(text).hex();
  cache.put_bytes(text, cache.object_path(entry.result));
  toolchain.identity = identity_of(entry);
  cache.remember(digest, std::move(entry));
  return toolchain;
}

ToolResult run_tool(const std::vector<std::string>& argv, const fs::path& work,
                    const std::string& name) {
  const fs::path output = work / (name + ".out");
  const os::UniqueFd file(
      ::open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600));
  if (!file) os::throw_errno("write " + output.string());
  const os::UniqueFd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!nothing) os::throw_errno("open /dev/null");
  // What a compiler that is killed leaves behind goes with the folder.
  std::vector<std::string> environment = os::current_environment();
  std::erase_if(environment, [](const std::string& each) { return each.starts_with("TMPDIR="); });
  environment.push_back("TMPDIR=" + work.string());
  os::ChildProcess child = os::spawn({.path = argv.front(),
                                      .argv = argv,
                                      .envp = std::move(environment),
                                      .descriptors = {{nothing.get(), STDIN_FILENO},
                                                      {file.get(), STDOUT_FILENO},
                                                      {file.get(), STDERR_FILENO}}});
  const auto status = child.wait(os::Deadline::never());
  ToolResult result{.status = status.value_or(os::ExitStatus{}), .text = ""};
  result.text = read_whole_file(output).value_or("");
  return result;
}

std::string command_line(const std::vector<std::string>& argv) {
  std::string line;
  for (const std::string& word : argv) {
    if (!line.empty()) line += ' ';
    const bool plain =
        !word.empty() && word.find_first_of(" \t\n\"'\\$`*?[]{}()<>|&;~#!") == std::string::npos;
    if (plain) {
      line += word;
      continue;
    }
    line += '\'';
    for (const char c : word)
      line += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += '\'';
  }
  return line;
}

}  // namespace strata::chip
