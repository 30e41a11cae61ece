#include "device/emulated/emulated_stream.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <limits>
#include <mutex>
#include <utility>
#include <vector>

#include "core/core_yield.h"
#include "core/parallel.h"
#include "core/status.h"
#include "core/threads.h"

namespace tandem {
namespace {

// Whether this thread runs a stream's tasks.
thread_local bool stream_thread = false;

constexpr int kSpins = 400;  // some microseconds, less than the cost of a wake-up
constexpr std::chrono::seconds kExitLimit{5};

}  // namespace

// The queued tasks, numbered from 1, and the number of those that are done.
class EmulatedStream::Queue {
 public:
  // `waits`: the task waits for other streams, which is no work.
  void push(std::function<void()> task, std::size_t bytes = 0, bool waits = false) {
    process_.expect_this("emulated GPU");
    const std::lock_guard<std::mutex> lock(mutex_);
    pending_.push_back({std::move(task), bytes, waits});
    held_.fetch_add(bytes);
    queued_.store(queued_.load(std::memory_order_relaxed) + 1);
    if (sleeping_) work_.notify_one();
  }

  // Waits until a task that holds `bytes` may be queued.
  void wait_for_room(std::size_t bytes) {
    if (stream_thread) return;
    process_.expect_this("emulated GPU");
    while (!has_room(bytes) && !halted()) {
      const std::uint64_t done = done_.load(), under_way = queued() - done;
      wait_done(done + (under_way + 1) / 2);
    }
  }

  std::uint64_t queued() const { return queued_.load(); }
  bool done(std::uint64_t number) const { return done_.load() >= number; }
  bool halted() const { return halting_.load(); }
  bool on_worker() const { return std::this_thread::get_id() == worker_.load(); }

  // Blocks until task `number` is done or the process exits.
  void wait_done(std::uint64_t number) {
    if (!process_.is_this()) return;
    for (int i = 0; i < kSpins && !done(number); ++i) pause_core();
    if (done(number)) return;
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      awaited_.store(std::min(awaited_.load(), number));
      if (done(number) || halted()) return;
      progress_.wait(lock);
    }
  }

  // As wait_done(), then throws the stored exception if a task up to `number` raised it.
  void wait(std::uint64_t number) {
    if (done(number) && !failed_.load()) return;
    if (on_worker())
      fail<InternalError>("[Stream] a task waits for its own stream, which would never end");
    process_.expect_this("emulated GPU");
    wait_done(number);
    if (!done(number))
      fail<UnavailableError>("[Stream] waiting for a device while the process exits");
    std::exception_ptr thrown;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (error_ && error_number_ <= number) {
        thrown = std::exchange(error_, nullptr);
        failed_.store(false);
      }
    }
    if (thrown) std::rethrow_exception(thrown);
  }

  void work() {
    worker_.store(std::this_thread::get_id());
    stream_thread = true;
    std::vector<QueuedTask> batch;
    while (take(batch)) {
      for (QueuedTask& task : batch) {
        if (halted()) park();
        const auto begin = Clock::now();
        try {
          task.run();
        } catch (...) {
          keep(std::current_exception());
        }
        if (!task.waits) busy_.fetch_add((Clock::now() - begin).count());
        task.run = nullptr;  // frees what it held before the task counts as done
        held_.fetch_sub(task.bytes);
        const std::uint64_t number = done_.load(std::memory_order_relaxed) + 1;
        if (std::has_single_bit(number)) halt_at_exit();
        done_.store(number);
        if (number >= awaited_.load()) {
          {
            const std::lock_guard<std::mutex> lock(mutex_);
            awaited_.store(kNone);  // waiters for later tasks register again
          }
          progress_.notify_all();
        }
      }
      batch.clear();
    }
  }

  double busy_share() const {
    const auto elapsed = Clock::now().time_since_epoch().count() - measured_from_.load();
    return elapsed > 0 ? static_cast<double>(busy_.load()) / static_cast<double>(elapsed) : 0.0;
  }
  void reset_busy_share() {
    busy_.store(0);
    measured_from_.store(Clock::now().time_since_epoch().count());
  }

  // No more tasks will be queued: work() returns when all are done.
  void close() {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
    work_.notify_one();
  }

  void join(std::thread& worker) { process_.join(worker); }

  static void add(const std::shared_ptr<Queue>& queue) {
    const std::lock_guard<std::mutex> lock(all().mutex);
    all().queues.push_back(queue);
    halt_at_exit();
  }
  static void remove(const std::shared_ptr<Queue>& queue) {
    const std::lock_guard<std::mutex> lock(all().mutex);
    std::erase(all().queues, queue);
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct QueuedTask {
    std::function<void()> run;
    std::size_t bytes = 0;
    bool waits = false;
  };
  static constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();

  bool has_room(std::size_t bytes) const {
    const std::size_t held = held_.load();
    const std::uint64_t done = done_.load();  // read first, so that it never exceeds queued()
    return queued() - done < kMostTasks && (held == 0 || held + bytes <= kMostBytes);
  }

  struct All {
    std::mutex mutex;
    std::vector<std::shared_ptr<Queue>> queues;
  };
  static All& all() {
    static All* const instance = new All;
    return *instance;
  }

  // Tasks use objects that are destroyed at process exit (kernel tables, oneDNN's caches), in the
  // reverse order of their creation by the first kernels. The queues must halt before that.
  static void halt_all() {
    const std::lock_guard<std::mutex> lock(all().mutex);
    const auto deadline = std::chrono::steady_clock::now() + kExitLimit;
    for (const std::shared_ptr<Queue>& queue : all().queues) queue->halt();
    for (const std::shared_ptr<Queue>& queue : all().queues) queue->await_halt(deadline);
  }

  // When the main thread exits, its thread-local objects are destroyed before all static objects.
  // This one is created when the library is loaded.
  struct MainThreadEnd {
    ~MainThreadEnd() {
      if (gettid() == getpid()) halt_all();
    }
  };
  static bool halt_at_end_of_main_thread() {
    static thread_local const MainThreadEnd end;
    return true;
  }
  static const bool kHaltsAtEndOfMainThread;

  // For an exit on another thread, which does not destroy the main thread's objects. The handler
  // runs in order with the destruction of static objects, so it is registered again as work
  // proceeds, at increasing intervals.
  static void halt_at_exit() { std::atexit(halt_all); }

  void halt() {
    const std::lock_guard<std::mutex> lock(mutex_);
    halting_.store(true);
    work_.notify_one();
    progress_.notify_all();
  }

  void await_halt(std::chrono::steady_clock::time_point deadline) {
    if (on_worker() || !process_.is_this()) return;
    std::unique_lock<std::mutex> lock(mutex_);
    parking_.wait_until(lock, deadline, [&] { return parked_; });
  }

  [[noreturn]] void park() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      parked_ = true;
      parking_.notify_all();
    }
    for (;;) pause();
  }

  bool take(std::vector<QueuedTask>& batch) {
    for (int i = 0; i < kSpins && done(queued()) && !halted(); ++i) pause_core();
    std::unique_lock<std::mutex> lock(mutex_);
    sleeping_ = true;
    work_.wait(lock, [&] { return !pending_.empty() || closed_ || halted(); });
    sleeping_ = false;
    if (halted()) {
      lock.unlock();
      park();
    }
    batch.swap(pending_);
    return !batch.empty();
  }

  void keep(std::exception_ptr error) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (error_) return;
    error_ = std::move(error);
    error_number_ = done_.load() + 1;
    failed_.store(true);
  }

  OwnProcess process_;
  std::mutex mutex_;
  std::condition_variable work_, progress_, parking_;
  std::vector<QueuedTask> pending_;
  bool sleeping_ = false, closed_ = false, parked_ = false;
  std::exception_ptr error_;  // the first one that was not thrown yet
  std::uint64_t error_number_ = 0;
  std::atomic<bool> failed_{false};
  std::atomic<bool> halting_{false};
  std::atomic<std::uint64_t> queued_{0}, done_{0};
  std::atomic<std::uint64_t> awaited_{kNone};  // the first task that a thread waits for
  std::atomic<std::size_t> held_{0};           // bytes
  std::atomic<std::thread::id> worker_;
  std::atomic<Clock::rep> busy_{0};
  std::atomic<Clock::rep> measured_from_{Clock::now().time_since_epoch().count()};
};

