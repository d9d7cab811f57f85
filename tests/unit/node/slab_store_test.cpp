// Shared memory of a Worker, by the invariants of SlabStore and SlabMap.
#include "node/slab_store.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <set>
#include <thread>
#include <vector>

#include "node/slab_map.hpp"
#include "strata/error.hpp"
#include "support/process.hpp"

namespace strata::node {
namespace {

constexpr std::size_t kSmallSlab = 64 * kSlabPage;
/// Of the use of 1000 pages that are present. The sanitizers have memory of their own beside them.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kFewFaults = SIZE_MAX;
#else
constexpr std::size_t kFewFaults = 250;
#endif

SlabStore::Options small(std::function<void(const SlabStore::Slab&)> added = {}) {
  return {.slab_bytes = kSmallSlab, .added = std::move(added)};
}

bool is_zero(const std::byte* data, std::size_t bytes) {
  return std::all_of(data, data + bytes, [](std::byte b) { return b == std::byte{0}; });
}

std::uint64_t blocks_of(const SlabStore& store) {
  std::uint64_t blocks = 0;
  for (const auto& slab : store.slabs()) {
    struct stat status = {};
    EXPECT_EQ(fstat(slab.memory, &status), 0);
    blocks += static_cast<std::uint64_t>(status.st_blocks) * 512;
  }
  return blocks;
}

ipc::TensorFrame frame(const SlabStore::Range& range, std::uint64_t bytes) {
  return {.slab = range.slab,
          .generation = range.generation,
          .offset = range.offset,
          .reach_begin = range.offset,
          .reach_end = range.offset + bytes};
}

TEST(SlabStoreTest, LiveRangesNeverOverlapAndBeginAtPages) {
  SlabStore store(small());
  std::vector<SlabStore::Range> live;
  std::uint32_t seed = 1;
  const auto random = [&] { return seed = seed * 1664525 + 1013904223; };
  for (int i = 0; i < 3000; ++i) {
    if (live.size() > 40 || (!live.empty() && random() % 3 == 0)) {
      const std::size_t at = random() % live.size();
      store.release(live[at]);
      live[at] = live.back();
      live.pop_back();
    } else {
      live.push_back(store.create(1 + random() % (5 * kSlabPage)));
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(live.back().data) % kSlabPage, 0);
    }
    std::map<std::byte*, std::size_t> by_address;
    for (const auto& range : live)
      by_address[range.data] = range.bytes;
    std::byte* end = nullptr;
    for (const auto& [data, bytes] : by_address) {
      EXPECT_GE(data, end);
      end = data + bytes;
    }
  }
}

TEST(SlabStoreTest, AReleasedRangeReadsAsZerosWhenItIsUsedAgain) {
  SlabStore store(small());
  for (int i = 0; i < 100; ++i) {
    const auto range = store.create(3 * kSlabPage);
    ASSERT_TRUE(is_zero(range.data, range.bytes));
    std::memset(range.data, 0x5a, range.bytes);
    store.release(range);
  }
}

TEST(SlabStoreTest, AReleasedRangeHoldsNoMemory) {
  SlabStore store(small());
  const auto range = store.create(kSmallSlab);
  std::memset(range.data, 1, range.bytes);
  EXPECT_GE(blocks_of(store), kSmallSlab);
  store.release(range);
  EXPECT_LE(blocks_of(store), 2 * kSlabPage);  // Of the table of generations.
  EXPECT_EQ(store.used(), 0);
}

TEST(SlabStoreTest, UseOfANewRangeCostsItsCreatorNoFault) {
  SlabStore store({});
  const auto range = store.create(1000 * kSlabPage);
  const std::size_t before = test::page_faults();
  for (std::size_t i = 0; i < range.bytes; i += kSlabPage)
    range.data[i] = std::byte{1};
  EXPECT_LE(test::page_faults() - before, kFewFaults);
}

TEST(SlabStoreTest, MemoryThatIsNotPopulatedIsNotThereUntilUsed) {
  SlabStore store({});
  const auto range = store.create(std::size_t{1} << 30, SlabStore::Populate::no);
  EXPECT_LE(blocks_of(store), std::uint64_t{2} << 20);
  range.data[range.bytes - 1] = std::byte{1};
  EXPECT_EQ(store.locate(range.data + range.bytes - 1)->generation, range.generation);
}

TEST(SlabStoreTest, GenerationsAreNeverUsedAgainInASlab) {
  SlabStore store(small());
  std::set<std::pair<std::uint32_t, std::uint32_t>> seen;
  for (int i = 0; i < 1000; ++i) {
    const auto range = store.create(kSlabPage);
    EXPECT_TRUE(seen.emplace(range.slab, range.generation).second);
    store.release(range);
  }
}

TEST(SlabStoreTest, EveryByteOfARangeIsFoundAndNoOther) {
  SlabStore store(small());
  const auto a = store.create(2 * kSlabPage + 1);
  const auto b = store.create(kSmallSlab);  // Needs a slab of its own.
  EXPECT_NE(a.slab, b.slab);
  for (const auto* range : {&a, &b}) {
    for (const std::size_t offset : {std::size_t{0}, range->bytes / 2, range->bytes - 1}) {
      const auto found = store.locate(range->data + offset);
      ASSERT_TRUE(found);
      EXPECT_EQ(found->slab, range->slab);
      EXPECT_EQ(found->offset, range->offset + offset);
      EXPECT_EQ(found->generation, range->generation);
    }
  }
  store.release(a);
  EXPECT_EQ(store.locate(a.data)->generation, 0);
  const int elsewhere = 0;
  EXPECT_FALSE(store.locate(reinterpret_cast<const std::byte*>(&elsewhere)));
  EXPECT_FALSE(store.locate(nullptr));
}

TEST(SlabStoreTest, ASlabIsToldOfBeforeARangeOfItIsHandedOut) {
  std::set<std::uint32_t> told;
  SlabStore store(small([&](const SlabStore::Slab& slab) { told.insert(slab.slab); }));
  for (int i = 0; i < 20; ++i) {
    const auto range = store.create(kSmallSlab / 2 + 1);
    EXPECT_TRUE(told.contains(range.slab));
  }
  EXPECT_EQ(told.size(), store.slabs().size());
}

TEST(SlabStoreTest, SlabNumbersStayInTheirPart) {
  SlabStore store({.first_number = 100, .numbers = 2, .slab_bytes = kSmallSlab});
  EXPECT_EQ(store.create(kSmallSlab).slab, 100);
  EXPECT_EQ(store.create(kSmallSlab).slab, 101);
  EXPECT_THROW((void)store.create(kSmallSlab), InvalidState);
}

TEST(SlabStoreTest, WhatCanNotBeIsRefusedAndChangesNothing) {
  SlabStore store({});
  EXPECT_THROW((void)store.create(0), InvalidArgument);
  EXPECT_THROW((void)store.create(SIZE_MAX), SystemError);
  EXPECT_THROW((void)store.create(std::size_t{1} << 45), SystemError);
  EXPECT_TRUE(store.slabs().empty());
  EXPECT_EQ(store.used(), 0);
}

TEST(SlabStoreTest, TenThousandBuffersLiveWith256Descriptors) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{.rlim_cur = 256, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  {
    SlabStore store({});
    std::vector<SlabStore::Range> live;
    for (int i = 0; i < 10'000; ++i) {
      live.push_back(store.create(64 + static_cast<std::size_t>(i % 3) * kSlabPage));
      live.back().data[0] = static_cast<std::byte>(i % 251);
    }
    for (int i = 0; i < 10'000; ++i) {
      EXPECT_EQ(live[static_cast<std::size_t>(i)].data[0], static_cast<std::byte>(i % 251));
    }
    EXPECT_LE(store.slabs().size(), 4);
    for (const auto& range : live)
      store.release(range);
  }
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST(SlabStoreTest, ManyLargeBuffersNeedFewSlabs) {
  SlabStore store(small());
  for (int i = 0; i < 500; ++i)
    (void)store.create(kSmallSlab, SlabStore::Populate::no);
  EXPECT_LE(store.slabs().size(), 30);
}

TEST(SlabStoreTest, ThreadsCreateLocateAndReleaseAtOnce) {
  SlabStore store(small());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&store, t] {
      for (int i = 0; i < 300; ++i) {
        const auto range = store.create(static_cast<std::size_t>(1 + i % 9) * kSlabPage);
        EXPECT_TRUE(is_zero(range.data, range.bytes));
        std::memset(range.data, t + 1, range.bytes);
        const auto found = store.locate(range.data + range.bytes - 1);
        EXPECT_TRUE(found && found->generation == range.generation);
        EXPECT_EQ(range.data[range.bytes - 1], static_cast<std::byte>(t + 1));
        store.release(range);
      }
    });
  }
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(store.used(), 0);
}

