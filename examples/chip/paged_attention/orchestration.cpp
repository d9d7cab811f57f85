// Attention of one query token per sequence over keys and values that lie in blocks of a cache, in
// any order: the block table of a sequence says where. The online softmax takes block after block.
//
//   query        [sequences, heads, size]
//   key_cache    [blocks, tokens per block, key heads, size]; value_cache likewise
//   block_table  [sequences, most blocks of a sequence]; context_lengths [sequences], in tokens
//   output       [sequences, heads, size]
//
// heads / key heads query heads share a key head; they are computed together. The last block of a
// sequence may be filled in part.
//
// The same graph in two ways: `automatic` says only what each task reads and writes, `manual` names
// every edge. A manual scope spares the search for dependencies; it is for code that knows them.
#include <algorithm>
#include <cmath>
#include <strata/chip.hpp>

using namespace strata;

namespace {

/// What one key head of one sequence works on.
struct Head {
  Tensor query;  ///< [heads that share the key head, size]
  Tensor output;
  std::int64_t sequence;
  std::int64_t key_head;
  std::int64_t context;  ///< In tokens.
};

/// Sums over the blocks so far, with the task that made room for them.
struct Totals {
  TaskId allocated;
  Tensor values, maxima, sums;
};

class Attention {
 public:
  explicit Attention(ChipOrchestration& chip)
      : chip_(chip),
        scores_(chip.aic("scores")),
        weighted_values_(chip.aic("weighted_values")),
        exponentials_(chip.aiv("exponentials")),
        merge_(chip.aiv("merge")),
        normalise_(chip.aiv("normalise")),
        scale_(1 / std::sqrt(static_cast<float>(chip.tensor(0).extent(2)))) {}

  void automatic(const Head& head) {
    const Scope scope = chip_.scope({.name = "head"});
    const Totals total = allocate_totals(head);
    for (std::int64_t block = 0; block * tokens() < head.context; ++block) {
      const Scope inner = chip_.scope({.name = "block"});  // What follows lives as long as this.
      Tensor weights(DType::float32, {heads(head), tokens_of(head, block)});
      Tensor maxima(DType::float32, {heads(head)});
      Tensor sums(DType::float32, {heads(head)});
      Tensor part(DType::float32, head.query.shape());
      chip_.submit(scores_, in(head.query), in(keys(head, block)), out(weights), scalar(scale_),
                   named("scores"));
      chip_.submit(exponentials_, inout(weights), out(maxima), out(sums), named("exponentials"));
      chip_.submit(weighted_values_, in(weights), in(values(head, block)), out(part),
                   named("weighted_values"));
      chip_.submit(merge_, in(part), in(maxima), in(sums), inout(total.values), inout(total.maxima),
                   inout(total.sums), named("merge"));
    }
    chip_.submit(normalise_, in(total.values), in(total.sums), out(head.output),
                 named("normalise"));
  }

  void manual(const Head& head) {
    const Scope scope = chip_.scope({.name = "head", .manual = true});
    const Totals total = allocate_totals(head);
    TaskId merged = total.allocated;
    for (std::int64_t block = 0; block * tokens() < head.context; ++block) {
      const Scope inner = chip_.scope({.name = "block", .manual = true});
      Tensor weights(DType::float32, {heads(head), tokens_of(head, block)});
      Tensor maxima(DType::float32, {heads(head)});
      Tensor sums(DType::float32, {heads(head)});
      Tensor part(DType::float32, head.query.shape());
      const TaskId scored = chip_.submit(scores_, in(head.query), in(keys(head, block)),
                                         out(weights), scalar(scale_), named("scores"));
      const TaskId weighted = chip_.submit(exponentials_, inout(weights), out(maxima), out(sums),
                                           after(scored), named("exponentials"));
      const TaskId summed = chip_.submit(weighted_values_, in(weights), in(values(head, block)),
                                         out(part), after(weighted), named("weighted_values"));
      merged = chip_.submit(merge_, in(part), in(maxima), in(sums), inout(total.values),
                            inout(total.maxima), inout(total.sums), after(summed), after(merged),
                            named("merge"));
    }
    chip_.submit(normalise_, in(total.values), in(total.sums), out(head.output), after(merged),
                 named("normalise"));
  }

 private:
  Totals allocate_totals(const Head& head) {
    static constexpr float kZero = 0;
    static constexpr float kLowest = -INFINITY;
    const std::vector<std::int64_t> shape(head.query.shape().begin(), head.query.shape().end());
    Allocation made = chip_.allocate({{DType::float32, shape, &kZero},
                                      {DType::float32, {heads(head)}, &kLowest},
                                      {DType::float32, {heads(head)}, &kZero}});
    return {made.task, made.tensors[0], made.tensors[1], made.tensors[2]};
  }
  static std::int64_t heads(const Head& head) { return head.query.extent(0); }
  [[nodiscard]] std::int64_t tokens() const { return chip_.tensor(1).extent(1); }
  [[nodiscard]] std::int64_t tokens_of(const Head& head, std::int64_t block) const {
    return std::min(tokens(), head.context - block * tokens());
  }
  /// [tokens, size]: a block of the cache as one key head sees it.
  [[nodiscard]] Tensor keys(const Head& head, std::int64_t block) const {
    return cached(chip_.tensor(1), head, block);
  }
  [[nodiscard]] Tensor values(const Head& head, std::int64_t block) const {
    return cached(chip_.tensor(2), head, block);
  }
  [[nodiscard]] Tensor cached(const Tensor& cache, const Head& head, std::int64_t block) const {
    const auto place = chip_.read<std::int32_t>(chip_.tensor(3), {head.sequence, block});
    return cache.select(0, place).select(1, head.key_head).slice(0, 0, tokens_of(head, block));
  }

  ChipOrchestration& chip_;
  Launch scores_, weighted_values_, exponentials_, merge_, normalise_;
  float scale_;
};

}  // namespace

STRATA_CHIP_ORCHESTRATION(paged_attention) {
  const Tensor& query = chip.tensor(0);
  const Tensor& output = chip.tensor(5);
  const bool manual = chip.scalar<std::int64_t>(0) != 0;
  const std::int64_t key_heads = chip.tensor(1).extent(2);
  if (key_heads < 1 || query.extent(1) % key_heads != 0) {
    chip.fail(1, "the number of heads is no multiple of the number of key heads");
  }
  const std::int64_t shared = query.extent(1) / key_heads;

  Attention attention(chip);
  for (std::int64_t sequence = 0; sequence < query.extent(0); ++sequence) {
    // The lengths were there before the run: reading one waits for nothing.
    const auto context = chip.read<std::int32_t>(chip.tensor(4), {sequence});
    if (context < 1) chip.fail(2, "a sequence has no tokens to attend to");
    for (std::int64_t key_head = 0; key_head < key_heads; ++key_head) {
      const std::int64_t begin = key_head * shared;
      const Head head{query.select(0, sequence).slice(0, begin, begin + shared),
                      output.select(0, sequence).slice(0, begin, begin + shared), sequence,
                      key_head, context};
      if (manual) {
        attention.manual(head);
      } else {
        attention.automatic(head);
      }
    }
  }
}
