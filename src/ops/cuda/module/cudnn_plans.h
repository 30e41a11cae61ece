// Makes, caches and runs the plans of cuDNN graphs, per device.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "ops/cuda/cudnn.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/module/cudnn_engines.h"
#include "ops/cuda/module/cudnn_graph.h"

namespace tandem::cuda {

class CudnnOnDevice;

class CudnnPlan {
 public:
  CudnnOnDevice* device = nullptr;
  CudnnGraph graph;
  std::vector<CudnnEngine>
      engines;  // the first one runs; if there are several, autotuning is pending
  std::atomic<std::size_t> workspace = 0;  // enough for each of them
};

// Addresses of tensors by their ids, in GPU memory, or in host memory for tensors by value.
using CudnnAddresses = std::array<void*, 16>;

// cuDNN on one logical device. Lives as long as the process.
class CudnnOnDevice {
 public:
  // REQUIRES: the device's GPU is the thread's current device.
  static CudnnOnDevice& of(const CudnnLibrary& library, const CudaDevice& device);

  // Returns null if there is no engine. This is cached, too.
  CudnnPlan* plan(const CudnnConv& conv, unsigned alignment);
  CudnnPlan* plan(const CudnnAttention& attention);

  void run(CudnnPlan& plan, const CudnnAddresses& addresses, void* workspace, cudaStream_t stream);

 private:
  template <class Key>
  using Plans = std::map<Key, std::unique_ptr<CudnnPlan>>;

  explicit CudnnOnDevice(const CudnnLibrary& library);
  template <class Key, class Make>
  CudnnPlan* cached_plan(Plans<Key>& plans, const Key& key, const Make& make);
  std::unique_ptr<CudnnPlan> make(CudnnGraph graph, DType dtype);
  void keep_fastest(CudnnPlan& plan, const Descriptor& pack);

  const CudnnLibrary& library_;
  const EngineRules rules_;
  cudnnHandle_t handle_ = nullptr;
  std::mutex mutex_;
  cudaStream_t stream_ = nullptr;  // the stream that is set on the handle
  Plans<std::pair<CudnnConv, unsigned>> convolutions_;
  Plans<CudnnAttention> attentions_;
};

}  // namespace tandem::cuda
