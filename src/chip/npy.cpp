#include "chip/npy.hpp"

#include <fmt/format.h>

#include <unistd.h>
#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <fstream>
#include <string_view>
#include <system_error>

#include "strata/error.hpp"

namespace strata::chip {
namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);
constexpr std::size_t kAlignment = 64;  ///< Of the data in the file.

struct NumpyType {
  DType dtype;
  std::string_view name;
};
constexpr std::array kTypes = {
    NumpyType{DType::boolean, "|b1"}, NumpyType{DType::int8, "|i1"},
    NumpyType{DType::uint8, "|u1"},   NumpyType{DType::int16, "<i2"},
    NumpyType{DType::uint16, "<u2"},  NumpyType{DType::int32, "<i4"},
    NumpyType{DType::uint32, "<u4"},  NumpyType{DType::int64, "<i8"},
    NumpyType{DType::uint64, "<u8"},  NumpyType{DType::float16, "<f2"},
    NumpyType{DType::float32, "<f4"}, NumpyType{DType::float64, "<f8"},
};

/// What a type is kept as; the type itself if numpy has it.
DType stored_as(DType dtype) noexcept {
  switch (dtype) {
    case DType::bfloat16:
      return DType::uint16;
    case DType::float8_e4m3:
    case DType::float8_e8m0:
    case DType::float4_e2m1x2:
      return DType::uint8;
    default:
      return dtype;
  }
}

std::string_view numpy_name(DType dtype) noexcept {
  for (const NumpyType& type : kTypes) {
    if (type.dtype == stored_as(dtype)) return type.name;
  }
  return "|u1";
}

/// The header: a Python dictionary with three entries, as numpy writes it.
class Header {
 public:
  Header(std::string_view text, const std::filesystem::path& file) : rest_(text), file_(file) {
    expect('{');
    while (!take('}')) {
      const std::string key = string();
      expect(':');
      if (key == "descr") {
        descr = descr_text();
      } else if (key == "fortran_order") {
        fortran_order = boolean();
      } else if (key == "shape") {
        shape = tuple();
      } else {
        fail("its header has an entry '" + key + "', which is not known");
      }
      (void)take(',');
    }
    if (descr.empty()) fail("its header does not say what its elements are");
  }

  std::string descr = {};
  bool fortran_order = false;
  std::vector<std::int64_t> shape = {};

  [[noreturn]] void fail(const std::string& why) const {
    throw Error("can't read '" + file_.string() + "': " + why);
  }

 private:
  void skip_spaces() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\n'))
      rest_.remove_prefix(1);
  }
  bool take(char c) {
    skip_spaces();
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    if (!take(c))
      fail(fmt::format("its header is not as numpy writes it: no '{}' where one is due", c));
  }
  std::string string() {
    skip_spaces();
    const char quote = rest_.empty() ? '\0' : rest_.front();
    if (quote != '\'' && quote != '"') fail("its header is not as numpy writes it");
    const std::size_t end = rest_.find(quote, 1);
    if (end == std::string_view::npos) fail("its header is cut off");
    std::string text(rest_.substr(1, end - 1));
    rest_.remove_prefix(end + 1);
    return text;
  }
  std::string descr_text() {
    skip_spaces();
    if (rest_.starts_with('[')) fail("its elements are records, which Strata has not");
    return string();
  }
  bool boolean() {
    skip_spaces();
    for (const bool value : {false, true}) {
      const std::string_view word = value ? "True" : "False";
      if (!rest_.starts_with(word)) continue;
      rest_.remove_prefix(word.size());
      return value;
    }
    fail("its header is not as numpy writes it: fortran_order is neither True nor False");
  }
  std::vector<std::int64_t> tuple() {
    std::vector<std::int64_t> values;
    expect('(');
    while (!take(')')) {
      skip_spaces();
      std::int64_t value = 0;
      const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
      if (error != std::errc{} || value < 0) fail("its shape is not one");
      rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
      values.push_back(value);
      (void)take(',');
    }
    return values;
  }

  std::string_view rest_;
  const std::filesystem::path& file_;
};

DType dtype_of_header(const Header& header) {
  // Byte order has no meaning for single bytes.
  for (const NumpyType& type : kTypes) {
    const bool same =
        header.descr.size() == 3 && header.descr.substr(1) == type.name.substr(1) &&
        (header.descr[0] == type.name[0] || header.descr[0] == '=' || size_of(type.dtype) == 1);
    if (same) return type.dtype;
  }
  if (header.descr.starts_with('>')) {
    header.fail("its elements ('" + header.descr +
                "') have the most significant byte first; save it with array.astype(array.dtype."
                "newbyteorder('<'))");
  }
  header.fail("its elements are '" + header.descr + "', a type that Strata has not");
}

