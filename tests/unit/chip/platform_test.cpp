#include "strata/platform.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "os/cpu.hpp"
#include "strata/chip_error.hpp"

namespace strata {
namespace {

using ::testing::HasSubstr;

void expect_refused(std::string_view text, ErrorCode code, const std::vector<std::string>& words) {
  try {
    (void)Platform::parse(text);
    FAIL() << "'" << text << "' was taken";
  } catch (const ChipError& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    for (const std::string& word : words)
      EXPECT_THAT(error.what(), HasSubstr(word));
  }
}

TEST(Platform, NamesStandForTheGeometryOfTheirChips) {
  const Platform a2a3 = Platform::parse("a2a3sim");
  EXPECT_EQ(a2a3.clusters, 24U);
  EXPECT_EQ(a2a3.aics(), 24U);
  EXPECT_EQ(a2a3.aivs(), 48U);
  EXPECT_EQ(a2a3.cores(), 72U);
  EXPECT_FALSE(a2a3.single_core_clusters);
  EXPECT_TRUE(a2a3.shares_host_memory);
  const Platform a5 = Platform::parse("a5sim");
  EXPECT_EQ(a5.clusters, 36U);
  EXPECT_EQ(a5.cores(), 108U);
}

TEST(Platform, CpuHasAClusterOfOneCorePerCpu) {
  const Platform all = Platform::parse("cpu");
  EXPECT_EQ(all.clusters, static_cast<unsigned>(os::allowed_cpus()));
  EXPECT_TRUE(all.single_core_clusters);
  const Platform three = Platform::parse("cpu", 3);
  EXPECT_EQ(three.clusters, 3U);
  EXPECT_EQ(three.aics(), 3U);
  EXPECT_EQ(three.aivs(), 3U);
  EXPECT_EQ(three.cores(), 3U);
}

TEST(Platform, SettingsChangeWhatTheyName) {
  const Platform platform =
      Platform::parse("a5sim:clusters=4,aivs=1,memory=64M,window=128,heap=3K,staging=1");
  EXPECT_EQ(platform.clusters, 4U);
  EXPECT_EQ(platform.aivs_per_cluster, 1U);
  EXPECT_EQ(platform.cores(), 8U);
  EXPECT_EQ(platform.memory, std::size_t{64} << 20);
  EXPECT_EQ(platform.window, 128U);
  EXPECT_EQ(platform.heap, 3072U);
  EXPECT_FALSE(platform.shares_host_memory);
}

TEST(Platform, ItsTextIsReadBackAsTheSamePlatform) {
  for (const char* text :
       {"a2a3sim", "a5sim", "cpu", "cpu:clusters=1", "a5sim:clusters=4", "a2a3sim:staging=1",
        "a2a3sim:clusters=2,aivs=0,memory=1,window=7,heap=2G,staging=1", "cpu:memory=3T"}) {
    const Platform first = Platform::parse(text);
    const std::string written = first.to_string();
    // The reader may have another number of CPUs.
    const Platform second = Platform::parse(written, 77);
    EXPECT_EQ(second.to_string(), written) << text;
    EXPECT_EQ(second.name, first.name);
    EXPECT_EQ(second.clusters, first.clusters) << written;
    EXPECT_EQ(second.aivs_per_cluster, first.aivs_per_cluster) << written;
    EXPECT_EQ(second.memory, first.memory) << written;
    EXPECT_EQ(second.window, first.window) << written;
    EXPECT_EQ(second.heap, first.heap) << written;
    EXPECT_EQ(second.shares_host_memory, first.shares_host_memory) << written;
  }
  EXPECT_EQ(Platform::parse("a2a3sim").to_string(), "a2a3sim");
}

TEST(Platform, AnUnknownNameIsRefusedWithThoseThereAre) {
  expect_refused("a3sim", ErrorCode::unknown_platform,
                 {"'a3sim'", "a2a3sim", "a5sim", "cpu", "clusters=N"});
  expect_refused("", ErrorCode::unknown_platform, {"a2a3sim"});
}

TEST(Platform, AWrongSettingIsRefusedWithThoseThereAre) {
  expect_refused("a2a3sim:cores=4", ErrorCode::unknown_platform, {"'cores'", "clusters=N"});
  expect_refused("a2a3sim:clusters=0", ErrorCode::unknown_platform, {"'clusters'", "from 1"});
  expect_refused("a2a3sim:clusters", ErrorCode::unknown_platform, {"'clusters'", "name=value"});
  expect_refused("a2a3sim:", ErrorCode::unknown_platform, {"name=value"});
  expect_refused("a2a3sim:aivs=3", ErrorCode::unknown_platform, {"'aivs'", "from 0 to 2"});
  expect_refused("a2a3sim:memory=12Q", ErrorCode::unknown_platform, {"'12Q'", "'memory'"});
  expect_refused("a2a3sim:memory=99999999999T", ErrorCode::unknown_platform,
                 {"'memory' must be from 1 to 64T"});
  expect_refused("a2a3sim:memory=0", ErrorCode::unknown_platform, {"'memory' must be from 1"});
  expect_refused("a2a3sim:heap=0", ErrorCode::unknown_platform, {"'heap' must be from 64"});
  expect_refused("a2a3sim:heap=63", ErrorCode::unknown_platform, {"'heap' must be from 64"});
  expect_refused("a2a3sim:clusters=2,heap=1M,clusters=3", ErrorCode::unknown_platform,
                 {"'clusters' is there twice"});
  expect_refused("a2a3sim:staging=yes", ErrorCode::unknown_platform, {"'yes'", "'staging'"});
  expect_refused("a2a3sim:clusters=-1", ErrorCode::unknown_platform, {"'-1'"});
}

TEST(Platform, ADeviceThatIsNotThereIsRefusedWithItsLibraryAndItsSimulator) {
  expect_refused("a2a3", ErrorCode::platform_missing, {"libascendcl.so", "'a2a3sim'"});
  expect_refused("a5:clusters=2", ErrorCode::platform_missing, {"libascendcl.so", "'a5sim'"});
}

}  // namespace
}  // namespace strata
