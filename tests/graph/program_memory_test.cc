#include "graph/program_memory.h"

#include <gtest/gtest.h>

#include "device/device_manager.h"
#include "support/gpus.h"
#include "tandem/tandem.h"

namespace tandem::program_memory_test {
namespace {

DeviceImpl& gpu() {
  testing::use_gpus(1, 16);
  return *DeviceManager::get().devices(DeviceType::kGpu, "test").front();
}

TEST(ProgramMemory, ProgramsShareTheArenaOfTheLargest) {
  DeviceImpl& device = gpu();
  const auto memory = ProgramMemory::make();
  ProgramArenas small(memory), large(memory);
  small.need(small.of(device), 1000);
  large.need(large.of(device), 5000);
  const auto in_use = [&] { return device.allocator().stats().bytes_in_use; };
  const std::int64_t before = in_use();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(large.take(), nullptr);
    const std::byte* const at = large.memory(0);
    large.give_back();
    EXPECT_EQ(small.take(), nullptr);
    EXPECT_EQ(small.memory(0), at);
    small.give_back();
    EXPECT_EQ(in_use(), before + 5120);
  }
}

TEST(ProgramMemory, ConcurrentRunsHaveSeparateArenas) {
  DeviceImpl& device = gpu();
  const auto memory = ProgramMemory::make();
  ProgramArenas one(memory), other(memory);
  one.need(one.of(device), 1000);
  other.need(other.of(device), 1000);
  EXPECT_EQ(one.take(), nullptr);
  EXPECT_EQ(other.take(), nullptr);
  EXPECT_NE(one.memory(0), other.memory(0));
  other.give_back();
  const std::byte* const at = one.memory(0);
  memory->release(device);  // not what is in use
  EXPECT_EQ(one.memory(0), at);
  one.give_back();
  const std::int64_t held = device.allocator().stats().bytes_in_use;
  memory->release(device);
  EXPECT_EQ(device.allocator().stats().bytes_in_use, held - 1024);
}

TEST(ProgramMemory, ResultsAreKeptForTheLastProgram) {
  DeviceImpl& device = gpu();
  const auto memory = ProgramMemory::make();
  ProgramArenas one(memory), other(memory);
  const std::size_t result = one.add_result(one.of(device));
  other.of(device);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(one.take(), nullptr);
    EXPECT_FALSE(one.result(0, result).defined());
    one.result(0, result) = make_tensor(device, {4}, float32);
    one.give_back();
    EXPECT_EQ(one.take(), nullptr);
    EXPECT_TRUE(one.result(0, result).defined());
    one.give_back();
    EXPECT_EQ(other.take(), nullptr);
    other.give_back();
  }
}

TEST(ProgramMemory, AProgramThatDoesNotFitTakesNoArena) {
  DeviceImpl& device = gpu();
  const auto memory = ProgramMemory::make();
  ProgramArenas large(memory), small(memory);
  large.need(large.of(device), std::size_t{32} << 20);
  small.need(small.of(device), 1000);
  EXPECT_EQ(small.take(), nullptr);
  small.give_back();
  EXPECT_EQ(large.take(), &device);
  EXPECT_EQ(small.take(), nullptr);
  EXPECT_NE(small.memory(0), nullptr);
  small.give_back();
}

}  // namespace
}  // namespace tandem::program_memory_test
