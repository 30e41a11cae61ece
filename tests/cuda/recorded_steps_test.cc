// Parts of a program as CUDA graphs, on the fake GPUs: what is recorded, what is launched again,
// and what is launched one by one.
#include "graph/cuda_graph_segment.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "cuda/fake_cuda.h"
#include "device/cuda/module/check.h"
#include "device/cuda/module/cuda_gpus.h"
#include "device/device_name.h"
#include "device/discovery.h"
#include "op/fields.h"
#include "tandem/errors.h"

namespace tandem {
namespace {

const OpDef kOp = {.name = "Test"};

cudaStream_t stream_of(const KernelContext& c) {
  return static_cast<cudaStream_t>(c.native_stream);
}

// y = 2 x + 1, with scratch memory.
void double_and_add(KernelContext& c) {
  auto* const twice = static_cast<int*>(c.scratch(sizeof(int)));
  const int* x = c.inputs[0].as<const int>();
  int* y = c.outputs[0].as<int>();
  fake_cuda::enqueue(stream_of(c), [=] { *twice = 2 * *x; });
  fake_cuda::enqueue(stream_of(c), [=] { *y = *twice + 1; });
}
void waits_for_the_gpu(KernelContext& c) {
  double_and_add(c);
  cuda::check(cudaStreamSynchronize(stream_of(c)), "cudaStreamSynchronize");
}
void copies_from_the_host(KernelContext& c) {
  const int seven = 7;
  c.workspace->copy_from_host(c.outputs[0].data, &seven, sizeof(seven));
}

struct Added {
  int number = 5;
  TANDEM_FIELDS(number)
};
const OpDef kAddNumber = {.name = "AddNumber", .attrs = &attrs_type<Added>};

void add_number_on(KernelContext& c, int number, const int* device_arg) {
  const int* x = c.inputs[0].as<const int>();
  int* y = c.outputs[0].as<int>();
  fake_cuda::enqueue(stream_of(c), [=] { *y = *x + (device_arg ? *device_arg : number); });
}
// y = x + the number in the attributes.
void add_number(KernelContext& c) {
  const void* device_arg = DeviceArgsScope::current()->place(
      c.attrs_data,
      [](const void* attrs, void* value) {
        *static_cast<int*>(value) = static_cast<const Added*>(attrs)->number;
      },
      sizeof(int));
  add_number_on(c, c.attrs<Added>().number, static_cast<const int*>(device_arg));
}
void keeps_number(KernelContext& c) { add_number_on(c, c.attrs<Added>().number, nullptr); }

// Applies `kernels` to x in sequence, each with its own memory.
class Chain {
 public:
  explicit Chain(const std::vector<KernelFn>& kernels) {
    fake_cuda::set_gpus({{.memory = std::size_t{1} << 30}});
    device_ = cuda::find_gpus()[0]->make_device(
        {.name = local_device_name("GPU", 0), .memory_limit = 64 << 20});
    for (std::size_t i = 0; i <= kernels.size() + 16; ++i)
      places_.push_back(device_->allocator().allocate(sizeof(int)));
    std::vector<ProgramStep*> steps;
    for (std::size_t i = 0; i < kernels.size(); ++i) {
      BlockOperation& operation = *operations_.emplace_back(std::make_unique<BlockOperation>());
      operation.op = kernels[i] == double_and_add ? &kOp : &kAddNumber;
      operation.device = device_.get();
      ProgramStep& step = *steps_.emplace_back(std::make_unique<ProgramStep>());
      step.kernel = kernels[i];
      step.operation = &operation;
      step.attrs = std::make_shared<Added>();
      step.context.op = operation.op;
      step.context.attrs_data = step.attrs.get();
      step.context.workspace = device_.get();
      step.context.inputs.push_back({places_[i], int32, Shape::scalar()});
      step.context.outputs.push_back({places_[i + 1], int32, Shape::scalar()});
      steps.push_back(&step);
    }
    recorded_ = std::make_unique<CudaGraphSegment>(*as_native(*device_), steps);
  }
  ~Chain() {
    recorded_.reset();
    device_->stream().synchronize();
    for (void* place : places_) device_->allocator().deallocate(place);
  }

