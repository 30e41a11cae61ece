#include "ops/cuda/module/cudnn_plans.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>

#include "core/log.h"
#include "core/status.h"
#include "device/cuda/module/cuda_graph.h"
#include "ops/cuda/module/cudnn_attention_graph.h"
#include "ops/cuda/module/cudnn_conv_graph.h"

namespace tandem::cuda {
namespace {

void warn_unsupported(const ConvShape& s) {
  logging::warn(
      "cuDNN has no engine for a convolution of {} images of {}x{}x{} to {}x{}x{} by {}x{} "
      "windows in {}: Tandem's own kernel computes it, which is slow",
      s.n, s.h, s.w, s.in, s.oh, s.ow, s.out, s.kh, s.kw, name_of(s.dtype));
}

std::string text_of(const CudnnAttention& attention) {
  const AttentionSizes& s = attention.sizes;
  return fmt::format(
      "the {} pass of {}attention of {}x{} queries to {} keys, {} heads ({} of keys) of depth {} "
      "and {}, in {}",
      attention.pass == AttentionPass::kForward ? "forward" : "backward",
      attention.causal ? "causal " : "", s.batch, s.queries, s.keys, s.heads, s.kv_heads, s.depth,
      s.value_depth, name_of(attention.dtype));
}

}  // namespace

CudnnOnDevice& CudnnOnDevice::of(const CudnnLibrary& library, const CudaDevice& device) {
  static std::mutex mutex;
  static auto* const all = new std::map<const CudaDevice*, std::unique_ptr<CudnnOnDevice>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<CudnnOnDevice>& mine = (*all)[&device];
  if (!mine) mine.reset(new CudnnOnDevice(library));
  return *mine;
}

CudnnOnDevice::CudnnOnDevice(const CudnnLibrary& library)
    : library_(library), rules_(rules_from_environment()) {
  check_cudnn(library, library.create(&handle_), "cudnnCreate");
}

template <class Key, class Make>
CudnnPlan* CudnnOnDevice::cached_plan(Plans<Key>& plans, const Key& key, const Make& make) {
  const std::lock_guard lock(mutex_);
  const auto [at, is_new] = plans.try_emplace(key);
  if (!is_new) return at->second.get();
  // Making a plan may compile and load kernels, which is not allowed while a stream is captured.
  if (StreamCapture::active()) {
    plans.erase(at);
    fail<ResourceExhaustedError>("cuDNN has no cached plan for the operation and its memory");
  }
  try {
    at->second = make();
  } catch (...) {
    plans.erase(at);
    throw;
  }
  return at->second.get();
}

CudnnPlan* CudnnOnDevice::plan(const CudnnConv& conv, unsigned alignment) {
  return cached_plan(convolutions_, {conv, alignment}, [&] {
    std::unique_ptr<CudnnPlan> made =
        make(make_graph(library_, {.handle = handle_}, conv, alignment), conv.shape.dtype);
    // If a convolution with a bias or an activation fails, the caller tries the convolution alone.
    if (!made && !conv.bias && conv.activation == nn::Activation::kLinear)
      warn_unsupported(conv.shape);
    return made;
  });
}

CudnnPlan* CudnnOnDevice::plan(const CudnnAttention& attention) {
  return cached_plan(attentions_, attention, [&] {
    std::unique_ptr<CudnnPlan> made =
        make(make_graph(library_, {.handle = handle_}, attention, rules_.deterministic),
             attention.dtype);
    if (made)
      logging::debug("cuDNN computes {}, with {} bytes of workspace", text_of(attention),
                     made->workspace.load());
    else
      logging::warn(
          "cuDNN has no engine for {} within {} MiB of workspace "
          "(TANDEM_CUDNN_WORKSPACE_LIMIT_IN_MB): Tandem's own kernels compute it, which is slow",
          text_of(attention), rules_.workspace >> 20);
    return made;
  });
}

std::unique_ptr<CudnnPlan> CudnnOnDevice::make(CudnnGraph graph, DType dtype) {
  if (!graph) return nullptr;
  auto made = std::make_unique<CudnnPlan>();
  made->device = this;
  made->graph = std::move(graph);
  made->engines =
      find_engines(library_, {.handle = handle_}, made->graph.operations(), dtype, rules_);
  if (made->engines.empty()) return nullptr;
  std::int64_t most = 0;
  for (const CudnnEngine& each : made->engines) most = std::max(most, each.workspace);
  made->workspace = static_cast<std::size_t>(most);
  return made;
}

void CudnnOnDevice::run(CudnnPlan& plan, const CudnnAddresses& addresses, void* workspace,
                        cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  if (stream_ != stream) {
    check_cudnn(library_, library_.set_stream(handle_, stream), "cudnnSetStream");
    stream_ = stream;
  }
  std::vector<void*> pointers;
  for (const std::int64_t id : plan.graph.ids)
    pointers.push_back(addresses.at(static_cast<std::size_t>(id)));
  Descriptor pack(library_, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, plan.graph.ids);
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, pointers);
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace);
  pack.finalize("a variant pack");
  if (plan.engines.size() > 1) keep_fastest(plan, pack);
  check_cudnn(library_, library_.execute(handle_, plan.engines.front().plan.raw(), pack.raw()),
              "cudnnBackendExecute");
}

// Times the plan's engines and keeps the fastest. All engines compute the same result, so the trial
// runs may write to the real output.
void CudnnOnDevice::keep_fastest(CudnnPlan& plan, const Descriptor& pack) {
  // The time of one run of the engine; nullopt if it fails.
  const auto seconds_of = [&](const CudnnEngine& engine) -> std::optional<double> {
    constexpr int kRuns = 3;
    const auto runs = [&] {
      return library_.execute(handle_, engine.plan.raw(), pack.raw()) == CUDNN_STATUS_SUCCESS;
    };
    if (!runs()) return std::nullopt;
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kRuns; ++i)
      if (!runs()) return std::nullopt;
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / kRuns;
  };
  std::size_t fastest = 0;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < plan.engines.size(); ++i) {
    const std::optional<double> seconds = seconds_of(plan.engines[i]);
    if (!seconds || *seconds >= least) continue;
    fastest = i;
    least = *seconds;
  }
  std::swap(plan.engines.front(), plan.engines[fastest]);
  plan.engines.erase(plan.engines.begin() + 1, plan.engines.end());
  plan.workspace = static_cast<std::size_t>(plan.engines.front().workspace);
}

}  // namespace tandem::cuda
