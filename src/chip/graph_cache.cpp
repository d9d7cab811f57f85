#include "chip/graph_cache.hpp"

#include <algorithm>

#include "graph/region.hpp"

namespace strata::chip {

namespace {

bool agree(const std::vector<ReadScalar>& read, const std::vector<std::uint64_t>* now) {
  return std::all_of(read.begin(), read.end(), [&](const ReadScalar& scalar) {
    return now != nullptr && scalar.index < now->size() && (*now)[scalar.index] == scalar.bits;
  });
}

bool holds_for(const RecordedGraph& graph, const GraphCall& call) {
  return (graph.only_run == 0 || graph.only_run == call.run) && agree(graph.read, call.scalars) &&
         agree(graph.run_read, call.run_scalars);
}

bool share_bytes(const Tensor& a, const Tensor& b) {
  if (!a.has_storage() || a.buffer() != b.buffer()) return false;
  if (graph::reach_of(a).overflow || graph::reach_of(b).overflow) return true;
  return graph::overlap(graph::region_of(a), graph::region_of(b)).overlap != graph::Overlap::none;
}

}  // namespace

void append_tensors(std::string& key, std::span<const Tensor> tensors) {
  append_key(key, static_cast<std::uint32_t>(tensors.size()));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i];
    append_key(key, tensor.dtype());
    append_key(key, static_cast<std::uint8_t>(tensor.rank()));
    key.append(reinterpret_cast<const char*>(tensor.shape().data()), tensor.shape().size_bytes());
    key.append(reinterpret_cast<const char*>(tensor.strides().data()),
               tensor.strides().size_bytes());
    for (std::size_t k = 0; k < i; ++k) {
      if (!share_bytes(tensors[k], tensor)) continue;
      append_key(key, static_cast<std::uint32_t>(k));
      append_key(key, tensor.byte_offset() - tensors[k].byte_offset());
    }
    append_key(key, ~std::uint32_t{0});  // No more overlaps: no index is this.
  }
}

const RecordedGraph* GraphCache::find(const std::string& key, const GraphCall& call) {
  const auto known = by_key_.find(key);
  if (known == by_key_.end()) return nullptr;
  for (const Entries::iterator entry : known->second) {
    if (!holds_for(entry->graph, call)) continue;
    by_use_.splice(by_use_.begin(), by_use_, entry);
    return &entry->graph;
  }
  return nullptr;
}

const RecordedGraph& GraphCache::add(const std::string& key, RecordedGraph graph) {
  if (by_use_.size() == kMaxRecordings) drop_last();
  const auto known = by_key_.try_emplace(key).first;
  by_use_.push_front({.key = &known->first, .graph = std::move(graph)});
  known->second.push_back(by_use_.begin());
  return by_use_.front().graph;
}

void GraphCache::drop_last() {
  const auto last = std::prev(by_use_.end());
  const auto known = by_key_.find(*last->key);
  std::erase(known->second, last);
  if (known->second.empty()) by_key_.erase(known);
  by_use_.erase(last);
}

}  // namespace strata::chip
