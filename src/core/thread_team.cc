#include "core/thread_team.h"

#include "core/mutex.h"

namespace tandem {

ThreadTeam::ThreadTeam(int count) {
  hold_at_fork(mutex_);
  try {
    for (int member = 1; member < count; ++member)
      threads_.push_back(start_thread([this, member] { work(member); }));
  } catch (...) {
    stop();
    forget_at_fork(mutex_);
    throw;
  }
}

ThreadTeam::~ThreadTeam() {
  stop();
  forget_at_fork(mutex_);
}

void ThreadTeam::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  started_->notify_all();
  for (std::thread& thread : threads_) process_.join(thread);
}

// Runs follow each other within microseconds: yields for a while before sleeping.
template <class Ready>
void ThreadTeam::wait(std::condition_variable& changed, const Ready& ready) {
  for (int i = 0; i < 1000; ++i) {
    if (ready()) return;
    std::this_thread::yield();
  }
  std::unique_lock lock(mutex_);
  changed.wait(lock, ready);
}

void ThreadTeam::work(int member) {
  std::uint64_t seen = 0;
  while (true) {
    wait(*started_, [&] { return stopping_ || round_.load(std::memory_order_acquire) != seen; });
    if (stopping_) return;
    seen = round_.load(std::memory_order_acquire);
    (*task_)(member);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      { std::lock_guard lock(mutex_); }
      finished_->notify_all();
    }
  }
}

void ThreadTeam::run(const std::function<void(int)>& task) {
  if (!threads_.empty()) {
    process_.expect_this("threads of replicas and devices");
    {
      std::lock_guard lock(mutex_);
      task_ = &task;
      running_.store(static_cast<int>(threads_.size()), std::memory_order_release);
      round_.fetch_add(1, std::memory_order_release);
    }
    started_->notify_all();
  }
  task(0);
  wait(*finished_, [&] { return running_.load(std::memory_order_acquire) == 0; });
}

}  // namespace tandem
