#include "diag/python_hook.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string_view>

#include "os/system_error.hpp"

namespace strata::diag {
namespace {

// Python 3.8 or later; with an older one, or without faulthandler, it does nothing.
constexpr std::string_view kModule =
    R"python(# Lets `strata dump` see the Python stacks of this process.
import sys


def _strata_install():
    import faulthandler
    import os
    import signal

    number = signal.SIGRTMAX - 7
    # Where two of us are on the path, `strata test` with `strata exec` in a job, one has done it.
    if signal.getsignal(number) != signal.SIG_DFL or hasattr(sys, "_strata_installed"):
        return
    sys._strata_installed = True
    state = {"fd": -1}

    def begin():
        fd = os.memfd_create("strata-python-report", os.MFD_CLOEXEC)
        if fd <= 2:
            # The program has closed its standard descriptors, and may look for free ones there.
            import fcntl
            high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
            os.close(fd)
            fd = high
        os.write(fd, b"strata-python 1 pid=%d signal=%d\n" % (os.getpid(), number))
        faulthandler.register(number, file=fd, all_threads=True, chain=False)
        return fd

    def begin_after_fork():
        inherited = state["fd"]
        state["fd"] = begin()
        try:
            if "strata-python-report" in os.readlink("/proc/self/fd/%d" % inherited):
                os.close(inherited)
        except OSError:
            pass

    state["fd"] = begin()
    os.register_at_fork(after_in_child=begin_after_fork)


def _strata_run_next():
    # The program's own sitecustomize, if it has one; ours is none of its business.
    import importlib.machinery

    ours = __spec__.origin if __spec__ is not None else __file__
    own = ours.rsplit("/", 1)[0]
    sys.path[:] = [entry for entry in sys.path if entry != own]
    sys.path_importer_cache.pop(own, None)
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    import importlib.util

    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


try:
    _strata_install()
except Exception:
    pass
_strata_run_next()
)python";

std::uint32_t crc32(std::string_view bytes) {
  std::uint32_t crc = ~std::uint32_t{0};
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit)
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xedb88320U : 0U);
  }
  return ~crc;
}

/// Numbers as zip files have them, the least byte first.
class LittleEndian {
 public:
  LittleEndian& u16(std::uint32_t value) { return bytes(value, 2); }
  LittleEndian& u32(std::uint32_t value) { return bytes(value, 4); }
  LittleEndian& text(std::string_view value) {
    text_ += value;
    return *this;
  }
  [[nodiscard]] const std::string& done() const { return text_; }

 private:
  LittleEndian& bytes(std::uint32_t value, int count) {
    for (int i = 0; i < count; ++i)
      text_ += static_cast<char>(value >> (8 * i) & 0xff);
    return *this;
  }
  std::string text_;
};

}  // namespace

std::string zip_of(const std::string& name, const std::string& content) {
  const auto size = static_cast<std::uint32_t>(content.size());
  const auto name_size = static_cast<std::uint32_t>(name.size());
  constexpr std::uint32_t kVersion = 20;
  constexpr std::uint32_t kFirstOfJanuary1980 = 0x21;
  // What the entry and the directory say of the file alike.
  const auto describe = [&](LittleEndian& out) {
    out.u16(kVersion).u16(0).u16(0).u16(0).u16(kFirstOfJanuary1980);
    out.u32(crc32(content)).u32(size).u32(size).u16(name_size).u16(0);
  };
  LittleEndian entry;
  entry.u32(0x04034b50);
  describe(entry);
  entry.text(name).text(content);
  LittleEndian directory;
  directory.u32(0x02014b50).u16(kVersion);
  describe(directory);
  directory.u16(0).u16(0).u16(0).u32(0).u32(0).text(name);
  LittleEndian end;
  end.u32(0x06054b50).u16(0).u16(0).u16(1).u16(1);
  end.u32(static_cast<std::uint32_t>(directory.done().size()));
  end.u32(static_cast<std::uint32_t>(entry.done().size())).u16(0);
  return entry.done() + directory.done() + end.done();
}

PythonHook::PythonHook() : PythonHook("sitecustomize.py", std::string(kModule)) {}

PythonHook::PythonHook(const std::string& name, const std::string& content)
    : fd_(::memfd_create("strata-python-hook", MFD_CLOEXEC)) {
  if (!fd_) os::throw_errno("make a file in memory");
  const std::string archive = zip_of(name, content);
  if (::write(fd_.get(), archive.data(), archive.size()) != static_cast<ssize_t>(archive.size())) {
    os::throw_errno("write to a file in memory");
  }
  path_ = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(fd_.get());
}

void PythonHook::add_to(std::vector<std::string>& environment) const {
  constexpr std::string_view kVariable = "PYTHONPATH=";
  for (std::string& entry : environment) {
    if (!entry.starts_with(kVariable)) continue;
    const std::string rest = entry.substr(kVariable.size());
    entry = std::string(kVariable) + path_ + (rest.empty() ? "" : ":" + rest);
    return;
  }
  environment.push_back(std::string(kVariable) + path_);
}

}  // namespace strata::diag
