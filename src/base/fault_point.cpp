#include "base/fault_point.hpp"

#ifdef STRATA_FAULT_POINTS

#include <fcntl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>

#include "strata/error.hpp"

namespace strata::base {
namespace {

enum class Action { exit, signal, stop, delay, error };

struct Fault {
  std::string scope;  ///< Empty: any process.
  std::string name;
  std::uint64_t only_at = 0;  ///< 0: at every hit.
  Action action = Action::stop;
  int value = 0;
  std::uint64_t hits = 0;
};

/// Whether `pattern`, which may end with '*', means `name`.
bool matches(std::string_view pattern, std::string_view name) noexcept {
  if (!pattern.empty() && pattern.back() == '*') {
    pattern.remove_suffix(1);
    return name.substr(0, pattern.size()) == pattern;
  }
  return pattern == name;
}

template <class Number>
Number parse_number(std::string_view text, std::string_view whole) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) {
    throw InvalidArgument("fault '" + std::string(whole) + "': '" + std::string(text) +
                          "' is not a number");
  }
  return value;
}

/// One fault, in the form that the header gives.
Fault parse_fault(std::string_view text) {
  const auto fail = [&](const char* why) {
    throw InvalidArgument("fault '" + std::string(text) + "': " + why +
                          "; the form is [SCOPE:]NAME=[@N:]ACTION");
  };
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos) fail("there is no '='");
  std::string_view name = text.substr(0, equals);
  std::string_view action = text.substr(equals + 1);
  Fault fault;
  if (const std::size_t colon = name.rfind(':'); colon != std::string_view::npos) {
    fault.scope = name.substr(0, colon);
    name.remove_prefix(colon + 1);
  }
  if (name.empty()) fail("there is no name");
  fault.name = name;
  if (action.starts_with('@')) {
    const std::size_t colon = action.find(':');
    if (colon == std::string_view::npos) fail("there is no action");
    fault.only_at = parse_number<std::uint64_t>(action.substr(1, colon - 1), text);
    action.remove_prefix(colon + 1);
  }
  if (action == "stop") return fault;

  const std::size_t colon = action.find(':');
  const std::string_view verb = action.substr(0, colon);
  if (verb == "exit") {
    fault.action = Action::exit;
  } else if (verb == "signal") {
    fault.action = Action::signal;
  } else if (verb == "delay") {
    fault.action = Action::delay;
  } else if (verb == "error") {
    fault.action = Action::error;
  } else {
    fail("the action is none of exit, signal, stop, delay, error");
  }
  if (colon == std::string_view::npos) fail("the action lacks its number");
  fault.value = parse_number<int>(action.substr(colon + 1), text);
  return fault;
}

std::vector<Fault> parse_faults(std::string_view text) {
  std::vector<Fault> faults;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    if (const auto one = text.substr(0, comma); !one.empty()) faults.push_back(parse_fault(one));
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  return faults;
}

void sleep_ms(int ms) noexcept {
  timespec left{.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1'000'000L};
  while (::nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

/// All there is, behind one lock. Points are not on hot paths where that matters: such builds are
/// for tests.
class Registry {
 public:
  /// Never destroyed: points are passed by threads that outlive static objects.
  static Registry& instance() {
    static auto* registry = new Registry;
    return *registry;
  }

  /// What must be done at this point, now, and the error to answer.
  int pass(std::string_view name) {
    std::vector<Fault> due;
    {
      const std::lock_guard lock(mutex_);
      count(name);
      for (Fault& fault : faults_) {
        if (!matches(fault.name, name)) continue;
        if (!fault.scope.empty() && !matches(fault.scope, scope_)) continue;
        ++fault.hits;
        if (fault.only_at == 0 || fault.only_at == fault.hits) due.push_back(fault);
      }
    }
    int error = 0;
    for (const Fault& fault : due) {
      if (fault.action == Action::error) {
        error = fault.value;
      } else {
        act(fault);
      }
    }
    return error;
  }

  void set(std::vector<Fault> faults) {
    const std::lock_guard lock(mutex_);
    faults_ = std::move(faults);
    for (auto& [name, hits] : hits_)
      hits = 0;
  }

  void set_scope(std::string_view scope) {
    const std::lock_guard lock(mutex_);
    scope_ = scope;
  }

  std::uint64_t hits(std::string_view name) {
    const std::lock_guard lock(mutex_);
    const auto found = hits_.find(name);
    return found == hits_.end() ? 0 : found->second;
  }

  std::vector<std::string> names() {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> result;
    for (const auto& [name, hits] : hits_)
      result.push_back(name);
    return result;
  }

 private:
  Registry() {
    if (const char* path = std::getenv("STRATA_FAULT_LOG"); path != nullptr) log_ = path;
    const char* text = std::getenv("STRATA_FAULTS");
    if (text == nullptr) return;
    try {
      faults_ = parse_faults(text);
    } catch (const Error& error) {
      // A test that asks for something else than it means must not pass.
      std::fprintf(stderr, "strata: STRATA_FAULTS: %s\n", error.what());
      std::_Exit(2);
    }
  }

  void count(std::string_view name) {
    const auto found = hits_.find(name);
    if (found != hits_.end()) {
      ++found->second;
      return;
    }
    hits_.emplace(name, 1);
    if (log_.empty()) return;
    std::string line = scope_.empty() ? std::string() : scope_ + ":";
    line.append(name).push_back('\n');
    // One write to the end of the file: lines of several processes do not mix.
    const int fd = ::open(log_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return;
    [[maybe_unused]] const auto written = ::write(fd, line.data(), line.size());
    ::close(fd);
  }

  static void act(const Fault& fault) {
    switch (fault.action) {
      case Action::exit:
        std::_Exit(fault.value);
      case Action::signal:
        ::kill(::getpid(), fault.value);
        break;
      case Action::stop:
        ::kill(::getpid(), SIGSTOP);
        break;
      case Action::delay:
        sleep_ms(fault.value);
        break;
      case Action::error:
        break;
    }
  }

  std::mutex mutex_;
  std::vector<Fault> faults_;                               ///< Guarded by mutex_, as all below.
  std::map<std::string, std::uint64_t, std::less<>> hits_;  ///< By name; 0 after set_faults().
  std::string scope_;
  std::string log_;  ///< Path, or empty. Constant.
};

}  // namespace

void fault_point(std::string_view name) { (void)Registry::instance().pass(name); }

int fault_error(std::string_view name) { return Registry::instance().pass(name); }

void set_faults(std::string_view faults) { Registry::instance().set(parse_faults(faults)); }

void set_fault_scope(std::string_view scope) { Registry::instance().set_scope(scope); }

std::uint64_t fault_point_hits(std::string_view name) { return Registry::instance().hits(name); }

std::vector<std::string> passed_fault_points() { return Registry::instance().names(); }

}  // namespace strata::base

#endif
