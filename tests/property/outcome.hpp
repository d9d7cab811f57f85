// Outcome: what running a program one task after the other, in submission order, would give.
//
// Some of what happens is the engine's choice (which tasks of a cancelled run had been started,
// ...). There the outcome follows what was observed; everywhere else it says what must have been
// observed.
//
// Thread safety: plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model.hpp"

namespace strata::property {

enum class Status : std::uint8_t { ran, failed, skipped };

/// The bytes of one storage; `defined` tells which of them have a value that the model knows.
struct Image {
  std::vector<std::uint8_t> bytes;
  std::vector<bool> defined;
};

struct Outcome {
  std::vector<Status> status;  ///< Per node. Dropped tasks of a cancelled run are `skipped`.
  std::vector<bool> certain;   ///< Per node: the engine had no choice.
  std::vector<bool> throws;    ///< Per host node: a wait that must report invalid bytes.
  std::vector<std::vector<std::uint8_t>> seen;  ///< Per host read: the bytes; empty if not defined.
  std::vector<Bits> causes;           ///< Per skipped node: the failures that may be named.
  std::vector<Image> images;          ///< Per instance, at the end.
  std::vector<std::string> mistakes;  ///< Where the observed status is not the only possible one.
};

[[nodiscard]] Outcome serial_outcome(const Model& model, const std::vector<Status>& observed);

// What a body does with bytes; the same for the model and for the tasks that run.

/// Start of a body's hash: the scalars that it was given.
[[nodiscard]] std::uint64_t begin_hash(const std::uint64_t* scalars, std::size_t count) noexcept;
/// Adds one byte that was read.
[[nodiscard]] inline std::uint64_t add_byte(std::uint64_t hash, std::uint8_t byte) noexcept {
  hash = (hash ^ byte) * 0x100000001b3ULL;
  return hash ^ (hash >> 29);
}
/// The k-th byte that a body writes to its argument.
[[nodiscard]] inline std::uint8_t written_byte(std::uint64_t hash, int argument,
                                               std::uint64_t k) noexcept {
  std::uint64_t x = hash + static_cast<std::uint64_t>(argument) * 0x9e3779b97f4a7c15ULL +
                    k * 0xd1342543de82ef95ULL;
  x ^= x >> 31;
  return static_cast<std::uint8_t>((x * 0xbf58476d1ce4e5b9ULL) >> 56);
}
/// Initial value of every byte of a storage that is given one.
[[nodiscard]] inline std::uint8_t fill_byte(int storage) noexcept {
  return static_cast<std::uint8_t>(0x5a ^ storage);
}
/// Byte `at` of a user buffer when the program starts.
[[nodiscard]] inline std::uint8_t initial_byte(int buffer, std::int64_t at) noexcept {
  return static_cast<std::uint8_t>(at * 7 + buffer * 31 + 1);
}
/// Scalars of a node's body: what the runner submits.
[[nodiscard]] std::vector<std::uint64_t> scalars_of(const Node& node, int first, int member);

}  // namespace strata::property
