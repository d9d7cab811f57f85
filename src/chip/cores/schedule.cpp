#include "chip/cores/schedule.hpp"

#include <bit>

#include "chip/cores/kernel_services.hpp"
#include "os/cpu.hpp"

namespace strata::chip {

namespace {

constexpr LaneMask kAnyAiv = mask_of(ClusterLane::aiv0) | mask_of(ClusterLane::aiv1);
constexpr LaneMask kAllLanes = mask_of(ClusterLane::aic) | kAnyAiv;

LaneMask lanes_with(unsigned aivs) noexcept {
  return static_cast<LaneMask>(aivs == 0 ? 1U : aivs == 1 ? 3U : 7U);
}

}  // namespace

Schedule::Schedule(const Platform& platform, CorePool::Impl* pool)
    : single_core_(platform.single_core_clusters),
      clusters_(platform.clusters),
      aivs_(platform.aivs_per_cluster),
      lanes_there_(lanes_with(aivs_)),
      places_(std::size_t{clusters_} * kLanes) {
  const std::size_t words = (std::size_t{clusters_} + 63) / 64;
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    const bool used = single_core_ ? lane == 0 : (lanes_there_ >> lane & 1) != 0;
    free_[lane].assign(words, used ? ~std::uint64_t{0} : 0);
    if (used && clusters_ % 64 != 0) {
      free_[lane].back() = (std::uint64_t{1} << (clusters_ % 64)) - 1;
    }
  }
  for (unsigned cluster = 0; cluster < clusters_; ++cluster) {
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      Place& place = place_at(cluster, lane);
      place.services = &kernel_services();
      place.pool = pool;
      place.cluster = cluster;
      place.core = single_core_ ? cluster : cluster * (1 + aivs_) + lane;
      place.lane = static_cast<ClusterLane>(lane);
    }
  }
}

std::uint32_t Schedule::room_for(const Job& job) const noexcept {
  if (job.lane_count > 1) return (job.lanes & ~lanes_there_) == 0 ? clusters_ : 0;
  if ((job.lanes & kAnyAiv) == 0) return clusters_;
  if (aivs_ == 0) return 0;
  return single_core_ ? clusters_ : clusters_ * aivs_;
}

// ---- Queues -------------------------------------------------------------------------------------

void Schedule::add(Job& job) noexcept {
  Queue& queue = queues_[static_cast<unsigned>(job.shape)];
  job.order = next_order_++;
  job.next = nullptr;
  job.previous = queue.last;
  (queue.last == nullptr ? queue.first : queue.last->next) = &job;
  queue.last = &job;
  job.queued = true;
  ++waiting_;
  // A task behind another can't start before that one.
  if (queue.first == &job) stuck_ = false;
}

void Schedule::drop(Job& job) noexcept {
  if (!job.queued) return;
  Queue& queue = queues_[static_cast<unsigned>(job.shape)];
  (job.previous == nullptr ? queue.first : job.previous->next) = job.next;
  (job.next == nullptr ? queue.last : job.next->previous) = job.previous;
  job.queued = false;
  job.reserved_cluster = -1;
  --waiting_;
  stuck_ = false;
}

void Schedule::block_given(Job& job) noexcept {
  job.reserved_cluster = -1;
  if (++job.next_block == job.blocks) drop(job);
}

Place* Schedule::take() {
  if (first_due_ != nullptr) return take_due();
  if (waiting_ == 0 || stuck_ || held_) return nullptr;
  std::array<Job*, kShapes> heads;
  for (unsigned i = 0; i < kShapes; ++i)
    heads[i] = queues_[i].first;
  Claims claims;
  for (;;) {
    Job** oldest = nullptr;
    for (Job*& head : heads) {
      if (head != nullptr && (oldest == nullptr || head->order < (*oldest)->order)) oldest = &head;
    }
    if (oldest == nullptr) break;
    if (Place* const place = try_place(**oldest, claims)) return place;
    claim(**oldest, claims);
    *oldest = nullptr;
  }
  stuck_ = true;
  return nullptr;
}

