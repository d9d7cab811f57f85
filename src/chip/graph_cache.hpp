// GraphCache: the recordings of one chip program on one engine, by what they hold for.
//
// A recording holds for a function, its construction parameters, the shapes of its tensors and how
// those overlap: that is the key. It may also hold for certain values only: of the scalars that
// were looked at while it was recorded. So there may be several for one key. What a function looks
// at depends on nothing but the key and what it has looked at before, so the first recording whose
// values all agree is the right one.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "strata/recording.hpp"

namespace strata::chip {

/// One scalar that was looked at while recording.
struct ReadScalar {
  std::uint32_t index = 0;
  std::uint64_t bits = 0;
};

struct RecordedGraph {
  Recording recording = {};
  std::vector<ReadScalar> read = {};      ///< Of the graph's own scalars.
  std::vector<ReadScalar> run_read = {};  ///< Of the scalars of the run around it.
  /// The one run that it holds for, since it uses tensors of the run; 0: it holds for all.
  std::uint64_t only_run = 0;
  std::vector<std::string> log = {};  ///< Lines that the function logs, at each replay.
  bool recordable = true;             ///< Otherwise it was found out that this can't be recorded.
};

/// What the caller of a graph has now.
struct GraphCall {
  std::uint64_t run = 0;
  const std::vector<std::uint64_t>* scalars = nullptr;
  const std::vector<std::uint64_t>* run_scalars = nullptr;
};

/// Appends the bytes of a value to a key.
template <class T>
requires(std::is_arithmetic_v<T> || std::is_enum_v<T> ||
         std::is_pointer_v<T>) void append_key(std::string& key, const T& value) {
  key.append(reinterpret_cast<const char*>(&value), sizeof(value));
}
/// Appends the tensors' types, shapes and strides, and which of them overlap and how.
void append_tensors(std::string& key, std::span<const Tensor> tensors);

class GraphCache {
 public:
  /// Beyond these the one that was used least recently goes.
  static constexpr std::size_t kMaxRecordings = 64;

  /// Null if there is none. Valid until the next add().
  [[nodiscard]] const RecordedGraph* find(const std::string& key, const GraphCall& call);
  const RecordedGraph& add(const std::string& key, RecordedGraph graph);
  [[nodiscard]] std::size_t size() const noexcept { return by_use_.size(); }

 private:
  struct Entry {
    const std::string* key = nullptr;  ///< That of by_key_.
    RecordedGraph graph = {};
  };
  using Entries = std::list<Entry>;
  void drop_last();

  Entries by_use_ = {};  ///< The one used last comes first.
  std::unordered_map<std::string, std::vector<Entries::iterator>> by_key_ = {};
};

}  // namespace strata::chip
