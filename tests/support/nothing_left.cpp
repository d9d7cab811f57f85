#include "support/nothing_left.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "support/marked_processes.hpp"
#include "support/time_bounds.hpp"

namespace strata::test {
namespace {

namespace fs = std::filesystem;

/// "5 -> socket:[123]", one for each descriptor of this process.
std::set<std::string> own_descriptors() {
  std::set<std::string> found;
  std::error_code error;
  for (fs::directory_iterator it("/proc/self/fd", error), end; !error && it != end;
       it.increment(error)) {
    std::error_code gone;
    const fs::path target = fs::read_symlink(it->path(), gone);
    if (gone || target.string().find("/proc/") == 0) continue;  // The one that reads this folder.
    found.insert(it->path().filename().string() + " -> " + target.string());
  }
  return found;
}

std::string list_of_new(const std::set<std::string>& before, const std::set<std::string>& after) {
  std::string text;
  for (const std::string& entry : after) {
    if (before.count(entry) == 0) text += "  " + entry + "\n";
  }
  return text;
}

}  // namespace

std::set<std::string> shared_names() {
  std::set<std::string> found;
  for (const char* folder : {"/dev/shm", "/tmp"}) {
    std::error_code error;
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
      const std::string name = it->path().filename().string();
      const bool shm = std::string(folder) == "/dev/shm";
      // Folders of other tests come and go.
      const bool ours = name.find("strata") != std::string::npos &&
                        !name.starts_with("strata-test-") && !name.starts_with("strata-model-");
      if (shm || ours) found.insert(it->path().string());
    }
  }
  return found;
}

NothingLeft::NothingLeft(std::string mark, std::chrono::milliseconds promised)
    : mark_(mark.empty() ? mark_children() : std::move(mark)),
      promised_(promised),
      before_(holdings()),
      descriptors_(own_descriptors()),
      names_(shared_names()) {}

std::string NothingLeft::too_much() const {
  if (const auto left = marked_processes(mark_); !left.empty()) {
    return "processes:\n" + to_string(left);
  }
  const Holdings now = holdings();
  if (now.children > before_.children || now.threads > before_.threads) {
    return "before: " + to_string(before_) + "; now: " + to_string(now) + "\n";
  }
  if (const auto fds = own_descriptors(); fds.size() > descriptors_.size()) {
    return "descriptors:\n" + list_of_new(descriptors_, fds);
  }
  if (const std::string names = list_of_new(names_, shared_names()); !names.empty()) {
    return "names:\n" + names;
  }
  return {};
}

void NothingLeft::check() const {
  std::string left;
  (void)within(promised_, [&] { return (left = too_much()).empty(); });
  if (!left.empty()) ADD_FAILURE() << "something is left of the test: " << left;
}

}  // namespace strata::test
