// The public name of a device.
#include <gtest/gtest.h>

#include <sstream>

#include "support/errors.h"
#include "tandem/device.h"
#include "tandem/errors.h"

namespace tandem::named_device_test {
namespace {

using testing::error_of;

TEST(Device, HasOneNameForAllForms) {
  for (const char* name : {"GPU:1", "/gpu:1", "gpu:1", "cuda:1", "CUDA:1", "/device:GPU:1",
                           "/job:localhost/replica:0/task:0/device:GPU:1"}) {
    const Device device(name);
    EXPECT_EQ(device.name(), "/gpu:1") << name;
    EXPECT_EQ(device.type(), DeviceType::kGpu) << name;
    EXPECT_EQ(device.index(), 1) << name;
    EXPECT_TRUE(device.is_cuda() && !device.is_cpu()) << name;
    EXPECT_EQ(device, Device(DeviceType::CUDA, 1)) << name;
  }
  EXPECT_EQ(Device("/job:worker/task:1/device:CPU:0").name(), "/job:worker/task:1/cpu:0");
}

TEST(Device, OfATypeAloneIsTheFirstOne) {
  EXPECT_EQ(Device("cpu"), Device("/cpu:0"));
  EXPECT_EQ(Device("cuda").name(), "/gpu:0");
  EXPECT_EQ(Device(DeviceType::kTpu).name(), "/tpu:0");
}

TEST(Device, IsUsableAsAName) {
  const Device device = "cuda:2";
  const std::string_view view = device;
  const std::string text = device;
  EXPECT_EQ(view, "/gpu:2");
  EXPECT_EQ(text, "/gpu:2");
  EXPECT_TRUE(std::string("/job:localhost/replica:0/task:0/device:GPU:2") == device);
  std::ostringstream out;
  out << device;
  EXPECT_EQ(out.str(), "/gpu:2");
}

TEST(Device, RefusesOtherNames) {
  EXPECT_EQ(error_of<InvalidArgumentError>([] { Device("xpu:0"); }).substr(0, 44),
            "Could not parse xpu:0 into a device specific");
  EXPECT_EQ(error_of<InvalidArgumentError>([] { Device("/job:localhost"); }),
            "[Device] expected a name with a type and a number, such as 'GPU:0', got "
            "'/job:localhost'");
  EXPECT_EQ(error_of<InvalidArgumentError>([] { Device(DeviceType::kGpu, -1); }),
            "[Device] expected an index from 0, got -1");
}

}  // namespace
}  // namespace tandem::named_device_test
