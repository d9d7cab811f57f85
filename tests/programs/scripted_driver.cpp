// A worker process that does what its parent's first letter says, word by word. With it the tests
// of the supervisor make every event happen that a process can cause.
//
//   say TYPE    sends that message; say bad_hello: one of another protocol
//   garbage     sends bytes that are no message
//   close       closes the control channel
//   mark        tells the test that it has come so far
//   wait_go     waits until the test says so
//   wait_stop   waits to be asked to stop
//   wait_term   waits for SIGTERM, which it ignores otherwise
//   exit N      ends with that status
//   pause       does nothing until it is killed
//
// The letter: {"type": "script", "text": ...} with the test's eventfds for `mark` and `go`.
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "ipc/control_channel.hpp"
#include "ipc/lifeline.hpp"
#include "node/protocol.hpp"
#include "os/deadline.hpp"
#include "strata/worker_error.hpp"

namespace {

using namespace strata;

class Script {
 public:
  [[noreturn]] void run() {
    std::istringstream words(receive());
    std::string word;
    while (words >> word)
      perform(word, words);
    for (;;)
      pause();
  }

 private:
  /// The script, from the first letter that has one.
  std::string receive() {
    for (;;) {
      auto received = control_->receive_until(os::Deadline::never());
      auto* message = std::get_if<ipc::Message>(&received);
      if (message == nullptr) _exit(100);
      if (message->body().at("type") != "script") continue;
      mark_ = std::move(message->descriptors().at(0));
      go_ = std::move(message->descriptors().at(1));
      return message->body().at("text").get<std::string>();
    }
  }

  void perform(const std::string& word, std::istringstream& words) {
    if (word == "say") {
      std::string type;
      words >> type;
      say(type);
    } else if (word == "garbage") {
      if (send(node::kControlFd, "garbage", 7, MSG_NOSIGNAL) != 7) _exit(101);
    } else if (word == "close") {
      control_.reset();
    } else if (word == "mark") {
      const std::uint64_t one = 1;
      if (write(mark_.get(), &one, sizeof one) != sizeof one) _exit(102);
    } else if (word == "wait_go") {
      wait_readable(go_.get());
    } else if (word == "wait_stop") {
      while (ipc::receive_lifeline(node::kLifelineFd).kind != ipc::LifelineKind::stop)
        ipc::wait_lifeline(node::kLifelineFd);
    } else if (word == "wait_term") {
      sigset_t term;
      sigemptyset(&term);
      sigaddset(&term, SIGTERM);
      int signal = 0;
      sigwait(&term, &signal);
    } else if (word == "exit") {
      int status = 0;
      words >> status;
      _exit(status);
    } else if (word == "pause") {
      for (;;)
        pause();
    } else {
      _exit(103);
    }
  }

  void say(const std::string& type) {
    nlohmann::json body{{"type", type}};
    if (type == "hello") body["protocol"] = node::kProtocol;
    if (type == "bad_hello") body = {{"type", "hello"}, {"protocol", node::kProtocol + 1}};
    if (type == "step") body["text"] = "a step";
    if (type == "failed") body["fault"] = node::to_json(WorkerFault{.cause = "its own words"});
    if (control_->send_until(body, os::Deadline::never()) != ipc::ControlChannel::SendResult::sent)
      _exit(104);
  }

  static void wait_readable(int fd) {
    pollfd poll_fd{.fd = fd, .events = POLLIN, .revents = 0};
    while (poll(&poll_fd, 1, -1) != 1) {
    }
  }

  std::optional<ipc::ControlChannel> control_{std::in_place, os::UniqueFd(node::kControlFd)};
  os::UniqueFd mark_;
  os::UniqueFd go_;
};

}  // namespace

int main() {
  sigset_t term;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  sigprocmask(SIG_BLOCK, &term, nullptr);
  Script().run();
}
