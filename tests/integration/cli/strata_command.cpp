#include "strata_command.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <utility>

#include "os/procfs.hpp"

namespace strata::test {

struct Program::Stream {
  os::UniqueFd fd;
  std::thread reader;
  std::mutex mutex;  ///< For the two below.
  std::condition_variable changed;
  std::string text;
  bool ended = false;
};

namespace {

std::pair<os::UniqueFd, os::UniqueFd> make_pipe() {
  int ends[2] = {-1, -1};
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  return {os::UniqueFd(ends[0]), os::UniqueFd(ends[1])};
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words)
    text += word + " ";
  return text;
}

std::string found_in_path(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  for (const std::string folder : {"/bin/", "/usr/bin/"}) {
    if (::access((folder + name).c_str(), X_OK) == 0) return folder + name;
  }
  return name;
}

}  // namespace

Program::Program(const std::vector<std::string>& command, const Options& options)
    : guard_(joined(command)), out_(std::make_unique<Stream>()), err_(std::make_unique<Stream>()) {
  auto [in_read, in_write] = make_pipe();
  auto [out_read, out_write] = make_pipe();
  auto [err_read, err_write] = make_pipe();
  std::vector<os::SpawnOptions::Descriptor> descriptors = {
      {in_read.get(), 0}, {out_write.get(), 1}, {err_write.get(), 2}};
  descriptors.insert(descriptors.end(), options.descriptors.begin(), options.descriptors.end());
  std::vector<std::string> environment = os::current_environment();
  environment.insert(environment.end(), options.environment.begin(), options.environment.end());
  child_ = os::spawn({.path = found_in_path(command.front()),
                      .argv = command,
                      .envp = environment,
                      .descriptors = descriptors,
                      .own_process_group = options.own_group});
  out_->fd = std::move(out_read);
  err_->fd = std::move(err_read);
  read(*out_);
  if (options.read_stderr) read(*err_);
  writer_ = std::thread([fd = std::move(in_write), text = options.input] {
    sigset_t broken_pipe;
    sigemptyset(&broken_pipe);
    sigaddset(&broken_pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &broken_pipe, nullptr);
    for (std::size_t at = 0; at < text.size();) {
      const ssize_t written = ::write(fd.get(), text.data() + at, text.size() - at);
      if (written <= 0) return;
      at += static_cast<std::size_t>(written);
    }
  });
}

Program::~Program() {
  if (child_ && running()) {
    // What it started may hold its output open.
    for (const pid_t pid : os::descendants_of(child_.pid()))
      (void)::kill(pid, SIGKILL);
    send(SIGKILL);
    (void)finish();
  }
  for (Stream* const stream : {out_.get(), err_.get()}) {
    if (stream->reader.joinable()) stream->reader.join();
  }
  if (writer_.joinable()) writer_.join();
}

void Program::read(Stream& stream) {
  stream.reader = std::thread([&stream] {
    char bytes[4096];
    ssize_t got = 0;
    while ((got = ::read(stream.fd.get(), bytes, sizeof bytes)) > 0) {
      const std::scoped_lock lock(stream.mutex);
      stream.text.append(bytes, static_cast<std::size_t>(got));
      stream.changed.notify_all();
    }
    const std::scoped_lock lock(stream.mutex);
    stream.ended = true;
    stream.changed.notify_all();
  });
}

void Program::read_stderr() { read(*err_); }

std::string Program::wait_for_output(const std::string& text) {
  std::unique_lock lock(out_->mutex);
  out_->changed.wait(lock,
                     [&] { return out_->ended || out_->text.find(text) != std::string::npos; });
  EXPECT_NE(out_->text.find(text), std::string::npos) << "It ended before it wrote that.";
  return out_->text;
}

Program::Result Program::finish() {
  const std::optional<os::ExitStatus> status = child_.wait(os::Deadline::never());
  if (!err_->reader.joinable()) read(*err_);
  for (Stream* const stream : {out_.get(), err_.get()})
    stream->reader.join();
  writer_.join();
  return {*status, out_->text, err_->text};
}

std::vector<std::string> strata_with(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), STRATA_COMMAND_PATH);
  return arguments;
}

Program::Result strata_command(std::vector<std::string> arguments,
                               const Program::Options& options) {
  return Program(strata_with(std::move(arguments)), options).finish();
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);)
    lines.push_back(line);
  return lines;
}

void wait_until_gone(pid_t pid) {
  const Guard guard("process " + std::to_string(pid) + " should end");
  for (;;) {
    const std::optional<os::ProcessInfo> info = os::read_process(pid);
    if (!info || info->state == 'Z' || info->state == 'X') return;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace strata::test
