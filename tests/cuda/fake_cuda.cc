#include "cuda/fake_cuda.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "core/env.h"
#include "cuda/executor.h"
#include "device/emulated/emulated_stream.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace tandem::fake_cuda {
namespace {

struct Allocation {
  int gpu;
  std::size_t bytes;
};

using Tasks = std::vector<std::function<void()>>;

struct Stream {
  int gpu;
  EmulatedStream queue{1, "fake-cuda"};
  std::shared_ptr<Tasks> recorded{};  // null: it runs work immediately
  bool spoilt = false;                // invalidated by work that cannot be recorded
  std::atomic<int> copied{0};         // copies to or from host memory
};
Stream& of(cudaStream_t stream) { return *reinterpret_cast<Stream*>(stream); }

struct State {
  std::mutex mutex;
  std::vector<Gpu> gpus;
  cudaError_t error = cudaSuccess;
  std::vector<Stream*> streams;
  std::map<void*, Allocation> memory;
  std::map<const char*, std::size_t> pinned;
  GraphCounts graphs;  // except launches
  std::atomic<int> graphs_launched{0}, enqueued{0}, copied{0}, waited{0}, cudnn{0};
  std::atomic<bool> broken{false};
  std::string what_broke;  // written once, before `broken`
};

State& state() {
  static State* const instance = new State;
  return *instance;
}

thread_local int current = 0;
thread_local Stream* recording = nullptr;  // the stream that this thread records
thread_local cudaError_t last_error = cudaSuccess;

cudaError_t keep(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

// The error of a call that waits for a GPU or enqueues work.
cudaError_t sound() { return keep(state().broken ? cudaErrorLaunchFailure : cudaSuccess); }

bool blocking() {
  static const bool value = env_bool("CUDA_LAUNCH_BLOCKING").value_or(false);
  return value;
}

// REQUIRES: the lock is held.
Gpu& in_use(int ordinal) {
  Gpu& gpu = state().gpus.at(static_cast<std::size_t>(ordinal));
  gpu.has_context = true;
  return gpu;
}

bool is_of_a_gpu(const void* memory) {
  const std::lock_guard lock(state().mutex);
  const auto after = state().memory.upper_bound(const_cast<void*>(memory));
  if (after == state().memory.begin()) return false;
  const auto& [start, allocation] = *std::prev(after);
  return memory < static_cast<char*>(start) + allocation.bytes;
}

bool is_pinned(const void* memory) {
  const std::lock_guard lock(state().mutex);
  const auto* address = static_cast<const char*>(memory);
  const auto after = state().pinned.upper_bound(address);
  if (after == state().pinned.begin()) return false;
  const auto& [start, bytes] = *std::prev(after);
  return address < start + bytes;
}

struct Recorded {
  int gpu;
  StreamEvent event;
};
Recorded& of(cudaEvent_t event) { return *reinterpret_cast<Recorded*>(event); }

}  // namespace

void set_gpus(std::vector<Gpu> gpus, cudaError_t error) {
  const std::lock_guard lock(state().mutex);
  state().gpus = std::move(gpus);
  state().error = error;
  state().broken = false;
}

void break_gpus(const std::string& why) {
  const std::lock_guard lock(state().mutex);
  state().what_broke = why;
  state().broken = true;
}

bool spoil_recording() {
  if (!recording) return false;
  return recording->spoilt = true;
}

Gpu gpu(int ordinal) {
  const std::lock_guard lock(state().mutex);
  return state().gpus.at(static_cast<std::size_t>(ordinal));
}

namespace {

// `counter`: counts work that is not recorded.
void enqueue(cudaStream_t stream, std::function<void()> task, std::atomic<int>& counter) {
  if (of(stream).recorded) return of(stream).recorded->push_back(std::move(task));
  ++counter;
  EmulatedStream& queue = of(stream).queue;
  queue.enqueue(std::move(task));
  if (blocking()) queue.synchronize();
}

}  // namespace

void enqueue(cudaStream_t stream, std::function<void()> task) {
  enqueue(stream, std::move(task), state().enqueued);
}

void follow(cudaStream_t stream, cudaStream_t earlier) {
  of(stream).queue.wait(of(earlier).queue.record());
}

GraphCounts graph_counts() {
  const std::lock_guard lock(state().mutex);
  GraphCounts counts = state().graphs;
  counts.launched = state().graphs_launched;
  return counts;
}

HostCounts host_counts() {
  return {.enqueued = state().enqueued,
          .copied = state().copied,
          .waited = state().waited,
          .cudnn = state().cudnn};
}

void count_cudnn_run() { ++state().cudnn; }

int copied_on(cudaStream_t stream) { return of(stream).copied; }

cudaError_t launch(const cudaLaunchConfig_t& config, std::function<void()> thread) {
  if (sound() != cudaSuccess) return cudaErrorLaunchFailure;
  const dim3 blocks = config.gridDim, threads = config.blockDim;
  if (blocks.x == 0 || blocks.y == 0 || blocks.z == 0 || blocks.x > INT32_MAX ||
      std::max(blocks.y, blocks.z) > 65535 || threads.x * threads.y * threads.z == 0 ||
      std::max(threads.x, threads.y) > 1024 || threads.z > 64 ||
      threads.x * threads.y * threads.z > 1024 || config.dynamicSmemBytes > 48 << 10)
    return keep(cudaErrorInvalidConfiguration);
  if (of(config.stream).gpu != current) return keep(cudaErrorInvalidResourceHandle);
  enqueue(config.stream, [=, thread = std::move(thread)] {
    if (state().broken) return;
    try {
      executor::run_grid(blocks, threads, thread);
    } catch (const executor::KernelError& error) {
      break_gpus(error.what());
    }
  });
  return cudaSuccess;
}

}  // namespace tandem::fake_cuda