const bool EmulatedStream::Queue::kHaltsAtEndOfMainThread = halt_at_end_of_main_thread();

class EmulatedStream::QueueEvent final : public StreamEvent::State {
 public:
  QueueEvent(std::shared_ptr<Queue> queue, std::uint64_t number)
      : queue_(std::move(queue)), number_(number) {}
  bool done() const override { return queue_->done(number_); }
  void wait() override { queue_->wait(number_); }
  bool belongs_to(const Queue* queue) const { return queue_.get() == queue; }

 private:
  std::shared_ptr<Queue> queue_;
  std::uint64_t number_;
};

EmulatedStream::EmulatedStream(int intra_op_threads, const std::string& thread_name)
    : queue_(std::make_shared<Queue>()), thread_(start_thread([queue = queue_, intra_op_threads] {
        const ThreadBudget budget(intra_op_threads);
        queue->work();
      })) {
  pthread_setname_np(thread_.native_handle(), thread_name.c_str());
  Queue::add(queue_);
}

EmulatedStream::~EmulatedStream() {
  queue_->close();
  queue_->join(thread_);
  Queue::remove(queue_);
}

void EmulatedStream::enqueue(std::function<void()> task, std::size_t bytes) {
  queue_->wait_for_room(bytes);
  queue_->push(std::move(task), bytes);
}

void EmulatedStream::enqueue_at_once(std::function<void()> task) { queue_->push(std::move(task)); }

StreamEvent EmulatedStream::record() {
  return StreamEvent(std::make_shared<QueueEvent>(queue_, queue_->queued()));
}

void EmulatedStream::wait(const StreamEvent& event) {
  if (!event.state()) return;
  const auto* own = dynamic_cast<const QueueEvent*>(event.state().get());
  if (own != nullptr && own->belongs_to(queue_.get())) return;
  queue_->push([event] { event.wait(); }, 0, true);
}

void EmulatedStream::follow(const EmulatedStream& other) {
  queue_->push(
      [queue = other.queue_, number = other.queue_->queued()] { queue->wait_done(number); }, 0,
      true);
}

double EmulatedStream::busy_share() const { return queue_->busy_share(); }
void EmulatedStream::reset_busy_share() { queue_->reset_busy_share(); }

void EmulatedStream::synchronize() { queue_->wait(queue_->queued()); }

void EmulatedStream::drain() {
  if (!queue_->on_worker()) queue_->wait_done(queue_->queued());
}

}  // namespace tandem
