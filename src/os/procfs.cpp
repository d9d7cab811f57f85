#include "os/procfs.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <iterator>
#include <memory>
#include <string_view>
#include <unordered_map>

#include "os/unique_fd.hpp"

namespace strata::os {
namespace {

std::string path_of(pid_t pid, std::string_view file) {
  return "/proc/" + std::to_string(pid) + "/" + std::string(file);
}

template <class Number>
std::optional<Number> number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

std::vector<std::string_view> words(std::string_view text) {
  constexpr std::string_view kBlank = " \t\n";
  std::vector<std::string_view> result;
  for (std::size_t begin = text.find_first_not_of(kBlank); begin != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(kBlank, begin), text.size());
    result.push_back(text.substr(begin, end - begin));
    begin = text.find_first_not_of(kBlank, end);
  }
  return result;
}

/// Calls `visit` with each entry of a directory that is a number. False if there is no directory.
template <class Visit>
bool for_each_number(const std::string& path, Visit visit) {
  const auto close = [](DIR* directory) { ::closedir(directory); };
  const std::unique_ptr<DIR, decltype(close)> directory(::opendir(path.c_str()), close);
  if (directory == nullptr) return false;
  while (const dirent* entry = ::readdir(directory.get())) {
    if (const auto value = number<int>(entry->d_name)) visit(*value, ::dirfd(directory.get()));
  }
  return true;
}

std::optional<ProcessInfo> parse_stat(std::string_view text) {
  // "pid (comm) state ppid pgrp ...": comm may hold blanks and parentheses, so the last one counts.
  const std::size_t open = text.find('(');
  const std::size_t close = text.rfind(')');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) {
    return std::nullopt;
  }
  const auto fields = words(text.substr(close + 1));
  // proc(5) counts fields from 1, and the first one here, the state, is its third.
  const auto field = [&](std::size_t n) { return fields[n - 3]; };
  constexpr std::size_t kLast = 22;
  constexpr std::size_t kExitCode = 52;
  if (fields.size() < kLast - 2) return std::nullopt;
  const auto count = [&](std::size_t n) { return number<std::uint64_t>(field(n)).value_or(0); };
  return ProcessInfo{
      .pid = number<pid_t>(text.substr(0, open)).value_or(0),
      .ppid = number<pid_t>(field(4)).value_or(0),
      .pgid = number<pid_t>(field(5)).value_or(0),
      .state = field(3).front(),
      .start_time = count(22),
      .cpu_ticks = count(14) + count(15),
      .comm = std::string(text.substr(open + 1, close - open - 1)),
      .threads = number<int>(field(20)).value_or(0),
      .exit_status = kExitCode - 2 <= fields.size() ? number<int>(field(kExitCode)).value_or(0) : 0,
  };
}

/// Sum of the lines "NAME:   123 kB" whose name is among `names`, in bytes.
std::size_t sum_of_lines(std::string_view text, std::initializer_list<std::string_view> names) {
  std::size_t sum = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const auto fields = words(line);
    if (fields.size() < 2 || std::ranges::find(names, fields[0]) == names.end()) continue;
    sum += number<std::size_t>(fields[1]).value_or(0) * 1024;
  }
  return sum;
}

}  // namespace

std::optional<std::string> read_small_file(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return std::nullopt;
  std::string text;
  std::array<char, 4096> part;
  for (;;) {
    const auto size = ::read(fd.get(), part.data(), part.size());
    if (size > 0) {
      text.append(part.data(), static_cast<std::size_t>(size));
    } else if (size == 0) {
      return text;
    } else if (errno != EINTR) {
      return std::nullopt;
    }
  }
}

std::optional<ProcessInfo> parse_process(const std::string& text) { return parse_stat(text); }

std::optional<ProcessInfo> read_process(pid_t pid) {
  const auto text = read_small_file(path_of(pid, "stat"));
  return text ? parse_stat(*text) : std::nullopt;
}