// ---- In the worker ------------------------------------------------------------------------------

class SlabMapTest : public ::testing::Test {
 protected:
  void map_all() {
    for (const auto& slab : store_.slabs())
      add(slab);
  }
  std::byte* add(const SlabStore::Slab& slab) {
    const os::UniqueFd memory(dup(slab.memory));
    return map_.add(slab.slab, slab.bytes, memory);
  }
  SlabMap::Resolved resolve(const ipc::TensorFrame& tensor) {
    return map_.resolve(tensor, [] { return true; });
  }

  SlabStore store_{small()};
  SlabMap map_;
};

TEST_F(SlabMapTest, ATensorIsTheSameMemoryInBothProcesses) {
  const auto range = store_.create(3 * kSlabPage);
  map_all();
  const auto there = resolve(frame(range, range.bytes));
  ASSERT_EQ(there.outcome, SlabMap::Outcome::found);
  EXPECT_NE(there.data, range.data);
  there.data[range.bytes - 1] = std::byte{7};
  EXPECT_EQ(range.data[range.bytes - 1], std::byte{7});
}

TEST_F(SlabMapTest, AStaleGenerationIsRefused) {
  const auto old = store_.create(2 * kSlabPage);
  map_all();
  store_.release(old);
  EXPECT_EQ(resolve(frame(old, old.bytes)).outcome, SlabMap::Outcome::stale);
  const auto next = store_.create(2 * kSlabPage);
  ASSERT_EQ(next.offset, old.offset);
  EXPECT_EQ(resolve(frame(old, old.bytes)).outcome, SlabMap::Outcome::stale);
  EXPECT_EQ(resolve(frame(next, next.bytes)).outcome, SlabMap::Outcome::found);
  auto none = frame(next, next.bytes);
  none.generation = 0;
  EXPECT_EQ(resolve(none).outcome, SlabMap::Outcome::stale);
}

