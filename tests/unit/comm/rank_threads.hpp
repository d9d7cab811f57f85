// RankThreads: a domain whose ranks are threads of the test. Everything is as with processes, save
// that all windows are mapped once.
//
// Thread safety: used by the test's thread.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <exception>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/plain_waits.hpp"
#include "comm/shared_windows.hpp"
#include "strata/communicator.hpp"
#include "support/time_bounds.hpp"

namespace strata::comm {

class RankThreads {
 public:
  explicit RankThreads(const DomainSpec& spec)
      : layout_(spec), windows_(layout_, SharedWindows::make(layout_).get()) {}

  [[nodiscard]] std::uint32_t size() const noexcept { return layout_.size(); }
  [[nodiscard]] DomainContext context(std::uint32_t rank) const { return windows_.context(rank); }

  using Body = std::function<void(const Communicator&)>;
  /// Runs the body as every rank; what each threw, in the order of the ranks.
  std::vector<std::exception_ptr> try_all(const Body& body,
                                          const PlainWaits::Options& options = {}) {
    std::vector<std::exception_ptr> thrown(size());
    std::vector<std::jthread> threads;
    threads.reserve(size());
    for (std::uint32_t rank = 0; rank < size(); ++rank) {
      threads.emplace_back([&, rank] {
        const DomainContext domain = context(rank);
        PlainWaits::Options bounded = options;  // A test that hangs says where.
        if (bounded.deadline.is_never())
          bounded.deadline = os::Deadline::after(test::bound(std::chrono::seconds(30)));
        const PlainWaits waits(bounded);
        try {
          body(Communicator(waits, domain));
        } catch (...) {
          thrown[rank] = std::current_exception();
        }
      });
    }
    threads.clear();
    return thrown;
  }
  /// The same where nobody may throw.
  void all(const Body& body) {
    for (const std::exception_ptr& error : try_all(body)) {
      if (error) ADD_FAILURE() << "a rank threw: " << text_of(error);
    }
  }

  static std::string text_of(const std::exception_ptr& error) {
    try {
      if (error) std::rethrow_exception(error);
    } catch (const std::exception& e) {
      return e.what();
    }
    return "";
  }

 private:
  WindowLayout layout_;
  SharedWindows windows_;
};

}  // namespace strata::comm
