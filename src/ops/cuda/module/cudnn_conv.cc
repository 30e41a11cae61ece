// Plans of convolutions: made once a device, remembered, run.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "core/log.h"
#include "ops/cuda/cudnn.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/module/cudnn_graph.h"

namespace tandem::cuda {

class CudnnOnDevice;

class CudnnPlan {
 public:
  CudnnOnDevice* device = nullptr;
  std::vector<Descriptor> graph;
  std::vector<Engine> engines;  // the first runs; where there are several, they were not tried yet
  bool bias = false;
  std::atomic<std::size_t> workspace = 0;  // enough for each of them
};

// The library as one logical device uses it. Lives as long as the process.
class CudnnOnDevice {
 public:
  // REQUIRES: the device's GPU is the thread's.
  static CudnnOnDevice& of(const CudnnLibrary& library, const CudaDevice& device) {
    static std::mutex mutex;
    static auto* const all = new std::map<const CudaDevice*, std::unique_ptr<CudnnOnDevice>>;
    const std::lock_guard lock(mutex);
    std::unique_ptr<CudnnOnDevice>& mine = (*all)[&device];
    if (!mine) mine.reset(new CudnnOnDevice(library));
    return *mine;
  }

  CudnnPlan* plan(const CudnnConv& conv, unsigned alignment) {
    const std::lock_guard lock(mutex_);
    const auto [at, is_new] = plans_.try_emplace({conv, alignment});
    if (!is_new) return at->second.get();
    try {
      at->second = make(conv, alignment);
    } catch (...) {
      plans_.erase(at);
      throw;
    }
    return at->second.get();
  }

  void run(CudnnPlan& plan, const ConvMemory& memory, void* workspace, cudaStream_t stream) {
    const std::lock_guard lock(mutex_);
    if (stream_ != stream) {
      check_cudnn(library_, library_.set_stream(handle_, stream), "cudnnSetStream");
      stream_ = stream;
    }
    Descriptor pack(library_, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    std::vector<std::int64_t> ids = {kIdX, kIdKernel, kIdY};
    std::vector<void*> addresses = {memory.x, memory.kernel, memory.y};
    if (plan.bias) {
      ids.push_back(kIdBias);
      addresses.push_back(memory.bias);
    }
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids);
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, addresses);
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace);
    pack.finalize("a variant pack");
    if (plan.engines.size() > 1) keep_fastest(plan, pack);
    check_cudnn(library_, execute(plan.engines.front(), pack), "cudnnBackendExecute");
  }

 private:
  explicit CudnnOnDevice(const CudnnLibrary& library)
      : library_(library), rules_(rules_of_environment()) {
    check_cudnn(library, library.create(&handle_), "cudnnCreate");
  }

  std::unique_ptr<CudnnPlan> make(const CudnnConv& conv, unsigned alignment) {
    const CudnnTarget target{.handle = handle_};
    auto made = std::make_unique<CudnnPlan>();
    made->device = this;
    made->bias = conv.bias;
    made->graph = make_graph(library_, target, conv, alignment);
    if (!made->graph.empty())
      made->engines = find_engines(library_, target, made->graph.back(), conv.shape.dtype, rules_);
    if (made->engines.empty()) {
      // Of one with a bias or an activation the convolution alone is asked for next.
      if (!conv.bias && conv.activation == nn::Activation::kLinear) warn_of(conv.shape);
      return nullptr;
    }
    std::int64_t most = 0;
    for (const Engine& each : made->engines) most = std::max(most, each.workspace);
    made->workspace = static_cast<std::size_t>(most);
    return made;
  }

  static void warn_of(const ConvShape& s) {
    logging::warn(
        "cuDNN has no engine for a convolution of {} pictures of {}x{}x{} to {}x{}x{} by {}x{} "
        "windows in {}: Tandem's own kernel computes it, which is slow",
        s.n, s.h, s.w, s.in, s.oh, s.ow, s.out, s.kh, s.kw, name_of(s.dtype));
  }

  cudnnStatus_t execute(const Engine& engine, const Descriptor& pack) {
    return library_.execute(handle_, engine.plan.raw(), pack.raw());
  }

  // What a run of the engine takes; nothing where it fails.
  std::optional<double> seconds_of(const Engine& engine, const Descriptor& pack) {
    constexpr int kRuns = 3;
    if (execute(engine, pack) != CUDNN_STATUS_SUCCESS) return std::nullopt;
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kRuns; ++i)
      if (execute(engine, pack) != CUDNN_STATUS_SUCCESS) return std::nullopt;
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / kRuns;
  }

  // Leaves the plan one engine. All of them compute the same, so that trying is running.
  void keep_fastest(CudnnPlan& plan, const Descriptor& pack) {
    std::size_t fastest = 0;
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < plan.engines.size(); ++i) {
      const std::optional<double> seconds = seconds_of(plan.engines[i], pack);
      if (!seconds || *seconds >= least) continue;
      fastest = i;
      least = *seconds;
    }
    std::swap(plan.engines.front(), plan.engines[fastest]);
    plan.engines.erase(plan.engines.begin() + 1, plan.engines.end());
    plan.workspace = static_cast<std::size_t>(plan.engines.front().workspace);
  }

  const CudnnLibrary& library_;
  const EngineRules rules_;
  cudnnHandle_t handle_ = nullptr;
  std::mutex mutex_;
  cudaStream_t stream_ = nullptr;  // the handle's
  std::map<std::pair<CudnnConv, unsigned>, std::unique_ptr<CudnnPlan>> plans_;
};

CudnnPlan* cudnn_plan(KernelContext& context, const CudnnConv& conv, unsigned alignment) {
  const CudnnLibrary* const library = cudnn();
  if (!library) return nullptr;
  return CudnnOnDevice::of(*library, device_of(context)).plan(conv, alignment);
}

void cudnn_run(KernelContext& context, CudnnPlan& plan, const ConvMemory& memory) {
  plan.device->run(plan, memory, context.scratch(plan.workspace), stream_of(context));
}

}  // namespace tandem::cuda
