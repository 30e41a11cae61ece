#include "comm/gloo/module/engine.h"

#include "comm/gloo/module/sigpipe.h"
#include "core/parallel.h"

namespace tandem::gloo_backend {

void Engine::add(Operation& operation) {
  pause([&] {
    if (stopped_) return;
    operations_.push_back(&operation);
    operation.step();
  });
}

void Engine::remove(Operation& operation) {
  pause([&] { std::erase(operations_, &operation); });
}

void Engine::pause(const std::function<void()>& body) {
  const NoSigpipe quiet;
  {
    const std::lock_guard lock(mutex_);
    body();
  }
  catch_up();
}

void Engine::poke() noexcept {
  pokes_.fetch_add(1);
  catch_up();
}

void Engine::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
}

// Whoever holds the lock looks at `pokes_` after giving it up, and whoever does not get it has
// counted before: one of the two sees the other.
void Engine::catch_up() noexcept {
  for (;;) {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (pokes_.load() == handled_.load()) return;
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return;
    handled_.store(pokes_.load());
    if (stopped_) continue;
    const ThreadBudget one(1);
    for (Operation* operation : operations_) operation->step();
  }
}

}  // namespace tandem::gloo_backend
