#include "node/log_collector.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <utility>

#include "node/protocol.hpp"

namespace strata::node {

LineAssembler::LineAssembler(LineFn on_line) : on_line_(std::move(on_line)) {}

void LineAssembler::feed(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const std::size_t room = kLongestLine - partial_.size();
    if (end != std::string_view::npos && end <= room) {
      if (partial_.empty()) {
        line(bytes.substr(0, end));
      } else {
        partial_.append(bytes.substr(0, end));
        line(std::exchange(partial_, {}));
      }
      bytes.remove_prefix(end + 1);
      continue;
    }
    const std::size_t taken = std::min(bytes.size(), room);
    partial_.append(bytes.substr(0, taken));
    bytes.remove_prefix(taken);
    // A full one waits for what comes next: that may be its line break.
    if (partial_.size() == kLongestLine && !bytes.empty()) line(std::exchange(partial_, {}));
  }
}

void LineAssembler::end() {
  if (!partial_.empty()) line(std::exchange(partial_, {}));
}

void LineAssembler::line(std::string_view text) {
  on_line_(text);
  if (text.starts_with(kPrefixed)) text.remove_prefix(1);
  keep(text);
}

void LineAssembler::keep(std::string_view text) {
  ++lines_;
  cut_from_tail_ = text.size() > kTailBytes ? text.size() - kTailBytes : 0;
  text.remove_prefix(cut_from_tail_);
  tail_.emplace_back(text);
  tail_bytes_ += text.size();
  while (tail_.size() > kTailLines || tail_bytes_ > kTailBytes) {
    tail_bytes_ -= tail_.front().size();
    tail_.pop_front();
  }
}

std::vector<std::string> LineAssembler::tail() const {
  std::vector<std::string> lines;
  const std::uint64_t missing = lines_ - tail_.size();
  if (missing > 0) lines.push_back(fmt::format("({} lines before these are not kept)", missing));
  lines.insert(lines.end(), tail_.begin(), tail_.end());
  if (cut_from_tail_ > 0) {
    lines.back().insert(0, fmt::format("({} bytes before these are not kept)", cut_from_tail_));
  }
  return lines;
}

LogCollector::LogCollector(os::UniqueFd pipe, std::string path, LogSink& sink)
    : pipe_(std::move(pipe)),
      path_(std::move(path)),
      lines_([this, &sink](std::string_view line) { sink.worker_line(path_, line); }) {
  const int flags = ::fcntl(pipe_.get(), F_GETFL);
  (void)::fcntl(pipe_.get(), F_SETFL, flags | O_NONBLOCK);
}

bool LogCollector::read_some(std::size_t most) {
  std::array<char, 16 << 10> bytes;
  while (pipe_ && most > 0) {
    const ssize_t got = ::read(pipe_.get(), bytes.data(), std::min(most, bytes.size()));
    if (got > 0) {
      lines_.feed({bytes.data(), static_cast<std::size_t>(got)});
      most -= static_cast<std::size_t>(got);
    } else if (got < 0 && errno == EINTR) {
      continue;
    } else if (got < 0 && errno == EAGAIN) {
      return true;
    } else {
      lines_.end();
      pipe_.reset();
    }
  }
  return static_cast<bool>(pipe_);
}

void LogCollector::finish() {
  // As much as a pipe can hold; what others add meanwhile is not the ended process's.
  read_some(std::max(::fcntl(pipe_.get(), F_GETPIPE_SZ), 64 << 10));
  lines_.end();
  pipe_.reset();
}

}  // namespace strata::node
