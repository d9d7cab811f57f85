// StateBoard: what the parts of this process say of their state when somebody asks from outside.
//
// Parts (engines, chips, Workers) put themselves on the board. A thread that sleeps in poll or
// epoll anyway, and that no task can hang (the service thread of a worker process, the supervisor
// elsewhere), watches request_fd() and calls answer(), which asks each part and publishes the whole
// as JSON; see request_door.hpp. state_request.hpp is the other side.
//
// Costs nothing while nobody asks: no thread, no timer, nothing on the way of a task.
//
// Thread safety: all members may be called from any thread.
//
// Invariants
//   (1) When an Entry is gone, its part is not being asked, and will not be.
//   (2) Parts are asked one after the other, with the board's lock held: what they say must not
//       wait for somebody who puts a part on the board or takes it off.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "trace/state_layout.hpp"

namespace strata::trace {

class StateBoard {
 public:
  using Describe = std::function<nlohmann::json()>;

 private:
  struct Part {
    std::string kind;
    Describe describe;
  };

 public:
  /// Keeps a part on the board while it lives.
  class Entry {
   public:
    Entry() noexcept = default;
    Entry(Entry&& other) noexcept;
    Entry& operator=(Entry&& other) noexcept;
    Entry(const Entry&) = delete;
    ~Entry() { remove(); }
    void remove() noexcept;

   private:
    friend class StateBoard;
    Entry(StateBoard* board, std::list<Part>::iterator part) noexcept
        : board_(board), part_(part) {}
    StateBoard* board_ = nullptr;
    std::list<Part>::iterator part_;
  };

  /// That of this process. Never destroyed.
  [[nodiscard]] static StateBoard& of_process();

  /// From here on others can ask. Nothing happens the second time. Without descriptors or memory to
  /// be had, nobody can: then request_fd() is -1.
  void open() noexcept;
  /// Readable when somebody has asked; -1 before open().
  [[nodiscard]] int request_fd() const noexcept { return door_.request_fd(); }
  /// Answers all requests that are there. Nothing happens if there is none.
  void answer() noexcept;

  /// The whole of what the parts say, for this process itself.
  [[nodiscard]] nlohmann::json describe();

  /// `kind` is "engine", "chip", "worker", ...: parts of one kind are listed together.
  [[nodiscard]] Entry add(std::string kind, Describe describe);

 private:
  StateBoard() = default;
  void publish(const std::string& text) noexcept;
  [[nodiscard]] nlohmann::json describe_locked();

  // --- Constant once open() has returned ---
  RequestDoor door_;
  StateLayout* layout_ = nullptr;

  std::once_flag opened_;
  std::mutex mutex_;
  std::list<Part> parts_;  ///< Guarded by mutex_.
};

}  // namespace strata::trace
