#include "runtime/placement.h"

#include <gtest/gtest.h>

#include "device/device_manager.h"
#include "runtime/dispatch.h"
#include "support/errors.h"
#include "support/gpus.h"
#include "tandem/tandem.h"

namespace tandem::placement_test {
namespace {

using testing::error_of;

constexpr const char* kCpu0 = "/job:localhost/replica:0/task:0/device:CPU:0";
constexpr const char* kGpu0 = "/job:localhost/replica:0/task:0/device:GPU:0";
constexpr const char* kGpu1 = "/job:localhost/replica:0/task:0/device:GPU:1";

Tensor matrix() { return ones({2, 2}); }

TEST(Placement, DefaultsToTheCpuWhereThereIsNoGpu) {
  testing::use_gpus(0);
  EXPECT_EQ(matmul(matrix(), matrix()).device(), kCpu0);
}

TEST(Placement, PrefersTheFirstGpu) {
  testing::use_gpus(2);
  EXPECT_EQ(matmul(matrix(), matrix()).device(), kGpu0);
}

TEST(Placement, ScopesMergeFieldByField) {
  testing::use_gpus(2);
  DeviceScope outer("/gpu:1");
  EXPECT_EQ(matrix().device(), kGpu1);
  {
    DeviceScope inner("/cpu:0");
    EXPECT_EQ(matmul(matrix(), matrix()).device(), kCpu0);
    DeviceScope reset("");
    EXPECT_EQ(matrix().device(), kGpu0);
  }
  {
    DeviceScope task("/task:0");  // adds a field, keeps the others
    EXPECT_EQ(matrix().device(), kGpu1);
  }
  EXPECT_EQ(matrix().device(), kGpu1);
}

TEST(Placement, CopiesInputsToTheOperation) {
  testing::use_gpus(2);
  Tensor a, b;
  {
    DeviceScope cpu("/cpu:0");
    a = constant({{1.0, 2.0}});
  }
  {
    DeviceScope gpu("/gpu:1");
    b = constant({{3.0}, {4.0}});
  }
  DeviceScope gpu("/gpu:0");
  const Tensor c = matmul(a, b);
  EXPECT_EQ(c.device(), kGpu0);
  EXPECT_EQ(c.to_vector<float>(), std::vector<float>{11.0f});
  EXPECT_EQ(a.device(), kCpu0);
}

TEST(Placement, ViewsStayWhereTheirInputIs) {
  testing::use_gpus(2);
  Tensor a;
  {
    DeviceScope gpu("/gpu:1");
    a = ones({2, 3});
  }
  EXPECT_EQ(reshape(a, {3, 2}).device(), kGpu1);
  EXPECT_EQ(a[1].device(), kGpu1);
  DeviceScope cpu("/cpu:0");
  EXPECT_EQ(reshape(a, {3, 2}).device(), kCpu0);
}

TEST(Placement, AMissingDeviceErrorListsTheDevices) {
  testing::use_gpus(0);
  config::set_soft_device_placement(false);
  DeviceScope missing("/gpu:7");
  const std::string expected =
      "Cannot assign a device for operation MatMul: MatMul was explicitly assigned to '/gpu:7' but "
      "available devices are "
      "[/job:localhost/replica:0/task:0/device:CPU:0]. Make sure the device specification refers "
      "to a valid device. The "
      "requested device appears to be a GPU, but there is none; TANDEM_EMULATED_GPUS=N makes N "
      "emulated ones.";
  Tensor a;
  {
    DeviceScope cpu("/cpu:0");
    a = matrix();
  }
  try {
    matmul(a, a);
    FAIL();
  } catch (const InvalidArgumentError& error) {
    EXPECT_EQ(error.what(), expected);
  }
}

TEST(Placement, SoftPlacementTakesAnotherDevice) {
  testing::use_gpus(0);
  DeviceScope missing("/gpu:7");
  EXPECT_EQ(matmul(matrix(), matrix()).device(), kCpu0);
}

TEST(Placement, SoftPlacementNeverRelaxesTheTask) {
  DeviceScope elsewhere("/job:worker/task:3/cpu:0");
  EXPECT_THROW(matrix(), InvalidArgumentError);
}

TEST(Placement, ANameThatDoesNotParse) {
  EXPECT_THROW(DeviceScope("/gpu:one"), InvalidArgumentError);
}

TEST(Placement, TheLogNamesOperationAndDevice) {
  testing::use_gpus(0);
  debugging::set_log_device_placement(true);
  const Tensor a = matrix();
  ::testing::internal::CaptureStderr();
  matmul(a, a);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            std::string("Executing op MatMul in device ") + kCpu0 + "\n");
}

TEST(Placement, TheLogNamesConstantsAndTracedWork) {
  testing::use_gpus(0);
  const Tensor a = matrix();
  const auto product = function([](const Tensor& x) { return matmul(x, x); }, {.name = "product"});
  debugging::set_log_device_placement(true);
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  constant({1.0});
  product(a);
  product(a);
  const std::string placed = ::testing::internal::GetCapturedStdout();
  const std::string log = ::testing::internal::GetCapturedStderr();
  const std::string call = std::string("Executing op __inference_product_0 in device ") + kCpu0;
  const std::string line = std::string("MatMul: (MatMul): ") + kCpu0 + "\n";
  EXPECT_EQ(log.rfind(std::string("Executing op _EagerConst in device ") + kCpu0 + "\n", 0), 0u);
  EXPECT_NE(log.find(call), log.rfind(call)) << log;  // once per call
  EXPECT_NE(placed.find(line), std::string::npos) << placed;
  EXPECT_EQ(placed.find(line), placed.rfind(line)) << placed;  // once per program
}

TEST(Placement, AMistypedTypeIsNoDeviceEvenWithSoftPlacement) {
  testing::use_gpus(0);
  for (const char* name : {"cuda:0", "GPPU:1", "/device:gpuu:0"}) {
    EXPECT_THROW(DeviceScope{name}, InvalidArgumentError) << name;
    EXPECT_THROW(matrix().to(name), InvalidArgumentError) << name;
  }
  const DeviceScope tpu("/device:TPU:0");  // a known type without devices
  EXPECT_EQ(matrix().device(), kCpu0);
}

TEST(Placement, GradientsRunWhereTheForwardRan) {
  testing::use_gpus(2);
  Tensor x;
  {
    DeviceScope gpu("/gpu:1");
    x = ones({2, 2});
    x.set_requires_grad();
    const Tensor y = reduce_sum(matmul(x, x));
    DeviceScope cpu("/cpu:0");
    y.backward();
  }
  EXPECT_EQ(x.grad().device(), kGpu1);
}

TEST(Tensor, ToAnotherDeviceAndBack) {
  testing::use_gpus(1);
  const Tensor a = constant({1.0, 2.0});
  EXPECT_EQ(a.device(), kGpu0);
  const Tensor b = a.cpu();
  EXPECT_EQ(b.device(), kCpu0);
  EXPECT_EQ(b.data<float>()[1], 2.0f);
  EXPECT_EQ(b.to("GPU:0").device(), kGpu0);
}

TEST(Tensor, MemoryOfAGpuIsNotTheHosts) {
  testing::use_gpus(1);
  const Tensor a = constant({1.0, 2.0});
  try {
    a.data<float>();
    FAIL();
  } catch (const InvalidArgumentError& error) {
    EXPECT_STREQ(error.what(),
                 "[data] the tensor is on /job:localhost/replica:0/task:0/device:GPU:0, whose "
                 "memory the host cannot "
                 "reach; copy it with cpu() first");
  }
}

TEST(Tensor, OutOfMemoryReportsTheSizes) {
  testing::use_gpus(1, 16);
  const Tensor held = zeros({2, 1024, 1024});
  try {
    zeros({4, 1024, 1024});
    FAIL();
  } catch (const ResourceExhaustedError& error) {
    const std::string text = error.what();
    for (const char* part :
         {"(4, 1024, 1024)", "float32", kGpu0, "requested 16.0 MiB", "limit 16.0 MiB",
          "in use 8.0 MiB", "largest free block 8.0 MiB", "Try a smaller batch"})
      EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  }
  EXPECT_NO_THROW(zeros({1024, 1024}));  // the device is still usable
}

// An operation that writes a variable runs on the variable's device, even without a kernel.
TEST(Placement, WritingAVariableWhereThereIsNoKernelIsAnError) {
  testing::use_gpus(1);
  static const OpDef host_only = {.name = "HostOnlyWrite",
                                  .infer = [](InferContext&) {},
                                  .cpu_kernel = [](KernelContext&) {},
                                  .gpu = false,
                                  .mutated_inputs = 0b1};
  const DeviceScope on("/gpu:0");
  const Tensor variable = ones({2});
  const Tensor* inputs[] = {&variable};
  EXPECT_EQ(error_of<InvalidArgumentError>([&] { run_update(host_only, inputs, NoAttrs()); }),
            std::string("[HostOnlyWrite] is to write a variable on ") + kGpu0 +
                ", and has no kernel for such devices: create the variable on a CPU");
}

TEST(Tensor, UndefinedTensorsAreReported) {
  const Tensor none;
  EXPECT_FALSE(none.defined());
  EXPECT_THROW(none.shape(), FailedPreconditionError);
  EXPECT_THROW(none + none, FailedPreconditionError);
}

TEST(Tensor, ReadingAsAnotherTypeIsAnError) {
  const Tensor a = constant({1.0, 2.0});
  EXPECT_THROW(a.to_vector<double>(), InvalidArgumentError);
  EXPECT_THROW(a.data<double>(), InvalidArgumentError);
}

TEST(Placement, SetDeviceStaysOpen) {
  testing::use_gpus(2);
  EXPECT_EQ(cuda::current_device(), 0);
  cuda::set_device(1);
  EXPECT_EQ(cuda::current_device(), 1);
  EXPECT_EQ(matmul(matrix(), matrix()).device(), kGpu1);
  {
    DeviceScope cpu("/cpu:0");
    EXPECT_EQ(matrix().device(), kCpu0);
    EXPECT_EQ(error_of<FailedPreconditionError>([] { cuda::set_device(0); }),
              "[set_device] a td::DeviceScope is open on this thread: call set_device() outside of "
              "it, or open a td::DeviceScope");
  }
  EXPECT_EQ(matrix().device(), kGpu1);
  cuda::set_device(0);
  EXPECT_EQ(matrix().device(), kGpu0);
  EXPECT_EQ(error_of<InvalidArgumentError>([] { cuda::set_device(7); }).substr(0, 41),
            "[set_device] there is no device '/gpu:7';");
  EXPECT_EQ(matrix().to(DeviceType::CPU).device(), kCpu0);
  EXPECT_EQ(matrix().to(Device("cuda:1")).device(), kGpu1);
}

}  // namespace
}  // namespace tandem::placement_test