Place* Schedule::try_place(Job& job, const Claims& claims) {
  if ((claimed_by(job) & claims.lanes) != 0) return nullptr;
  if (job.together) {
    return free_for(job, claims) >= job.blocks ? place_together(job, claims) : nullptr;
  }
  // What it has reserved is the first to look at only by chance: any other will do as well.
  for (std::size_t word = 0; word < free_[0].size(); ++word) {
    if (const std::uint64_t clusters = fitting(job, word, claims)) {
      return place_block(job, static_cast<unsigned>(word * 64) +
                                  static_cast<unsigned>(std::countr_zero(clusters)));
    }
  }
  return nullptr;
}

// ---- Room ---------------------------------------------------------------------------------------

std::uint64_t Schedule::fitting(const Job& job, std::size_t word,
                                const Claims& claims) const noexcept {
  std::uint64_t clusters;
  if (single_core_) {
    clusters = free_[0][word];
  } else if (job.lane_count == 1) {
    clusters = (job.lanes & kAnyAiv) == 0 ? free_[0][word] : free_[1][word] | free_[2][word];
  } else {
    clusters = ~std::uint64_t{0};
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      if ((job.lanes >> lane & 1) != 0) clusters &= free_[lane][word];
    }
  }
  if (claims.cluster >= 0 && static_cast<std::size_t>(claims.cluster) / 64 == word) {
    clusters &= ~(std::uint64_t{1} << (claims.cluster % 64));
  }
  return clusters;
}

std::uint32_t Schedule::free_for(const Job& job, const Claims& claims) const noexcept {
  const bool each_aiv = !single_core_ && job.lane_count == 1 && (job.lanes & kAnyAiv) != 0;
  int count = 0;
  for (std::size_t word = 0; word < free_[0].size(); ++word) {
    const std::uint64_t clusters = fitting(job, word, claims);
    count += each_aiv ? std::popcount(clusters & free_[1][word]) +
                            std::popcount(clusters & free_[2][word])
                      : std::popcount(clusters);
  }
  return static_cast<std::uint32_t>(count);
}

/// Which lane of the cluster a task of one lane gets.
unsigned Schedule::free_lane(const Job& job, unsigned cluster) const noexcept {
  if ((job.lanes & kAnyAiv) == 0) return 0;
  return single_core_ || is_free(1, cluster) ? 1 : 2;
}

LaneMask Schedule::claimed_by(const Job& job) const noexcept {
  if (single_core_) return kAllLanes;
  return (job.lanes & kAnyAiv) != 0 ? static_cast<LaneMask>(job.lanes | kAnyAiv) : job.lanes;
}

/// The task has no room: what it waits for is kept from the younger.
void Schedule::claim(Job& job, Claims& claims) {
  if (job.together) {
    claims.lanes |= claimed_by(job);
    return;
  }
  if (job.lane_count == 1) return;  // Whatever gets free is its own first.
  if (job.reserved_cluster < 0) {
    // The cluster with the most of the lanes that it needs.
    int most = -1;
    for (unsigned cluster = 0; cluster < clusters_; ++cluster) {
      if (static_cast<int>(cluster) == claims.cluster) continue;
      int lanes = 0;
      for (unsigned lane = 0; lane < kLanes; ++lane) {
        if ((job.lanes >> lane & 1) != 0 && is_free(single_core_ ? 0 : lane, cluster)) ++lanes;
      }
      if (lanes > most) {
        most = lanes;
        job.reserved_cluster = static_cast<int>(cluster);
      }
    }
  }
  claims.cluster = job.reserved_cluster;
}

// ---- Places -------------------------------------------------------------------------------------

void Schedule::settle(Place& place, Job& job, std::uint32_t block) noexcept {
  place.job = &job;
  place.arguments = job.arguments;
  place.block = block;
  place.blocks = job.blocks;
  place.lanes = job.lane_count;
  place.state.store(Place::State::allotted, std::memory_order_relaxed);
  place.gate.open();
}

Place& Schedule::place_lane(Job& job, unsigned cluster, unsigned lane, MixedBlock* mixed) {
  free_[single_core_ ? 0 : lane][cluster / 64] &= ~(std::uint64_t{1} << (cluster % 64));
  Place& place = place_at(cluster, lane);
  place.mixed = mixed;
  ++job.live;
  settle(place, job, job.next_block);
  return place;
}