  // Selects one of 16 addresses for x.
  void read_from(std::size_t place) {
    steps_.front()->context.inputs[0].data = places_[steps_.size() + 1 + place];
  }
  // From now on, the attributes of step `i` are updated at the start of each run.
  void set_update(std::size_t i, std::shared_ptr<const AttrUpdate> update) {
    operations_[i]->attr_update = std::move(update);
  }
  // The result; -1 if the kernels were not enqueued.
  int run(int x) {
    for (const auto& step : steps_)
      if (const auto& update = step->operation->attr_update)
        (*update)(const_cast<void*>(step->attrs.get()), 1);
    device_->copy_from_host(steps_.front()->context.inputs[0].data, &x, sizeof(x));
    if (!recorded_->run()) return -1;
    int y = 0;
    device_->copy_to_host(&y, steps_.back()->context.outputs[0].data, sizeof(y));
    device_->stream().synchronize();
    return y;
  }
  DeviceImpl& device() { return *device_; }

 private:
  std::unique_ptr<DeviceImpl> device_;
  std::vector<std::unique_ptr<BlockOperation>> operations_;
  std::vector<void*> places_;
  std::vector<std::unique_ptr<ProgramStep>> steps_;
  std::unique_ptr<CudaGraphSegment> recorded_;
};

TEST(CudaGraphSegment, AreLaunchedAsOneFromTheSecondRunOn) {
  Chain chain({double_and_add, double_and_add, double_and_add});
  EXPECT_EQ(chain.run(1), 15);
  EXPECT_EQ(fake_cuda::graph_counts().made, 0) << "the first run is for the libraries";
  for (int x = 2; x < 6; ++x) EXPECT_EQ(chain.run(x), 8 * x + 7);
  EXPECT_EQ(fake_cuda::graph_counts().made, 1);
  EXPECT_EQ(fake_cuda::graph_counts().launched, 4);
}

TEST(CudaGraphSegment, KeepOneForEachOfAFewAddresses) {
  Chain chain({double_and_add, double_and_add});
  for (int i = 0; i < 20; ++i) {
    chain.read_from(static_cast<std::size_t>(i % 3));
    EXPECT_EQ(chain.run(i), 4 * i + 3);
  }
  EXPECT_EQ(fake_cuda::graph_counts().made, 3);
  EXPECT_EQ(fake_cuda::graph_counts().updated, 0);
  EXPECT_EQ(fake_cuda::graph_counts().launched, 19);
}

TEST(CudaGraphSegment, TheOldestIsChangedForOtherAddresses) {
  Chain chain({double_and_add, double_and_add});
  int runs = 0;
  for (std::size_t place = 0; place < 8; ++place)
    for (int again = 0; again < 3; ++again, ++runs) {
      chain.read_from(place);
      EXPECT_EQ(chain.run(runs), 4 * runs + 3);
    }
  EXPECT_EQ(fake_cuda::graph_counts().made, 4);
  EXPECT_EQ(fake_cuda::graph_counts().updated, 4);
}

TEST(CudaGraphSegment, WithOtherMemoryInEachRunAreStopped) {
  Chain chain({double_and_add, double_and_add});
  int last = 0;
  for (int i = 0; i < 64 && last != -1; ++i) {
    chain.read_from(static_cast<std::size_t>(i % 16));
    last = chain.run(i);
    EXPECT_TRUE(last == 4 * i + 3 || last == -1) << last;
  }
  EXPECT_EQ(last, -1);
}

TEST(CudaGraphSegment, TheirWorkspaceIsNotShared) {
  Chain chain({double_and_add, double_and_add});
  for (int x = 0; x < 3; ++x) chain.run(x);
  // The allocator's free memory is allocated here, and overwritten between the runs.
  std::vector<void*> others(48);
  for (void*& other : others) other = chain.device().allocator().allocate(1 << 20);
  const std::vector<int> ones((1 << 20) / sizeof(int), 1);
  for (int x = 3; x < 6; ++x) {
    for (void* other : others) chain.device().copy_from_host(other, ones.data(), 1 << 20);
    EXPECT_EQ(chain.run(x), 4 * x + 3);
  }
  int other = 0;
  for (void* memory : others) {
    chain.device().copy_to_host(&other, memory, sizeof(other));
    chain.device().stream().synchronize();
    EXPECT_EQ(other, 1);
    chain.device().allocator().deallocate(memory);
  }
}

TEST(CudaGraphSegment, WhatCannotBeRecordedIsLaunchedOneByOne) {
  for (KernelFn kernel : {waits_for_the_gpu, copies_from_the_host}) {
    Chain chain({double_and_add, kernel});
    EXPECT_EQ(chain.run(1), 7);
    EXPECT_EQ(chain.run(1), -1);
    EXPECT_EQ(chain.run(1), -1);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  }
  EXPECT_EQ(fake_cuda::graph_counts().made, 0);
}

// Updates a step to the value of `number` in each run.
std::shared_ptr<const AttrUpdate> update_from(const int& number) {
  return std::make_shared<const AttrUpdate>(
      [&number](void* attrs, std::int64_t) { static_cast<Added*>(attrs)->number = number; });
}

TEST(CudaGraphSegment, TakeAttributesThatChange) {
  Chain chain({double_and_add, add_number, add_number});
  int number = 0;
  chain.set_update(1, update_from(number));
  EXPECT_EQ(chain.run(1), 3 + 0 + 5);
  const int copied = fake_cuda::host_counts().copied;
  for (number = 1; number < 6; ++number) EXPECT_EQ(chain.run(number), 2 * number + 1 + number + 5);
  EXPECT_EQ(fake_cuda::graph_counts().made, 1);
  EXPECT_EQ(fake_cuda::graph_counts().launched, 5);
  EXPECT_EQ(fake_cuda::host_counts().copied - copied, 3 * 5) << "x, the number, and the result";
}

TEST(CudaGraphSegment, CopyAttributesThatHaveChangedAlone) {
  Chain chain({double_and_add, add_number});
  int number = 7;
  chain.set_update(1, update_from(number));
  for (int x = 0; x < 3; ++x) EXPECT_EQ(chain.run(x), 2 * x + 8);
  const int copied = fake_cuda::host_counts().copied;
  for (int x = 0; x < 3; ++x) EXPECT_EQ(chain.run(x), 2 * x + 8);
  EXPECT_EQ(fake_cuda::host_counts().copied - copied, 2 * 3) << "x and the result";
  number = 9;
  EXPECT_EQ(chain.run(1), 12);
}

TEST(CudaGraphSegment, EachRecordingHasItsAttributes) {
  Chain chain({double_and_add, add_number});
  int number = 0;
  chain.set_update(1, update_from(number));
  for (number = 1; number < 20; ++number) {  // with four recordings, of which the oldest is updated
    chain.read_from(static_cast<std::size_t>(number / 3 % 6));
    EXPECT_EQ(chain.run(number), 3 * number + 1);
  }
  EXPECT_EQ(fake_cuda::graph_counts().made, 4);
  EXPECT_GT(fake_cuda::graph_counts().updated, 0);
}

TEST(CudaGraphSegment, KernelsThatKeepAttributesThatChangeAreLaunchedOneByOne) {
  Chain chain({double_and_add, keeps_number});
  int number = 1;
  chain.set_update(1, update_from(number));
  EXPECT_EQ(chain.run(1), 3 + 1);
  EXPECT_EQ(chain.run(1), -1);
  EXPECT_EQ(fake_cuda::graph_counts().made, 0);
}

}  // namespace
}  // namespace tandem
