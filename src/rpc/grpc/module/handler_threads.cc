#include "rpc/grpc/module/handler_threads.h"

#include <utility>

namespace tandem::rpc::grpc_module {

HandlerThreads::HandlerThreads(int threads, int waiting)
    : most_waiting_(static_cast<std::size_t>(waiting)) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

HandlerThreads::~HandlerThreads() {
  const std::lock_guard lock(mutex_);
  ends_ = true;
  while (Idle* const thread = last_idle()) thread->changed.notify_one();
}

bool HandlerThreads::submit(std::function<void()> task) {
  Idle* thread = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() >= most_waiting_) return false;
    waiting_.push_back(std::move(task));
    thread = last_idle();
  }
  if (thread) thread->changed.notify_one();
  return true;
}

HandlerThreads::Idle* HandlerThreads::last_idle() {
  if (idle_.empty()) return nullptr;
  Idle* const last = idle_.back();
  idle_.pop_back();
  last->woken = true;
  return last;
}

void HandlerThreads::work() {
  Idle me;
  std::unique_lock lock(mutex_);
  while (true) {
    if (!waiting_.empty()) {
      const auto task = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    } else if (ends_) {
      return;
    } else {
      me.woken = false;
      idle_.push_back(&me);
      me.changed.wait(lock, [&] { return me.woken; });
    }
  }
}

}  // namespace tandem::rpc::grpc_module