Place* Schedule::place_block(Job& job, unsigned cluster) {
  if (job.lane_count == 1) {
    Place& place = place_lane(job, cluster, free_lane(job, cluster), nullptr);
    block_given(job);
    return &place;
  }
  MixedBlock* const mixed = new_mixed(job.lanes);
  Place* first = nullptr;
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    if ((job.lanes >> lane & 1) == 0) continue;
    Place& place = place_lane(job, cluster, lane, mixed);
    if (first == nullptr) {
      first = &place;
    } else {
      make_due(place);
    }
  }
  block_given(job);
  return first;
}

Place* Schedule::place_together(Job& job, const Claims& claims) {
  Place* first = nullptr;
  for (std::size_t word = 0; job.queued; ++word) {
    // Lanes of one cluster in turn: a cluster may have room for two blocks on AIVs.
    for (std::uint64_t left; job.queued && (left = fitting(job, word, claims)) != 0;) {
      Place* const place = place_block(
          job, static_cast<unsigned>(word * 64) + static_cast<unsigned>(std::countr_zero(left)));
      if (first == nullptr) {
        first = place;
      } else {
        make_due(*place);
      }
    }
  }
  return first;
}

void Schedule::release(Place& place) noexcept {
  MixedBlock* const mixed = place.mixed;
  place.job = nullptr;
  place.mixed = nullptr;
  stuck_ = false;
  if (mixed != nullptr) {
    const bool last = --mixed->lanes_out == 0;
    if (last) {
      mixed->next_free = free_mixed_;
      free_mixed_ = mixed;
    } else if (single_core_) {
      return;
    }
  }
  free_[single_core_ ? 0 : index_of(place.lane)][place.cluster / 64] |= std::uint64_t{1}
                                                                        << (place.cluster % 64);
}

MixedBlock* Schedule::new_mixed(LaneMask lanes) {
  MixedBlock* block = free_mixed_;
  if (block != nullptr) {
    free_mixed_ = block->next_free;
  } else {
    block = &mixed_.emplace_back();
  }
  block->reset(lanes);
  return block;
}

// ---- Due lanes ----------------------------------------------------------------------------------

void Schedule::make_due(Place& place) noexcept {
  place.next_due = nullptr;
  place.since.store(os::cycle_count(), std::memory_order_relaxed);
  (last_due_ == nullptr ? first_due_ : last_due_->next_due) = &place;
  last_due_ = &place;
}

Place* Schedule::take_due() noexcept {
  Place* const place = first_due_;
  if (place == nullptr) return nullptr;
  first_due_ = place->next_due;
  if (first_due_ == nullptr) last_due_ = nullptr;
  ++dues_taken_;
  return place;
}

Place* Schedule::take_due(Place& place) noexcept {
  Place* before = nullptr;
  for (Place* at = first_due_; at != &place; at = at->next_due)
    before = at;
  (before == nullptr ? first_due_ : before->next_due) = place.next_due;
  if (last_due_ == &place) last_due_ = before;
  ++dues_taken_;
  return &place;
}

// ---- Exploring ----------------------------------------------------------------------------------

std::vector<Job*> Schedule::startable() {
  std::vector<Job*> jobs;
  if (held_) return jobs;
  for (const Queue& queue : queues_) {
    for (Job* job = queue.first; job != nullptr; job = job->next) {
      if (free_for(*job, {}) >= (job->together ? job->blocks : 1)) jobs.push_back(job);
    }
  }
  return jobs;
}

Place* Schedule::start(Job& job, std::uint64_t draw) {
  if (job.together) return place_together(job, {});
  std::vector<unsigned> clusters;
  clusters.reserve(clusters_);
  for (std::size_t word = 0; word < free_[0].size(); ++word) {
    for (std::uint64_t left = fitting(job, word, {}); left != 0; left &= left - 1) {
      clusters.push_back(static_cast<unsigned>(word * 64) +
                         static_cast<unsigned>(std::countr_zero(left)));
    }
  }
  return place_block(job, clusters[draw % clusters.size()]);
}

}  // namespace strata::chip