using namespace tandem::fake_cuda;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = static_cast<int>(state().gpus.size());
  if (state().error == cudaSuccess && *count == 0) return keep(cudaErrorNoDevice);
  return keep(state().error);
}
cudaError_t cudaDriverGetVersion(int* version) { return *version = 12020, cudaSuccess; }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int ordinal) {
  const Gpu found = gpu(ordinal);
  *properties = {};
  std::snprintf(properties->name, sizeof(properties->name), "%s", found.name.c_str());
  properties->totalGlobalMem = found.memory;
  properties->major = found.major;
  properties->minor = found.minor;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int ordinal) {
  std::snprintf(text, static_cast<std::size_t>(length), "0000:%02X:00.0", ordinal + 1);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 0;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int ordinal) {  // creates the context, since CUDA 12
  const std::lock_guard lock(state().mutex);
  if (ordinal < 0 || static_cast<std::size_t>(ordinal) >= state().gpus.size())
    return keep(cudaErrorInvalidDevice);
  in_use(ordinal);
  current = ordinal;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* available, std::size_t* total) {
  const std::lock_guard lock(state().mutex);
  const Gpu& gpu = in_use(current);
  *total = gpu.memory;
  *available = gpu.memory - gpu.in_use;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  if (spoil_recording()) return keep(cudaErrorStreamCaptureUnsupported);
  const std::lock_guard lock(state().mutex);
  Gpu& gpu = in_use(current);
  if (sound() != cudaSuccess) return cudaErrorLaunchFailure;
  if (gpu.in_use + bytes > gpu.memory) return keep(cudaErrorMemoryAllocation);
  *memory = std::aligned_alloc(256, bytes);
#if defined(__SANITIZE_ADDRESS__)
  // the allocator unpoisons the parts that it returns
  if (blocking()) ASAN_POISON_MEMORY_REGION(*memory, bytes);
#endif
  state().memory[*memory] = {current, bytes};
  gpu.in_use += bytes;
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {  // waits for queued work
  const std::lock_guard lock(state().mutex);
  ++state().waited;
  for (Stream* stream : state().streams) stream->queue.synchronize();
  const auto found = state().memory.find(memory);
  if (found == state().memory.end()) return keep(cudaErrorInvalidValue);
  in_use(found->second.gpu).in_use -= found->second.bytes;
  state().memory.erase(found);
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) {
  if (spoil_recording()) return keep(cudaErrorStreamCaptureUnsupported);
  const std::lock_guard lock(state().mutex);
  in_use(current);
  *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  state().pinned[static_cast<char*>(*memory)] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  const std::lock_guard lock(state().mutex);
  if (state().pinned.erase(static_cast<char*>(memory)) == 0) return keep(cudaErrorInvalidValue);
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int priority) {
  const std::lock_guard lock(state().mutex);
  in_use(current).last_priority = priority;
  Stream* const made = state().streams.emplace_back(new Stream{.gpu = current});
  *stream = reinterpret_cast<cudaStream_t>(made);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::lock_guard lock(state().mutex);
  std::erase(state().streams, &of(stream));
  delete &of(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (spoil_recording()) return keep(cudaErrorStreamCaptureUnsupported);
  ++state().waited;
  return of(stream).queue.synchronize(), sound();
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (sound() != cudaSuccess) return cudaErrorLaunchFailure;
  return of(stream).queue.wait(of(event).event), cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t task, void* data) {
  if (spoil_recording()) return keep(cudaErrorStreamCaptureUnsupported);
  if (sound() != cudaSuccess) return cudaErrorLaunchFailure;
  return enqueue(stream, [task, data] { task(data); }), cudaSuccess;
}
// Copies of pageable memory block the caller, as in CUDA.
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (of(stream).gpu != current) return keep(cudaErrorInvalidResourceHandle);
  const bool by_host = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToHost;
  if (by_host) ++of(stream).copied;
  enqueue(
      stream, [=] { std::memcpy(to, from, bytes); }, by_host ? state().copied : state().enqueued);
  if (by_host && !is_pinned(kind == cudaMemcpyHostToDevice ? from : to)) {
    ++state().waited;
    of(stream).queue.synchronize();
  }
  return sound();
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from,
                              std::size_t from_pitch, std::size_t width, std::size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  if (of(stream).gpu != current) return keep(cudaErrorInvalidResourceHandle);
  if (std::max(to_pitch, from_pitch) > INT32_MAX) return keep(cudaErrorInvalidPitchValue);
  if (width > to_pitch || width > from_pitch || kind != cudaMemcpyDeviceToDevice)
    return keep(cudaErrorInvalidValue);
  enqueue(stream, [=] {
    for (std::size_t i = 0; i < height; ++i)
      std::memcpy(static_cast<char*>(to) + i * to_pitch,
                  static_cast<const char*>(from) + i * from_pitch, width);
  });
  return sound();
}
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
  if (of(stream).gpu != current) return keep(cudaErrorInvalidResourceHandle);
  enqueue(stream, [=] { std::memset(memory, value, bytes); });
  return sound();
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  if (recording || mode != cudaStreamCaptureModeThreadLocal)
    return keep(cudaErrorStreamCaptureUnsupported);
  recording = &of(stream);
  recording->recorded = std::make_shared<Tasks>();
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (recording != &of(stream)) return keep(cudaErrorStreamCaptureWrongThread);
  recording = nullptr;
  const auto tasks = std::exchange(of(stream).recorded, nullptr);
  if (of(stream).spoilt) return keep(cudaErrorStreamCaptureInvalidated);
  *graph = reinterpret_cast<cudaGraph_t>(new std::shared_ptr<Tasks>(tasks));
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return delete reinterpret_cast<std::shared_ptr<Tasks>*>(graph), cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  const std::lock_guard lock(state().mutex);
  ++state().graphs.made;
  *made = reinterpret_cast<cudaGraphExec_t>(
      new std::shared_ptr<Tasks>(*reinterpret_cast<std::shared_ptr<Tasks>*>(graph)));
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  return delete reinterpret_cast<std::shared_ptr<Tasks>*>(graph), cudaSuccess;
}
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t made, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo* result) {
  auto& before = *reinterpret_cast<std::shared_ptr<Tasks>*>(made);
  const auto& after = *reinterpret_cast<std::shared_ptr<Tasks>*>(graph);
  if (before->size() != after->size()) {
    result->result = cudaGraphExecUpdateErrorTopologyChanged;
    return keep(cudaErrorGraphExecUpdateFailure);
  }
  before = after;
  const std::lock_guard lock(state().mutex);
  ++state().graphs.updated;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  if (of(stream).gpu != current) return keep(cudaErrorInvalidResourceHandle);
  enqueue(
      stream,
      [tasks = *reinterpret_cast<std::shared_ptr<Tasks>*>(graph)] {
        for (const auto& task : *tasks) task();
      },
      state().graphs_launched);
  return sound();
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(new Recorded{.gpu = current, .event = {}});
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete &of(event), cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (of(event).gpu != of(stream).gpu) return keep(cudaErrorInvalidResourceHandle);
  if (sound() != cudaSuccess) return cudaErrorLaunchFailure;
  of(event).event = of(stream).queue.record();
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (recording) return spoil_recording(), keep(cudaErrorStreamCaptureUnsupported);
  return of(event).event.done() ? sound() : keep(cudaErrorNotReady);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  ++state().waited;
  return of(event).event.wait(), sound();
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int ordinal, int) {
  return *can = gpu(ordinal).reaches_peers ? 1 : 0, cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  const std::lock_guard lock(state().mutex);
  in_use(current).peers.push_back(peer);
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* ordinal) { return *ordinal = current, cudaSuccess; }
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* memory) {
  *attributes = {};
  if (is_pinned(memory)) attributes->type = cudaMemoryTypeHost;
  if (is_of_a_gpu(memory)) attributes->type = cudaMemoryTypeDevice;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
const char* cudaGetErrorString(cudaError_t error) {
  if (error == cudaErrorLaunchFailure && state().broken) return state().what_broke.c_str();
  return error == cudaErrorMemoryAllocation ? "out of memory" : "something is wrong";
}
const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaErrorFake";
}

}  // extern "C"
