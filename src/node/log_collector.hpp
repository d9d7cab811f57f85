// What one worker process writes to its stdout and stderr: bytes from a pipe become whole lines,
// which go to the LogSink, and the last of them are kept for the error that tells of its end.
//
// Thread safety: one thread at a time (the supervisor's).
//
// Invariants
//   (1) The lines are the bytes that were written, none lost: any bytes but line breaks may be in
//       them, zeros and broken UTF-8 too. What stands behind the last line break is a line as well
//       once the file has ended.
//   (2) A line of more than kLongestLine bytes is handed over in pieces of that many.
//   (3) tail() has the last kTailLines lines, fewer if those are more than kTailBytes; its first
//       line says how many are not there. Of a single line longer than kTailBytes it has the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "node/log_sink.hpp"
#include "os/unique_fd.hpp"

namespace strata::node {

inline constexpr std::size_t kTailLines = 200;
inline constexpr std::size_t kTailBytes = 64 << 10;
inline constexpr std::size_t kLongestLine = 1 << 20;

/// Makes lines of bytes, and remembers the last ones.
class LineAssembler {
 public:
  /// Called with each line, without its line break. The text is valid during the call only.
  using LineFn = std::function<void(std::string_view line)>;

  explicit LineAssembler(LineFn on_line);

  /// The bytes that come next.
  void feed(std::string_view bytes);
  /// No more will come: what has no line break yet is a line.
  void end();
  /// The last lines, oldest first, without the mark of those that came from below.
  [[nodiscard]] std::vector<std::string> tail() const;

 private:
  void line(std::string_view text);
  void keep(std::string_view text);

  LineFn on_line_;
  std::string partial_;  ///< Bytes since the last line break.
  std::deque<std::string> tail_;
  std::size_t tail_bytes_ = 0;
  std::uint64_t lines_ = 0;        ///< All lines so far.
  std::size_t cut_from_tail_ = 0;  ///< Bytes that are missing at the front of the last line kept.
};

/// Reads the log pipe of one worker process.
class LogCollector {
 public:
  /// `pipe` is the end to read from; it is made non-blocking. `sink` must outlive this.
  LogCollector(os::UniqueFd pipe, std::string path, LogSink& sink);
  LogCollector(const LogCollector&) = delete;
  LogCollector& operator=(const LogCollector&) = delete;

  /// To wait for: readable when read_some() has something to do. -1 once the file has ended.
  [[nodiscard]] int fd() const noexcept { return pipe_.get(); }
  /// Reads what is there, at most `most` bytes so that one loud process can't keep the caller from
  /// the others. False once the file has ended (nobody can write to it any more): fd() is closed.
  bool read_some(std::size_t most = 256 << 10);
  /// For a process that has ended: reads all that it left in the pipe, which others that it started
  /// may still hold, and ends the last line. Closes the pipe.
  void finish();
  [[nodiscard]] std::vector<std::string> tail() const { return lines_.tail(); }

 private:
  os::UniqueFd pipe_;
  std::string path_;
  LineAssembler lines_;
};

}  // namespace strata::node
