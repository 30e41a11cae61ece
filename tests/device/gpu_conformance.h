// The cases that every GPU backend's devices go through.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "device/physical_gpu.h"

namespace tandem {

struct TestGpus {
  std::string name;
  std::function<PhysicalGpus()> find;  // empty: the case skips

  friend void PrintTo(const TestGpus& gpus, std::ostream* out) { *out << gpus.name; }
};

class GpuConformance : public ::testing::TestWithParam<TestGpus> {
 protected:
  void SetUp() override {
    gpus_ = GetParam().find();
    if (gpus_.empty()) GTEST_SKIP() << "there is no GPU here";
  }
  // Logical device `id`, on the GPU of that number or, where there are not so many, the last.
  std::unique_ptr<DeviceImpl> make(int id, LogicalGpuOptions options = {.memory_limit = 64 << 20});

 private:
  PhysicalGpus gpus_;
};

inline std::string name_of_gpus(const ::testing::TestParamInfo<TestGpus>& info) {
  return info.param.name;
}

}  // namespace tandem
