// Plans of graphs: made once a device, remembered, run.
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
  std::vector<Engine> engines;  // the first runs; where there are several, they were not tried yet
  std::atomic<std::size_t> workspace = 0;  // enough for each of them
};

// Of tensors, by their ids: in the GPU's memory, or in the host's where they are by value.
using CudnnAddresses = std::array<void*, 16>;

// The library as one logical device uses it. Lives as long as the process.
class CudnnOnDevice {
 public:
  // REQUIRES: the device's GPU is the thread's.
  static CudnnOnDevice& of(const CudnnLibrary& library, const CudaDevice& device);

  // Null where there is no engine, which is remembered too.
  CudnnPlan* plan(const CudnnConv& conv, unsigned alignment);
  CudnnPlan* plan(const CudnnAttention& attention);

  void run(CudnnPlan& plan, const CudnnAddresses& addresses, void* workspace, cudaStream_t stream);

 private:
  template <class Key>
  using Plans = std::map<Key, std::unique_ptr<CudnnPlan>>;

  explicit CudnnOnDevice(const CudnnLibrary& library);
  template <class Key, class Make>
  CudnnPlan* remembered(Plans<Key>& plans, const Key& key, const Make& make);
  std::unique_ptr<CudnnPlan> make(CudnnGraph graph, DType dtype);
  void keep_fastest(CudnnPlan& plan, const Descriptor& pack);

  const CudnnLibrary& library_;
  const EngineRules rules_;
  cudnnHandle_t handle_ = nullptr;
  std::mutex mutex_;
  cudaStream_t stream_ = nullptr;  // the handle's
  Plans<std::pair<CudnnConv, unsigned>> convolutions_;
  Plans<CudnnAttention> attentions_;
};

}  // namespace tandem::cuda