TEST_F(SlabMapTest, BytesBeyondARangeOrASlabAreRefused) {
  const auto a = store_.create(kSlabPage);
  const auto b = store_.create(kSlabPage);
  map_all();
  auto both = frame(a, 2 * kSlabPage);
  if (b.offset < a.offset) both = frame(b, 2 * kSlabPage);
  EXPECT_EQ(resolve(both).outcome, SlabMap::Outcome::stale);
  EXPECT_EQ(resolve(frame(a, kSmallSlab + 1)).outcome, SlabMap::Outcome::malformed);
  auto far = frame(a, 0);
  far.offset = UINT64_MAX;
  EXPECT_EQ(resolve(far).outcome, SlabMap::Outcome::malformed);
}

TEST_F(SlabMapTest, PagesArePresentBeforeATaskUsesThem) {
  SlabStore store({});
  SlabMap map;
  const auto range = store.create(1000 * kSlabPage);
  for (const auto& slab : store.slabs()) {
    const os::UniqueFd memory(dup(slab.memory));
    map.add(slab.slab, slab.bytes, memory);
  }
  const auto there = map.resolve(frame(range, range.bytes), [] { return true; });
  ASSERT_EQ(there.outcome, SlabMap::Outcome::found);
  const std::size_t before = test::page_faults();
  for (std::size_t i = 0; i < range.bytes; i += kSlabPage)
    there.data[i] = std::byte{1};
  (void)map.resolve(frame(range, range.bytes), [] { return true; });
  EXPECT_LE(test::page_faults() - before, kFewFaults);
}

TEST_F(SlabMapTest, UseOfARangeMakesNoOtherMemoryPresent) {
  const auto range = store_.create(kSlabPage);
  map_all();
  const std::uint64_t before = blocks_of(store_);
  ASSERT_EQ(resolve(frame(range, kSlabPage)).outcome, SlabMap::Outcome::found);
  EXPECT_EQ(blocks_of(store_), before);
}