/// A file that is read from the beginning, never more than is asked for: it may be a device that
/// has no end.
class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path) : path_(path) {
    std::error_code unknown;
    if (std::filesystem::is_directory(path, unknown)) fail("it is a folder");
    in_.open(path, std::ios::binary);
    if (!in_) fail(std::generic_category().message(errno));
  }

  /// The next bytes, fewer at the end of the file.
  std::string take(std::size_t bytes) {
    constexpr std::size_t kAtOnce = std::size_t{1} << 24;  // A header may claim what is not there.
    std::string taken;
    while (taken.size() < bytes && in_) {
      const std::size_t before = taken.size();
      taken.resize(before + std::min(bytes - before, kAtOnce));
      in_.read(taken.data() + before, static_cast<std::streamsize>(taken.size() - before));
      taken.resize(before + static_cast<std::size_t>(in_.gcount()));
    }
    if (in_.bad()) fail(std::generic_category().message(errno));
    return taken;
  }

  [[noreturn]] void fail(const std::string& why) const {
    throw Error("can't read '" + path_.string() + "': " + why);
  }

 private:
  const std::filesystem::path& path_;
  std::ifstream in_;
};

/// The header's text.
std::string read_header(InputFile& file) {
  const std::string begin = file.take(8);
  if (!begin.starts_with(kMagic) || begin.size() < 8) {
    file.fail("it is not an .npy file, as numpy.save writes it");
  }
  const unsigned version = static_cast<unsigned char>(begin[6]);
  if (version != 1 && version != 2) {
    file.fail(fmt::format("it is of version {} of the format; 1 and 2 are known", version));
  }
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  const std::string length_text = file.take(length_bytes);
  if (length_text.size() < length_bytes) file.fail("it is cut off");
  std::size_t length = 0;
  std::memcpy(&length, length_text.data(), length_bytes);
  std::string text = file.take(length);
  if (text.size() < length) file.fail("its header is cut off");
  return text;
}

std::string header_of(const HostTensor& tensor) {
  std::string shape;
  for (const std::int64_t extent : tensor.shape)
    shape += fmt::format("{}, ", extent);
  if (tensor.shape.size() > 1) shape.resize(shape.size() - 2);
  if (tensor.shape.size() == 1) shape.resize(shape.size() - 1);
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}",
                                 numpy_name(tensor.dtype), shape);
  constexpr std::size_t kFixed = 10;  // Magic, version, length.
  const std::size_t used = kFixed + text.size() + 1;
  text.append((kAlignment - used % kAlignment) % kAlignment, ' ');
  text += '\n';
  std::string header(kMagic);
  header += '\1';
  header += '\0';
  header += static_cast<char>(text.size() & 0xffU);
  header += static_cast<char>(text.size() >> 8U);
  return header + text;
}

}  // namespace

HostTensor read_npy(const std::filesystem::path& path) {
  InputFile file(path);
  const std::string text = read_header(file);
  const Header header(text, path);
  if (header.fortran_order && header.shape.size() > 1) {
    file.fail("it is column-major (fortran_order); save numpy.ascontiguousarray(array)");
  }
  if (header.shape.size() > static_cast<std::size_t>(kMaxRank)) {
    file.fail(fmt::format("it has {} dimensions; there may be {}", header.shape.size(), kMaxRank));
  }
  HostTensor tensor{.dtype = dtype_of_header(header), .shape = header.shape};
  const std::size_t size = bytes_of(tensor.dtype, tensor.shape);
  const std::string data = file.take(size);
  if (data.size() != size) {
    file.fail(
        fmt::format("it has {} bytes of elements, and its shape needs {}", data.size(), size));
  }
  if (!file.take(1).empty()) {
    file.fail(fmt::format("it has more bytes of elements than the {} that its shape needs", size));
  }
  tensor.bytes.resize(size);
  if (size > 0) std::memcpy(tensor.bytes.data(), data.data(), size);
  return tensor;
}

void write_npy(const std::filesystem::path& file, const HostTensor& tensor) {
  const std::string header = header_of(tensor);
  std::error_code ignored;
  // What a link names is written, and not the link; a device or a pipe is written into.
  const std::filesystem::path target = std::filesystem::is_symlink(file, ignored)
                                           ? std::filesystem::weakly_canonical(file, ignored)
                                           : file;
  const bool replaces = !std::filesystem::exists(target, ignored) ||
                        std::filesystem::is_regular_file(target, ignored);
  std::filesystem::path part = target;
  if (replaces) part += fmt::format(".{}.part", ::getpid());
  std::ofstream out(part, std::ios::binary | std::ios::trunc);
  out.write(header.data(), static_cast<std::streamsize>(header.size()));
  out.write(reinterpret_cast<const char*>(tensor.bytes.data()),
            static_cast<std::streamsize>(tensor.bytes.size()));
  out.close();
  std::error_code error;
  if (out && replaces) std::filesystem::rename(part, target, error);
  if (!out || error) {
    const std::string why = std::generic_category().message(error ? error.value() : errno);
    if (replaces) std::filesystem::remove(part, ignored);
    throw Error("can't write '" + file.string() + "': " + why);
  }
}

HostTensor as_dtype(HostTensor tensor, DType dtype, const std::filesystem::path& file) {
  if (tensor.dtype != stored_as(dtype)) {
    throw Error(fmt::format(
        "'{}' has elements of {}, and {} is due{}", file.string(), name_of(tensor.dtype),
        name_of(dtype),
        stored_as(dtype) == dtype ? "" : fmt::format(" (kept as {})", name_of(stored_as(dtype)))));
  }
  tensor.dtype = dtype;
  return tensor;
}

}  // namespace strata::chip
