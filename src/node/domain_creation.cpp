// Worker::create_domain: what is asked for is checked, the chips are brought up as ranks, and then
// the memory of the domain is made and shown to them.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/window_layout.hpp"
#include "node/domain_state.hpp"
#include "node/worker_state.hpp"
#include "strata/comm_error.hpp"
#include "strata/error.hpp"

namespace strata::node {
namespace {

/// How often a domain is tried if processes of its ranks die meanwhile, by no fault of its own.
constexpr int kAttempts = 3;

constexpr std::size_t kContextBytes =
    (sizeof(DomainContext) + kSlabPage - 1) / kSlabPage * kSlabPage;

[[noreturn]] void refuse(const DomainOptions& options, const std::string& why) {
  throw InvalidArgument(
      fmt::format("Worker::create_domain: domain '{}' can't be made: {}", options.name, why));
}

comm::WindowLayout layout_of(const DomainOptions& options) {
  if (options.name.size() >= sizeof DomainContext::name) {
    refuse(options, fmt::format("its name has {} bytes; at most {} are possible",
                                options.name.size(), sizeof DomainContext::name - 1));
  }
  if (options.time_limit.count() <= 0) refuse(options, "its time_limit must be above zero");
  comm::DomainSpec spec{.name = options.name,
                        .size = static_cast<std::uint32_t>(options.chips.size()),
                        .channels = options.channels};
  spec.slices.reserve(options.slices.size());
  for (const SliceOptions& slice : options.slices)
    spec.slices.push_back({.name = slice.name, .dtype = slice.dtype, .count = slice.count});
  return comm::WindowLayout(spec);
}

void check_chips(const DomainOptions& options, const std::vector<LaneId>& known) {
  for (std::size_t rank = 0; rank < options.chips.size(); ++rank) {
    const LaneId chip = options.chips[rank];
    if (std::find(known.begin(), known.end(), chip) == known.end()) {
      refuse(options, fmt::format("rank {}: lane {} is no chip of this Worker; use Worker::chip()",
                                  rank, chip.value));
    }
    const auto before = options.chips.begin() + static_cast<std::ptrdiff_t>(rank);
    if (const auto same = std::find(options.chips.begin(), before, chip); same != before) {
      refuse(options, fmt::format("ranks {} and {} are the same chip; each rank must be a chip of"
                                  " its own",
                                  same - options.chips.begin(), rank));
    }
  }
}

/// Writes the contexts as attach_rank() wants them.
void write_contexts(const DomainState& domain, const comm::WindowLayout& layout,
                    const std::vector<std::byte*>& windows) {
  for (std::uint32_t rank = 0; rank < layout.size(); ++rank) {
    std::byte* const place = domain.part(rank);
    DomainContext context = layout.context(rank, windows);
    for (std::uint32_t of = 0; of < layout.size(); ++of) {
      const std::ptrdiff_t distance = windows[of] - place;
      std::memcpy(&context.windows[of], &distance, sizeof distance);
    }
    std::memcpy(place, &context, sizeof context);
  }
}

}  // namespace

/// Makes the memory and the buffers, and enters the domain in the table.
void WorkerState::allocate_domain(const std::shared_ptr<DomainState>& domain,
                                  const comm::WindowLayout& layout) {
  domain->window_offset = kContextBytes;
  domain->part_bytes = kContextBytes + layout.window_bytes();
  domain->places.reserve(layout.size());
  try {
    for (const LaneId chip : domain->chips)
      domain->places.push_back(chip_memory_.reserve(chip, domain->part_bytes));
    // Of what collectives keep in the windows most is never touched.
    domain->range = slabs_->create(layout.size() * domain->part_bytes, SlabStore::Populate::no);
  } catch (...) {
    for (const ChipMemory::Place& place : domain->places)
      chip_memory_.give_back(place);
    throw;
  }
  domain->memory = slabs_;
  std::vector<std::byte*> windows;
  windows.reserve(layout.size());
  for (std::uint32_t rank = 0; rank < layout.size(); ++rank)
    windows.push_back(domain->part(rank) + domain->window_offset);
  domain->view = layout.context(0, windows);
  write_contexts(*domain, layout, windows);
  domain->buffers.reserve(layout.size());
  // No addresses: what is on chips is reached through copies and tasks alone.
  for (std::uint32_t rank = 0; rank < layout.size(); ++rank)
    domain->buffers.push_back(engine_->add_buffer(nullptr, domain->part_bytes));
  domains_.add(domain);
}

void WorkerState::release_domain(const std::shared_ptr<DomainState>& domain) noexcept {
  for (std::uint32_t rank = 0; rank < domain->buffers.size(); ++rank) {
    engine_->remove_buffer_later(domain->buffers[rank], [this, domain, rank] {
      chip_memory_.give_back(domain->places[rank]);
      if (domains_.remove(*domain, rank)) slabs_->release(domain->range);
    });
  }
}

std::shared_ptr<DomainState> WorkerState::create_domain(const DomainOptions& options) {
  require_running("Worker::create_domain");
  if (options.chips.empty()) refuse(options, "it has no chips");
  check_chips(options, chip_lanes());
  const comm::WindowLayout layout = layout_of(options);
  const std::shared_ptr<CommunicatorState> communicator = communicators_.of(options.chips);
  const std::lock_guard use(communicator->use);
  for (int attempt = 1;; ++attempt) {
    try {
      return make_domain(options, layout, communicator);
    } catch (const RankWasGone& gone) {
      if (attempt == kAttempts || !options_.replace_dead_workers) throw;
      log_.message(LogLevel::warning, options_.name,
                   fmt::format("domain '{}' is tried again, with the chip's next process: {}",
                               options.name, gone.what()));
    }
  }
}

/// One attempt. Requires the communicator's `use`.
std::shared_ptr<DomainState> WorkerState::make_domain(
    const DomainOptions& options, const comm::WindowLayout& layout,
    const std::shared_ptr<CommunicatorState>& communicator) {
  auto domain = std::make_shared<DomainState>();
  domain->chips = options.chips;
  domain->communicator = communicator;
  domain->paths = communicator->paths;
  communicators_.require_up(*communicator, options.time_limit);
  allocate_domain(domain, layout);
  try {
    std::vector<Tensor> contexts;
    contexts.reserve(layout.size());
    for (std::uint32_t rank = 0; rank < layout.size(); ++rank)
      contexts.push_back(domain->context(rank));
    communicators_.attach(*communicator, contexts, options.time_limit);
    require_whole(*domain, "Worker::create_domain");
  } catch (...) {
    release_domain(domain);
    throw;
  }
  return domain;
}

}  // namespace strata::node
