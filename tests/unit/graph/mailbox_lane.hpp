// An external lane that keeps what it was given, for tests that decide themselves when it ends.
#pragma once

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "engine_support.hpp"

namespace strata::test {

/// Keeps what was dispatched until the test takes it.
class Mailbox : public ExternalLane {
 public:
  struct Item {
    DispatchId id;
    TaskContext* context;
    Body* body;
  };
  void dispatch(DispatchId id, TaskContext& context, Body& body) override {
    const std::lock_guard lock(mutex_);
    items_.push_back({id, &context, &body});
    most_ = std::max(most_, items_.size());
    ++dispatched_;
  }
  void cancellation() override { cancellations_.fetch_add(1); }
  /// How often the engine said that some token may have changed.
  [[nodiscard]] int cancellations() const { return cancellations_.load(); }
  [[nodiscard]] std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return items_.size();
  }
  [[nodiscard]] std::size_t most() const {
    const std::lock_guard lock(mutex_);
    return most_;
  }
  [[nodiscard]] int dispatched() const {
    const std::lock_guard lock(mutex_);
    return dispatched_;
  }
  bool take(Item& item) {
    const std::lock_guard lock(mutex_);
    if (items_.empty()) return false;
    item = items_.front();
    items_.pop_front();
    return true;
  }
  Item take_when_there() {
    Item item{};
    EXPECT_TRUE(eventually([&] { return take(item); }));
    return item;
  }

 private:
  mutable std::mutex mutex_;
  std::deque<Item> items_;
  std::size_t most_ = 0;
  int dispatched_ = 0;
  std::atomic<int> cancellations_{0};
};

inline EngineOptions mailboxes(const std::vector<std::shared_ptr<Mailbox>>& boxes, unsigned depth) {
  return {.kinds = {{.name = "chip", .external = {boxes.begin(), boxes.end()}, .depth = depth}}};
}

}  // namespace strata::test