TEST_F(SlabMapTest, AFrameWaitsForItsSlab) {
  const auto range = store_.create(kSlabPage);
  std::thread service([&] { map_all(); });
  const auto there = map_.resolve(frame(range, kSlabPage), [] { return false; });
  service.join();
  EXPECT_EQ(there.outcome, SlabMap::Outcome::found);
}

TEST_F(SlabMapTest, AWaitForASlabEndsWhenItIsGivenUp) {
  std::atomic<bool> give_up{false};
  std::thread other([&] {
    give_up = true;
    map_.wake();
  });
  const auto there = map_.resolve({.slab = 9}, [&] { return give_up.load(); });
  other.join();
  EXPECT_EQ(there.outcome, SlabMap::Outcome::gave_up);
}

TEST_F(SlabMapTest, ATensorWithoutElementsNeedsNoSlab) {
  const auto never = [] { return true; };  // Whoever waits gives up at once.
  EXPECT_EQ(map_.resolve({}, never).outcome, SlabMap::Outcome::found);
  EXPECT_EQ(map_.resolve({.reach_begin = 0, .reach_end = 8}, never).outcome,
            SlabMap::Outcome::malformed);
}

TEST_F(SlabMapTest, AForgottenSlabIsStaleAndMayComeAgain) {
  const auto range = store_.create(kSlabPage);
  map_all();
  ASSERT_EQ(resolve(frame(range, kSlabPage)).outcome, SlabMap::Outcome::found);
  map_.forget(range.slab);
  map_.forget(77);
  EXPECT_EQ(resolve(frame(range, kSlabPage)).outcome, SlabMap::Outcome::stale);
  EXPECT_NE(add(store_.slabs().front()), nullptr);
  EXPECT_EQ(add(store_.slabs().front()), nullptr) << "the same slab twice is one";
  EXPECT_EQ(resolve(frame(range, kSlabPage)).outcome, SlabMap::Outcome::found);
}

TEST_F(SlabMapTest, MemoryThatIsNoSlabIsRefused) {
  const os::UniqueFd memory(memfd_create("short", MFD_CLOEXEC));
  EXPECT_THROW(map_.add(5, kSlabPage, memory), InvalidArgument);
  EXPECT_THROW(map_.add(5, 0, memory), InvalidArgument);
  EXPECT_THROW(map_.add(5, 17, memory), InvalidArgument);
  EXPECT_THROW(map_.add(5, UINT64_MAX - kSlabPage + 1, memory), InvalidArgument);
}

// ---- Slabs of the Worker above ------------------------------------------------------------------

TEST_F(SlabMapTest, AnAttachedSlabIsFoundByAddressAndToldOn) {
  const auto range = store_.create(2 * kSlabPage);
  const auto slab = store_.slabs().front();
  std::byte* const data = add(slab);
  std::vector<std::uint32_t> told;
  std::vector<std::uint32_t> dropped;
  SlabStore inner({.first_number = 1000,
                   .slab_bytes = kSmallSlab,
                   .added = [&](const SlabStore::Slab& s) { told.push_back(s.slab); },
                   .dropped = [&](std::uint32_t s) { dropped.push_back(s); }});
  inner.attach(slab.slab, slab.bytes, os::UniqueFd(dup(slab.memory)), data);
  EXPECT_EQ(told, std::vector{slab.slab});
  const auto found = inner.locate(data + range.offset + kSlabPage);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->slab, range.slab);
  EXPECT_EQ(found->generation, range.generation);
  EXPECT_EQ(found->offset, range.offset + kSlabPage);
  EXPECT_EQ(inner.create(1).slab, 1000) << "nothing is taken from the slabs of others";
  EXPECT_THROW(inner.attach(slab.slab, slab.bytes, os::UniqueFd(dup(slab.memory)), data),
               InvalidArgument);
  inner.detach(slab.slab);
  inner.detach(1000);  // Not attached: nothing happens.
  EXPECT_EQ(dropped, std::vector{slab.slab});
  EXPECT_FALSE(inner.locate(data));
}

}  // namespace
}  // namespace strata::node
