#include "node/service_thread.hpp"

#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "node/chip_options.hpp"
#include "node/exception_fault.hpp"
#include "node/json_fields.hpp"
#include "node/protocol.hpp"
#include "strata/error.hpp"
#include "trace/crash_handler.hpp"
#include "trace/state_board.hpp"

namespace strata::node {
namespace {

/// How often a stop is passed on again while the process starts.
constexpr int kStopAgainMs = 20;

std::vector<int> cpus_from(const JsonFields& fields) {
  std::vector<int> cpus;
  for (const auto& cpu : fields.array("cpus")) {
    if (!cpu.is_number_unsigned()) fields.refuse("cpus", "a list of numbers of CPUs");
    cpus.push_back(cpu.get<int>());
  }
  return cpus;
}

}  // namespace

Configuration configuration_from(const nlohmann::json& message) {
  const JsonFields fields(message, "configure message");
  Configuration made;
  made.path = fields.text("path");
  made.role = fields.text("role");
  made.deadline_ns = fields.integer("deadline", std::numeric_limits<std::int64_t>::min(),
                                    std::numeric_limits<std::int64_t>::max());
  if (!fields.at("setup").is_null()) made.setup = callable_from(fields.at("setup"));
  if (fields.has("platform")) {
    made.platform = fields.text("platform");
    made.run = run_options_from(fields.at("run"));
    made.cpus = cpus_from(fields);
  }
  if (fields.has("options")) {
    made.options = options_from(fields.at("options"));
    made.first_slab = fields.number32("first_slab");
    made.slab_numbers = fields.number32("slab_numbers");
    made.cpus = cpus_from(fields);
  }
  return made;
}

ServiceThread::ServiceThread(WorkerShared& shared)
    : shared_(shared), loader_([&shared](std::string_view text) {
        if (!shared.ready.load(std::memory_order_acquire)) shared.messages->step(text);
        shared.record->set_step(text);
      }) {}

ServiceThread& ServiceThread::start(WorkerShared& shared) {
  auto* const service = new ServiceThread(shared);  // For the rest of the process's life.
  std::thread thread([service] {
    pthread_setname_np(pthread_self(), "service");
    const trace::AlternateStack stack;
    service->run();
  });
  thread.detach();
  return *service;
}

void ServiceThread::run() {
  std::array<pollfd, 3> watched{};
  trace::StateBoard& board = trace::StateBoard::of_process();
  for (;;) {
    ipc::ControlChannel& channel = shared_.messages->channel();
    const bool writes = channel.wants_write();
    watched[0] = {.fd = channel.fd(),
                  .events = static_cast<short>(writes ? POLLIN | POLLOUT : POLLIN),
                  .revents = 0};
    watched[1] = {.fd = shared_.service_event.fd(), .events = POLLIN, .revents = 0};
    watched[2] = {.fd = board.request_fd(), .events = POLLIN, .revents = 0};
    (void)poll(watched.data(), watched.size(), pass_on_stop() ? kStopAgainMs : -1);
    if (watched[1].revents != 0) shared_.service_event.drain();
    if (watched[2].revents != 0) board.answer();
    if (writes) (void)channel.flush();
    if (watched[0].revents != 0) take_messages();
  }
}

bool ServiceThread::pass_on_stop() {
  if (shared_.stopping() == Stop::none || !listener_.stop) return false;
  const bool ready = shared_.ready.load(std::memory_order_acquire);
  if (!stop_passed_on_ || !ready) listener_.stop();
  stop_passed_on_ = true;
  return !ready;
}

void ServiceThread::take_messages() {
  for (;;) {
    auto received = shared_.messages->channel().receive();
    if (auto* const message = std::get_if<ipc::Message>(&received)) {
      try {
        take(std::move(*message));
      } catch (const std::exception& error) {
        give_up(std::string("can't make sense of what its parent sent: ") + error.what());
      }
    } else if (auto* const broken = std::get_if<ipc::ControlChannel::Broken>(&received)) {
      give_up("can't make sense of what its parent sent: " + broken->reason);
    } else if (std::holds_alternative<ipc::ControlChannel::Closed>(received)) {
      // The parent has died, and the lifeline says so too; or it has no more to say, which makes
      // this worker useless.
      shared_.ask_to_stop(Stop::now);
      for (;;)
        pause();
    } else {
      return;
    }
  }
}

void ServiceThread::give_up(const std::string& why) {
  std::fprintf(stderr, "strata worker %s, pid %d: %s\n", shared_.messages->path().c_str(), getpid(),
               why.c_str());
  shared_.messages->failed(shared_.messages->fault(why),
                           os::Deadline::after(std::chrono::seconds(1)));
  _exit(1);
}

void ServiceThread::take(ipc::Message message) {
  const nlohmann::json& body = message.body();
  const std::string type = JsonFields(body, "message").text("type");
  if (type == "configure") {
    if (configuration() != nullptr) throw InvalidArgument("configured twice");
    configuration_.store(new Configuration(configuration_from(body)), std::memory_order_release);
    shared_.main_parker.unpark();
    wait_for_listener();
  } else if (type == "register") {
    register_callables(body);
  } else if (type == "forget_callable") {
    forget_callable(body);
  } else if (type == "slab") {
    add_slab(message);
  } else if (type == "forget_slab") {
    const std::uint32_t slab = JsonFields(body, "forget_slab message").number32("slab");
    if (listener_.dropped) listener_.dropped(slab);
    shared_.slabs.forget(slab);
  } else {
    throw InvalidArgument("a message of type '" + type + "'");
  }
}

void ServiceThread::register_callables(const nlohmann::json& message) {
  std::vector<std::uint32_t> registered;
  for (const auto& each : JsonFields(message, "register message").array("callables")) {
    const std::uint32_t id = JsonFields(each, "callable").number32("id");
    const Callable callable = callable_from(each);
    try {
      shared_.callables.add(id, load(each, callable));
      registered.push_back(id);
    } catch (const std::exception&) {
      WorkerFault fault = shared_.messages->fault({});
      fault.callable = callable.to_string();
      shared_.messages->not_registered(id, fault_of(std::current_exception(), std::move(fault)));
    }
  }
  loader_.forget_failures();
  if (!registered.empty()) shared_.messages->registered(registered);
}

LoadedCallable ServiceThread::load(const nlohmann::json& entry, const Callable& callable) {
  if (callable.source != Callable::Source::chip_program) return loader_.load(callable);
  if (!configuration()->chip()) {
    throw InvalidArgument(callable.to_string() + " can't be run by a " + configuration()->role +
                          ": only chip workers run chip programs");
  }
  return loader_.load_program(callable, JsonFields(entry, "callable").text("build_id"));
}

void ServiceThread::forget_callable(const nlohmann::json& message) {
  const std::uint32_t id = JsonFields(message, "forget_callable message").number32("id");
  auto forgotten = shared_.callables.take(id);
  if (forgotten == nullptr) return;  // It could not be loaded.
  shared_.forgotten.add(std::move(forgotten));
  shared_.mailbox->interrupt();
}

void ServiceThread::add_slab(ipc::Message& message) {
  const JsonFields fields(message.body(), "slab message");
  const std::uint32_t slab = fields.number32("slab");
  const std::uint64_t bytes = fields.unsigned_integer("bytes");
  if (message.descriptors().size() != 1) {
    throw InvalidArgument("slab " + std::to_string(slab) + " comes with " +
                          std::to_string(message.descriptors().size()) + " descriptors, not one");
  }
  const os::UniqueFd& memory = message.descriptors().front();
  std::byte* const data = shared_.slabs.add(slab, bytes, memory);
  if (data != nullptr && listener_.added) {
    listener_.added(slab, bytes, std::move(message.descriptors().front()), data);
  }
}

void ServiceThread::wait_for_listener() {
  // Before it looks at the slabs that follow it must know who else wants them.
  while (!listener_set_.load(std::memory_order_acquire))
    listener_parker_.park();
}

void ServiceThread::listen(Listener listener) {
  listener_ = std::move(listener);
  listener_set_.store(true, std::memory_order_release);
  listener_parker_.unpark();
}

}  // namespace strata::node
