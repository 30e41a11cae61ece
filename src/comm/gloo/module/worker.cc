#include "comm/gloo/module/worker.h"

#include "comm/gloo/module/sigpipe.h"
#include "core/parallel.h"

namespace tandem::gloo_backend {

void Task::end() {
  const std::lock_guard lock(mutex_);
  ended_.store(true, std::memory_order_release);
  changed_.notify_all();
}

void Task::wait(std::chrono::microseconds limit) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, limit, [this] { return has_ended(); });
}

Worker::Worker(const Mesh& mesh) : line_(mesh) {
  thread_ = std::thread([this] {
    const NoSigpipe quiet;
    const ThreadBudget one(1);
    run();
  });
}

Worker::~Worker() { stop(); }

void Worker::add(std::shared_ptr<Task> task) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  changed_.notify_one();
}

void Worker::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_one();
  }
  line_.stop();
  if (thread_.joinable()) thread_.join();
}

void Worker::run() {
  for (;;) {
    std::shared_ptr<Task> task;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopped_ || !tasks_.empty(); });
      if (stopped_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    line_.describe(task->description);
    try {
      task->body(line_);
    } catch (const Stopped&) {
      return;
    } catch (...) {
      task->error = std::current_exception();
    }
    const bool failed = task->error != nullptr;
    task->end();
    if (failed) return;
  }
}

}  // namespace tandem::gloo_backend
