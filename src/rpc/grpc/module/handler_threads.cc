#include "rpc/grpc/module/handler_threads.h"

#include <utility>

namespace tandem::rpc::grpc_module {

HandlerThreads::HandlerThreads(int threads, int waiting)
    : most_waiting_(static_cast<std::size_t>(waiting)) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

HandlerThreads::~HandlerThreads() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
}

bool HandlerThreads::submit(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() >= most_waiting_) return false;
    waiting_.push_back(std::move(task));
  }
  changed_.notify_one();
  return true;
}

void HandlerThreads::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ends_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const auto task = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    task();
    lock.lock();
  }
}

}  // namespace tandem::rpc::grpc_module
