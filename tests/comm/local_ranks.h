// The ranks of a LocalGroup, and the data that they reduce.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <thread>
#include <tuple>
#include <vector>

#include "comm/local/local_group.h"
#include "comm/numbers.h"
#include "device/device_manager.h"
#include "tandem/config.h"

namespace tandem::testing {

// Device memory with copies from and to the host.
template <class T>
class DeviceArray {
 public:
  DeviceArray(DeviceImpl& device, const std::vector<T>& values)
      : device_(device), count_(values.size()) {
    memory_ = device.allocator().allocate(count_ * sizeof(T));
    if (count_) device.copy_from_host(memory_, values.data(), count_ * sizeof(T));
  }
  ~DeviceArray() {
    device_.stream().synchronize();
    device_.allocator().deallocate(memory_);
  }
  Buffer part(std::size_t begin, std::size_t end) const {
    return {static_cast<T*>(memory_) + begin, static_cast<std::int64_t>(end - begin), dtype_of<T>};
  }
  std::vector<T> read() const {
    std::vector<T> values(count_);
    if (count_) device_.copy_to_host(values.data(), memory_, count_ * sizeof(T));
    device_.stream().synchronize();
    return values;
  }

 private:
  DeviceImpl& device_;
  std::size_t count_;
  void* memory_ = nullptr;
};

inline void on_ranks(int ranks, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back([&, rank] { body(rank); });
  for (std::thread& thread : threads) thread.join();
}

template <class T>
T value_of(int rank, std::size_t i) {
  return static_cast<T>(static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 13) % 5 + 1));
}

// kNvidia: one GPU per rank; kShared: one GPU for all. Empty if there are not enough.
enum class Where { kCpus, kGpus, kMixed, kNvidia, kShared };

inline std::vector<DeviceImpl*> nvidia_devices_for(Where where, int ranks) {
  const auto physical = config::list_physical_devices("GPU");
  if (physical.empty()) return {};
  if (where == Where::kShared)
    config::set_logical_device_configuration(
        physical.front(), std::vector(4, config::LogicalDeviceConfiguration{.memory_limit = 64}));
  std::vector<DeviceImpl*> devices;
  for (DeviceImpl* device : DeviceManager::get().devices(DeviceType::kGpu, "test"))
    if (device->backend() == DeviceBackend::kCuda && static_cast<int>(devices.size()) < ranks)
      devices.push_back(device);
  if (static_cast<int>(devices.size()) < ranks) devices.clear();
  return devices;
}

inline std::vector<DeviceImpl*> devices_for(Where where, int ranks) {
  if (where == Where::kNvidia || where == Where::kShared) return nvidia_devices_for(where, ranks);
  config::set_logical_cpus(7);
  config::set_emulated_gpus(7, 64);
  DeviceManager& manager = DeviceManager::get();
  const auto cpus = manager.devices(DeviceType::kCpu, "test");
  const auto gpus = manager.devices(DeviceType::kGpu, "test");
  std::vector<DeviceImpl*> devices;
  for (int rank = 0; rank < ranks; ++rank) {
    const bool gpu = where == Where::kGpus || (where == Where::kMixed && rank % 2 == 1);
    devices.push_back((gpu ? gpus : cpus)[static_cast<std::size_t>(rank)]);
  }
  return devices;
}

template <class T>
void check_all_reduce(const std::vector<DeviceImpl*>& devices, const LocalPlan& plan,
                      std::size_t length, ReduceOp op) {
  const int ranks = static_cast<int>(devices.size());
  auto group = std::make_shared<LocalGroup>(devices, LocalGroupOptions{.plan = plan});
  std::vector<std::vector<T>> results(devices.size());
  on_ranks(ranks, [&](int rank) {
    const auto me = static_cast<std::size_t>(rank);
    auto communicator = group->communicator(rank);
    std::vector<T> values(length);
    for (std::size_t i = 0; i < length; ++i) values[i] = value_of<T>(rank, i);
    DeviceArray<T> array(*devices[me], values);
    // Two collectives at once, with two parts and with one.
    const std::size_t third = length / 3, half = length / 2;
    const Buffer first[] = {array.part(0, third), array.part(third, half)};
    const Buffer second[] = {array.part(half, length)};
    auto one = communicator->all_reduce(first, op);
    auto two = communicator->all_reduce(second, op);
    two->wait();
    one->wait();
    results[me] = array.read();
  });
  for (std::size_t i = 0; i < length; ++i) {
    float expected = static_cast<float>(value_of<T>(0, i));
    for (int rank = 1; rank < ranks; ++rank) {
      const float next = static_cast<float>(value_of<T>(rank, i));
      expected = combine_two(op, expected, next);
    }
    if (op == ReduceOp::kMean) expected /= static_cast<float>(ranks);
    for (int rank = 0; rank < ranks; ++rank)
      ASSERT_EQ(static_cast<float>(results[static_cast<std::size_t>(rank)][i]),
                static_cast<float>(static_cast<T>(expected)))
          << "rank " << rank << " of " << ranks << ", element " << i << " of " << length;
  }
}

}  // namespace tandem::testing
