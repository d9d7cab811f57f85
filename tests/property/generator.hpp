// Generator: random programs. The same seed gives the same program.
//
// A program is drawn in two steps: first a Profile, which says what this program is about (few use
// everything at once, most are about two or three things), then steps, many of them in small motifs
// that are likely to meet: readers behind a writer, tiles of a matrix, a chain, a loop of scopes.
//
// Thread safety: free functions.
#pragma once

#include <cstdint>
#include <optional>

#include "model.hpp"
#include "program.hpp"
#include "support/random.hpp"

namespace strata::property {

/// How often what occurs, in percent, and other choices of one program.
struct Profile {
  int steps = 40;
  int weak = 0;   ///< Arguments tracked creator_only or no_dep.
  int fault = 0;  ///< Tasks that throw.
  int group = 0;
  int exact = 0;  ///< Tasks on one exact lane.
  int after = 0;
  int host = 0;      ///< Acts of the host.
  int allocate = 0;  ///< Steps that open scopes or allocate.
  int manual = 0;    ///< Of the opened scopes.
  int replay = 0;
  int misuse = 0;
  int cancel = 0;
  int priority = 0;
  int no_body = 0;
  int delay = 20;
  int reuse = 35;  ///< Arguments that are the same view as one before.
  int motif = 10;
  int pause = 10;
  bool filled = false;  ///< All allocations have an initial value.
};

[[nodiscard]] Program generate(std::uint64_t seed);

/// The program, changed so that the bodies of two eligible nodes which the model calls independent
/// wait for each other, with all the room that they need; nothing if there is no such pair.
[[nodiscard]] std::optional<Program> with_meeting(const Program& program, const Model& model,
                                                  const std::vector<bool>& eligible,
                                                  test::Random& random);

// Parts of the generator.

/// Row-major layout of a storage.
struct Layout {
  DType dtype = DType::uint8;
  std::vector<std::int64_t> shape;
};
[[nodiscard]] Layout random_layout(test::Random& random, std::int64_t most_bytes);
/// A part of a view: sliced, stepped, transposed, reversed, with a dimension fixed.
[[nodiscard]] View random_part(test::Random& random, View view);
/// Any legal view of `bytes` bytes of a storage with this layout.
[[nodiscard]] View random_view(test::Random& random, int storage, const Layout& layout,
                               std::int64_t bytes);
/// The view at another place of a storage of `bytes` bytes, or nothing if it does not fit.
[[nodiscard]] std::optional<View> moved(test::Random& random, const View& view, int storage,
                                        std::int64_t bytes);

}  // namespace strata::property
