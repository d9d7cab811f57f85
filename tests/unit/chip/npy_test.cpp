#include "chip/npy.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <numeric>
#include <string>

#include "strata/error.hpp"
#include "support/temp_dir.hpp"

namespace strata::chip {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Npy : public ::testing::Test {
 protected:
  std::filesystem::path file() const { return folder_.path() / "x.npy"; }
  /// A file as numpy writes it, with this dictionary and these elements.
  void write(const std::string& header, const std::string& data, char version = '\1') const {
    std::ofstream out(file(), std::ios::binary);
    out << "\x93NUMPY" << version << '\0';
    const std::size_t length = header.size() + 1;
    out.put(static_cast<char>(length & 0xff)).put(static_cast<char>(length >> 8));
    if (version == '\2') out.put('\0').put('\0');
    out << header << '\n' << data;
  }
  std::string refusal() const {
    try {
      (void)read_npy(file());
      return "it was read";
    } catch (const Error& error) {
      return error.what();
    }
  }

 private:
  test::TempDir folder_;
};

TEST_F(Npy, ReadsWhatNumpyWrites) {
  const std::int32_t values[] = {1, 2, 3, 4, 5, -6};
  const std::string data(reinterpret_cast<const char*>(values), sizeof values);
  for (const char version : {'\1', '\2'}) {
    write("{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3), }   ", data, version);
    const HostTensor tensor = read_npy(file());
    EXPECT_EQ(tensor.dtype, DType::int32);
    EXPECT_THAT(tensor.shape, ElementsAre(2, 3));
    EXPECT_EQ(std::memcmp(tensor.bytes.data(), values, sizeof values), 0);
  }
}

TEST_F(Npy, EachTypeAndShapeComesBackAsItWasWritten) {
  for (std::uint8_t i = 0; i < kDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    for (const std::vector<std::int64_t>& shape :
         {std::vector<std::int64_t>{}, {5}, {2, 3}, {0, 4}, {1, 1, 1, 2}}) {
      HostTensor tensor{.dtype = dtype, .shape = shape};
      tensor.bytes.resize(bytes_of(dtype, shape));
      for (std::size_t b = 0; b < tensor.bytes.size(); ++b)
        tensor.bytes[b] = static_cast<std::byte>(b + 1);
      write_npy(file(), tensor);
      EXPECT_EQ((std::filesystem::file_size(file()) - tensor.bytes.size()) % 64, 0U);
      const HostTensor read = as_dtype(read_npy(file()), dtype, file());
      EXPECT_EQ(read.dtype, dtype);
      EXPECT_EQ(read.shape, shape);
      EXPECT_EQ(read.bytes, tensor.bytes);
    }
  }
}

TEST_F(Npy, RefusesWhatItCantTakeAsItIsAndSaysWhy) {
  const std::string four(16, '\0');
  EXPECT_THAT(refusal(), HasSubstr("No such file"));
  write("{'descr': '>f4', 'fortran_order': False, 'shape': (4,), }", four);
  EXPECT_THAT(refusal(), HasSubstr("most significant byte first"));
  write("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }", four);
  EXPECT_THAT(refusal(), HasSubstr("column-major"));
  write("{'descr': '<c8', 'fortran_order': False, 'shape': (2,), }", four);
  EXPECT_THAT(refusal(), HasSubstr("'<c8', a type that Strata has not"));
  write("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (4,), }", four);
  EXPECT_THAT(refusal(), HasSubstr("records"));
  write("{'descr': '<f4', 'fortran_order': False, 'shape': (5,), }", four);
  EXPECT_THAT(refusal(), HasSubstr("16 bytes of elements, and its shape needs 20"));
  write("{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }", four, '\3');
  EXPECT_THAT(refusal(), HasSubstr("version 3"));
  write("{'descr': '<f4', 'shape': (4,), ", four);
  EXPECT_THAT(refusal(), HasSubstr("header"));
  std::ofstream(file()) << "hello";
  EXPECT_THAT(refusal(), HasSubstr("not an .npy file"));
}

TEST_F(Npy, AnotherTypeIsNotTakenForTheDueOne) {
  HostTensor tensor{.dtype = DType::float64, .shape = {1}};
  tensor.bytes.resize(8);
  EXPECT_THROW((void)as_dtype(tensor, DType::float32, file()), Error);
  tensor.dtype = DType::uint16;
  EXPECT_EQ(as_dtype(tensor, DType::bfloat16, file()).dtype, DType::bfloat16);
}

}  // namespace
}  // namespace strata::chip
