#include "comm/gloo/module/engine.h"

#include "comm/gloo/module/sigpipe.h"
#include "core/parallel.h"

namespace tandem::gloo_backend {

void GlooEngine::add(Task& operation) {
  pause([&] {
    if (stopped_) return;
    operations_.push_back(&operation);
    operation.step();
  });
}

void GlooEngine::remove(Task& operation) {
  pause([&] { std::erase(operations_, &operation); });
}

void GlooEngine::pause(const std::function<void()>& body) {
  const NoSigpipe quiet;
  {
    const std::lock_guard lock(mutex_);
    body();
  }
  catch_up();
}

void GlooEngine::notify() noexcept {
  notifications_.fetch_add(1);
  catch_up();
}

void GlooEngine::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
}

// The lock's holder reads `notifications_` after releasing the lock. A thread that fails to lock
// has incremented it before. At least one of the two sees the other.
void GlooEngine::catch_up() noexcept {
  for (;;) {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (notifications_.load() == handled_.load()) return;
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return;
    handled_.store(notifications_.load());
    if (stopped_) continue;
    const ThreadBudget one(1);
    for (Task* operation : operations_) operation->step();
  }
}

}  // namespace tandem::gloo_backend
