#include "device/cuda/module/cuda_stream.h"

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "device/cuda/module/check.h"
#include "device/gpu_policy.h"

namespace tandem::cuda {

// A pool of CUDA events, for one GPU. Thread-safe.
class CudaStream::EventPool {
 public:
  explicit EventPool(int ordinal) : ordinal_(ordinal) {}
  ~EventPool() {
    for (cudaEvent_t event : free_) cudaEventDestroy(event);
  }
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  cudaEvent_t take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        cudaEvent_t event = free_.back();
        free_.pop_back();
        return event;
      }
    }
    make_current(ordinal_);
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    return event;
  }

  void give_back(cudaEvent_t event) noexcept {
    try {
      const std::lock_guard lock(mutex_);
      free_.push_back(event);
    } catch (const std::bad_alloc&) {
      cudaEventDestroy(event);
    }
  }

 private:
  const int ordinal_;
  std::mutex mutex_;
  std::vector<cudaEvent_t> free_;
};

// A stream's host tasks, numbered from 1 in queue order, and its first unreported failure: of a
// task, a kernel, or several streams.
class CudaStream::Tasks {
 public:
  Tasks() {
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, sizeof(Fault), cudaHostAllocPortable), "cudaHostAlloc");
    fault_ = new (memory) Fault();
  }
  ~Tasks() { cudaFreeHost(fault_); }
  Tasks(const Tasks&) = delete;
  Tasks& operator=(const Tasks&) = delete;

  Fault* fault() const { return fault_; }
  std::uint64_t next() { return queued_.fetch_add(1) + 1; }
  std::uint64_t queued() const { return queued_.load(); }

  void keep(std::exception_ptr error, std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    if (error_) return;
    error_ = std::move(error);
    error_number_ = number;
    failed_.store(true);
  }

  void share(std::shared_ptr<SharedFailure> failure) {
    const std::lock_guard lock(mutex_);
    if (!shared_ || shared_->taken()) shared_ = std::move(failure);
    failed_.store(true);
  }

  // Throws the failure of a task up to `number`, of any kernel, or of several streams.
  void rethrow(std::uint64_t number) {
    throw_kernel_fault();
    if (!failed_.load()) return;
    std::exception_ptr thrown;
    {
      const std::lock_guard lock(mutex_);
      if (shared_) thrown = std::exchange(shared_, nullptr)->take();
      if (!thrown && error_ && error_number_ <= number) thrown = std::exchange(error_, nullptr);
      failed_.store(error_ != nullptr);
    }
    if (thrown) std::rethrow_exception(thrown);
  }

 private:
  void throw_kernel_fault() {
    if (std::atomic_ref(fault_->complete).load() == 0) return;
    const std::lock_guard lock(mutex_);
    if (fault_->complete != 0) throw_fault(*fault_);  // no other thread has thrown it meanwhile
  }

  Fault* fault_ = nullptr;
  std::atomic<std::uint64_t> queued_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::exception_ptr error_;
  std::uint64_t error_number_ = 0;
  std::shared_ptr<SharedFailure> shared_;
};

class CudaStream::RecordedEvent final : public StreamEvent::State {
 public:
  RecordedEvent(std::shared_ptr<EventPool> pool, std::shared_ptr<Tasks> tasks, cudaStream_t stream)
      : pool_(std::move(pool)),
        tasks_(std::move(tasks)),
        number_(tasks_->queued()),
        event_(pool_->take()) {
    const cudaError_t result = cudaEventRecord(event_, stream);
    if (result == cudaSuccess) return;
    pool_->give_back(event_);
    check(result, "cudaEventRecord");
  }
  ~RecordedEvent() override { pool_->give_back(event_); }
  RecordedEvent(const RecordedEvent&) = delete;
  RecordedEvent& operator=(const RecordedEvent&) = delete;

  bool done() const override {
    const cudaError_t result = cudaEventQuery(event_);
    if (result == cudaErrorNotReady) {
      cudaGetLastError();  // not an error: clears it, so that the next call does not return it
      return false;
    }
    check(result, "cudaEventQuery");
    return true;
  }
  void wait() override {
    check(cudaEventSynchronize(event_), "cudaEventSynchronize");
    tasks_->rethrow(number_);
  }
  cudaEvent_t handle() const { return event_; }

 private:
  std::shared_ptr<EventPool> pool_;
  std::shared_ptr<Tasks> tasks_;
  std::uint64_t number_;
  cudaEvent_t event_;
};

CudaStream::CudaStream(int ordinal, std::optional<int> priority)
    : ordinal_(ordinal), events_(std::make_shared<EventPool>(ordinal)) {
  make_current(ordinal_);
  tasks_ = std::make_shared<Tasks>();
  // Not synchronised with the default stream, which other libraries of the process may use.
  check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking,
                                     priority.value_or(kGpuPriorities.least_urgent)),
        "cudaStreamCreateWithPriority");
}

CudaStream::~CudaStream() {
  cudaStreamSynchronize(stream_);
  cudaStreamDestroy(stream_);
}

Fault* CudaStream::fault() const { return tasks_->fault(); }

void CudaStream::enqueue(std::function<void()> task) {
  struct Queued {
    std::function<void()> run;
    std::shared_ptr<Tasks> tasks;
    std::uint64_t number;
  };
  auto queued = std::make_unique<Queued>(Queued{std::move(task), tasks_, tasks_->next()});
  make_current(ordinal_);
  check(cudaLaunchHostFunc(
            stream_,
            [](void* data) {
              const std::unique_ptr<Queued> mine(static_cast<Queued*>(data));
              try {
                mine->run();
              } catch (...) {
                mine->tasks->keep(std::current_exception(), mine->number);
              }
            },
            queued.get()),
        "cudaLaunchHostFunc");
  static_cast<void>(queued.release());
}

void CudaStream::fail(std::shared_ptr<SharedFailure> failure) { tasks_->share(std::move(failure)); }

StreamEvent CudaStream::record() {
  make_current(ordinal_);
  return StreamEvent(std::make_shared<RecordedEvent>(events_, tasks_, stream_));
}

void CudaStream::wait(const StreamEvent& event) {
  if (!event.state()) return;
  const auto* recorded = dynamic_cast<const RecordedEvent*>(event.state().get());
  if (recorded == nullptr) return event.wait();  // an event of another backend
  make_current(ordinal_);
  check(cudaStreamWaitEvent(stream_, recorded->handle(), 0), "cudaStreamWaitEvent");
}

void CudaStream::synchronize() {
  const std::uint64_t number = tasks_->queued();
  check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  tasks_->rethrow(number);
}

}  // namespace tandem::cuda