std::vector<ProcessInfo> all_processes() {
  std::vector<ProcessInfo> result;
  for_each_number("/proc", [&](int pid, int) {
    if (auto info = read_process(pid)) result.push_back(std::move(*info));
  });
  return result;
}

std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> result;
  for (const ProcessInfo& info : all_processes()) {
    if (info.ppid == pid) result.push_back(info.pid);
  }
  return result;
}

std::vector<pid_t> descendants_of(pid_t pid) {
  std::unordered_multimap<pid_t, pid_t> children;
  for (const ProcessInfo& info : all_processes())
    children.emplace(info.ppid, info.pid);
  std::vector<pid_t> result;
  const auto add_children = [&](pid_t parent) {
    const auto [begin, end] = children.equal_range(parent);
    for (auto it = begin; it != end; ++it)
      result.push_back(it->second);
    children.erase(begin, end);  // So that what changed while we read can't make a circle.
  };
  add_children(pid);
  for (std::size_t i = 0; i < result.size(); ++i)
    add_children(result[i]);
  return result;
}

std::vector<std::string> command_line(pid_t pid) {
  std::vector<std::string> result;
  const auto text = read_small_file(path_of(pid, "cmdline"));
  if (!text) return result;
  for (std::size_t begin = 0; begin < text->size();) {
    const std::size_t end = std::min(text->find('\0', begin), text->size());
    result.push_back(text->substr(begin, end - begin));
    begin = end + 1;
  }
  return result;
}

std::string wait_channel(pid_t pid) {
  if (const auto text = read_small_file(path_of(pid, "wchan"));
      text && !text->empty() && *text != "0") {
    return *text;
  }
  // Kernels that hide the former may show the system call: "202 0x7f... ...", or "running".
  const auto text = read_small_file(path_of(pid, "syscall"));
  if (!text) return {};
  const auto fields = words(*text);
  if (fields.empty() || !number<int>(fields[0])) return {};
  return number<int>(fields[0]) < 0 ? "" : "system call " + std::string(fields[0]);
}

pid_t own_number_of(pid_t pid) {
  const auto status = read_small_file(path_of(pid, "status"));
  if (!status) return 0;
  constexpr std::string_view kLine = "\nNSpid:";
  const std::size_t begin = status->find(kLine);
  if (begin == std::string::npos) return 0;
  const auto numbers = words(std::string_view(*status).substr(
      begin + kLine.size(), status->find('\n', begin + 1) - begin - kLine.size()));
  return numbers.empty() ? 0 : number<pid_t>(numbers.back()).value_or(0);
}

std::vector<OpenDescriptor> open_descriptors(pid_t pid) {
  std::vector<OpenDescriptor> result;
  for_each_number(path_of(pid, "fd"), [&](int fd, int directory) {
    std::array<char, 4096> target;  // PATH_MAX, which is all the kernel shows.
    const auto size =
        ::readlinkat(directory, std::to_string(fd).c_str(), target.data(), target.size());
    if (size >= 0) {
      result.push_back({fd, std::string(target.data(), static_cast<std::size_t>(size))});
    }
  });
  std::ranges::sort(result, {}, &OpenDescriptor::fd);
  return result;
}

std::size_t count_own_descriptors() {
  std::size_t count = 0;
  const bool there =
      for_each_number("/proc/self/fd", [&](int fd, int own) { count += fd == own ? 0 : 1; });
  return there ? count : 0;
}

std::optional<ProcessMemory> memory_of(pid_t pid) {
  const auto text = read_small_file(path_of(pid, "smaps_rollup"));
  if (!text || text->empty()) return std::nullopt;
  return ProcessMemory{
      .resident = sum_of_lines(*text, {"Rss:"}),
      .private_resident = sum_of_lines(*text, {"Private_Clean:", "Private_Dirty:"})};
}

}  // namespace strata::os
