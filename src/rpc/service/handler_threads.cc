#include "rpc/service/handler_threads.h"

#include <utility>

namespace tandem::rpc {

HandlerThreads::HandlerThreads(int handlers, int waiting, std::function<bool()> take_event)
    : most_running_(static_cast<std::size_t>(handlers)),
      most_waiting_(static_cast<std::size_t>(waiting)),
      take_event_(std::move(take_event)) {
  for (int i = 0; i < handlers + 1; ++i) threads_.emplace_back([this] { work(); });
}

bool HandlerThreads::submit(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  if (waiting_.size() >= most_waiting_) return false;
  waiting_.push_back(std::move(task));
  return true;
}

bool HandlerThreads::run_one() {
  std::function<void()> task;
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.empty() || running_ == most_running_) return false;
    task = std::move(waiting_.front());
    waiting_.pop_front();
    ++running_;
  }
  task();
  task = nullptr;
  const std::lock_guard lock(mutex_);
  --running_;
  return true;
}

// A task waits only while all handlers are busy, and each of them looks for another one.
void HandlerThreads::work() {
  while (take_event_())
    while (run_one()) {
    }
}

}  // namespace tandem::rpc
