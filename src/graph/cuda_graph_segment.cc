#include "graph/cuda_graph_segment.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "comm/device_memory.h"
#include "core/env.h"
#include "core/log.h"
#include "core/profile.h"
#include "core/status.h"
#include "op/scratch_scope.h"

namespace tandem {
namespace {

constexpr std::size_t kKept = 4;  // CUDA graphs
constexpr int kMostWasted = 8;

}  // namespace

// The workspace of all CUDA graphs on a device, which run one after another. A CUDA graph that
// needs more allocates a larger one, which later ones use as well.
struct CudaGraphSegment::SharedWorkspace {
  std::shared_ptr<void> memory;
  std::size_t bytes = 0;

  static std::shared_ptr<SharedWorkspace> on(DeviceImpl& device, std::size_t bytes) {
    static std::mutex mutex;
    static auto* const all = new std::map<DeviceImpl*, std::weak_ptr<SharedWorkspace>>;
    const std::lock_guard lock(mutex);
    std::weak_ptr<SharedWorkspace>& known = (*all)[&device];
    std::shared_ptr<SharedWorkspace> workspace = known.lock();
    if (workspace && workspace->bytes >= bytes) return workspace;
    const Scoped tag(memory_tag, MemoryTag::kWorkspace);
    workspace = std::make_shared<SharedWorkspace>();
    workspace->memory = allocate_on(device, bytes, "graph", "workspace of recorded operations");
    workspace->bytes = bytes;
    known = workspace;
    return workspace;
  }
};

bool CudaGraphSegment::takes(const ProgramStep& step) {
  return step.kernel && !step.member && !step.started && !step.awaits;
}

bool CudaGraphSegment::enabled() {
  static const bool value = env_bool("TANDEM_CUDA_GRAPHS").value_or(true);
  return value;
}

CudaGraphSegment::CudaGraphSegment(NativeGpu& gpu, std::vector<ProgramStep*> steps)
    : gpu_(gpu), steps_(std::move(steps)) {}

CudaGraphSegment::~CudaGraphSegment() = default;

bool CudaGraphSegment::run() {
  if (disabled_ || profile::on()) return false;
  if (runs_++ == 0) {
    measure();
    return true;
  }
  find_addresses();
  auto found = std::find_if(recorded_.begin(), recorded_.end(),
                            [&](const Recording& each) { return each.addresses == addresses_; });
  if (found != recorded_.end()) {
    found->replayed = true;
    wasted_ = 0;
  } else {
    try {
      record();
    } catch (const ResourceExhaustedError& error) {
      // With other addresses, a library may choose an algorithm that needs more memory.
      if (++wasted_ == kMostWasted) disable(error.what());
      measure();
      return true;
    } catch (const Error& error) {
      disable(error.what());
      return false;
    }
    if (disabled_) return false;
    found = recorded_.end() - 1;
  }
  found->last_run = runs_;
  update(found->device_args);
  found->work->launch();
  return true;
}

void CudaGraphSegment::find_addresses() {
  addresses_.clear();
  for (const ProgramStep* step : steps_)
    for (const auto* views : {&step->context.inputs, &step->context.outputs})
      for (const TensorView& view : *views) addresses_.push_back(view.data);
}

void CudaGraphSegment::measure() {
  ScratchScope scratch;
  DeviceArgsScope device_args;
  const ProgramStep* unsuited = nullptr;
  for (ProgramStep* step : steps_) {
    scratch.begin_kernel();
    device_args.begin_kernel(step->operation->attr_update != nullptr);
    step->context.native_stream = gpu_.stream().native_handle();
    step->kernel(step->context);
    step->context.end_call();
    if (!device_args.complete()) unsuited = step;
  }
  workspace_ = std::max(workspace_, scratch.needed());
  device_arg_bytes_ = std::max(device_arg_bytes_, device_args.needed());
  if (unsuited)
    disable(fmt::format("the kernel of '{}' keeps attributes that change in each run",
                        unsuited->operation->op->name));
}

void CudaGraphSegment::update(DeviceArgs& device_args) {
  if (device_args.values.empty()) return;
  now_.assign(device_args.bytes, std::byte{0});
  for (const DeviceArg& value : device_args.values)
    value.compute(value.attrs, now_.data() + value.offset);
  if (now_ == device_args.there) return;
  gpu_.copy_from_host(device_args.memory.get(), now_.data(), now_.size());
  std::swap(now_, device_args.there);
}

void CudaGraphSegment::record() {
  Recording another;
  if (recorded_.size() == kKept) {
    const auto oldest = std::min_element(
        recorded_.begin(), recorded_.end(),
        [](const Recording& a, const Recording& b) { return a.last_run < b.last_run; });
    if (!oldest->replayed && ++wasted_ == kMostWasted)
      return disable("what they read or write is in other memory in each run");
    another = std::move(*oldest);
    recorded_.erase(oldest);
  }
  another.addresses = addresses_;
  another.replayed = false;
  if (workspace_ > 0) another.workspace = SharedWorkspace::on(gpu_, workspace_);
  DeviceArgs& device_args = another.device_args;
  device_args.there.clear();
  if (device_args.bytes < device_arg_bytes_) {
    const Scoped tag(memory_tag, MemoryTag::kWorkspace);
    device_args.memory = allocate_on(gpu_, device_arg_bytes_, "graph",
                                     "attributes of recorded operations that change");
    device_args.bytes = device_arg_bytes_;
  }
  another.work = gpu_.record_work(
      [&](void* native_stream) {
        ScratchScope scratch(another.workspace ? another.workspace->memory.get() : nullptr,
                             workspace_);
        DeviceArgsScope attr_update(device_args.memory.get(), device_args.bytes);
        for (ProgramStep* step : steps_) {
          scratch.begin_kernel();
          attr_update.begin_kernel(step->operation->attr_update != nullptr);
          step->context.native_stream = native_stream;
          try {
            step->kernel(step->context);
          } catch (...) {
            step->context.end_call();
            throw;
          }
          step->context.end_call();
          TANDEM_ASSERT(attr_update.complete());
        }
        device_args.values = attr_update.values();
      },
      std::move(another.work));
  recorded_.push_back(std::move(another));
  logging::debug("[graph] recorded {} operations on {} as a CUDA graph", steps_.size(),
                 gpu_.full_name());
}

void CudaGraphSegment::disable(const std::string& why) {
  disabled_ = true;
  recorded_.clear();
  logging::info("[graph] {} operations on {} are launched one by one: {}", steps_.size(),
                gpu_.full_name(), why);
}

}  // namespace tandem
