// The callables that a Worker knows; its chip programs are in tests/integration/chip.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "node/callable_registry.hpp"
#include "strata/chip_error.hpp"
#include "strata/error.hpp"

namespace strata::node {
namespace {

using ::testing::HasSubstr;

TEST(CallableRegistryTest, TheSameCallableHasTheSameId) {
  CallableRegistry registry([](CallableId) {});
  const auto f = registry.add(Callable::in_library("libx.so", "f"));
  EXPECT_TRUE(f.is_new);
  EXPECT_EQ(f.id.value, 1U);
  EXPECT_EQ(registry.add(Callable::in_library("libx.so", "g")).id.value, 2U);
  const auto again = registry.add(Callable::in_library("libx.so", "f"));
  EXPECT_FALSE(again.is_new);
  EXPECT_EQ(again.id, f.id);
  EXPECT_NE(registry.add(Callable::in_library("libx.so", "f").as_orchestration()).id, f.id);
}

TEST(CallableRegistryTest, ProcessesAreToldOfAllInBoundedBatches) {
  CallableRegistry registry([](CallableId) {});
  for (int i = 0; i < 1200; ++i)
    registry.add(Callable::in_program("f" + std::to_string(i)));
  std::size_t known = 0;
  std::size_t told = 0;
  for (;;) {
    const auto batch = registry.batch(known);
    if (batch.known == known) break;
    EXPECT_LE(batch.entries.size(), 500U);
    for (const auto& entry : batch.entries)
      EXPECT_EQ(entry["id"], ++told);
    known = batch.known;
  }
  EXPECT_EQ(told, 1200U);
}

TEST(CallableRegistryTest, OnlyChipProgramsCanBeRemoved) {
  CallableRegistry registry([](CallableId) { ADD_FAILURE() << "nothing is unused"; });
  const auto f = registry.add(Callable::in_library("libx.so", "f"));
  for (const CallableId id : {f.id, CallableId{0}, CallableId{77}}) {
    try {
      registry.remove(id);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr(registry.text_of(id)));
    }
  }
  EXPECT_THAT(registry.text_of(CallableId{77}), HasSubstr("callable 77, which was never added"));
}

TEST(CallableRegistryTest, AFileThatIsNoChipProgramIsRefusedAtOnce) {
  CallableRegistry registry([](CallableId) {});
  for (const char* path : {"/no/such/file", "/proc/self/exe", "/etc/passwd"}) {
    EXPECT_THROW(registry.add(Callable::chip_program(path)), ChipError) << path;
  }
  EXPECT_EQ(registry.add(Callable::in_program("f")).id.value, 1U);
}

}  // namespace
}  // namespace strata::node
