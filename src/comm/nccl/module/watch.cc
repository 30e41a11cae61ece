#include "comm/nccl/module/watch.h"

#include <pthread.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "comm/nccl/module/connections.h"

namespace tandem::nccl_backend {
namespace {

constexpr std::chrono::milliseconds kPause{50};
constexpr std::chrono::seconds kExitLimit{5};

}  // namespace

Watch& Watch::get() {
  static auto* const watch = new Watch;
  return *watch;
}

// CUDA shuts down at exit, after the handlers that are registered after its initialisation.
Watch::Watch() {
  std::atexit([] { get().stop(); });
  std::thread thread([this] { run(); });
  pthread_setname_np(thread.native_handle(), "nccl-watch");
  thread.detach();
}

void Watch::add(Connections& connections) {
  const std::lock_guard lock(mutex_);
  all_.push_back(&connections);
  changed_.notify_one();
}

void Watch::remove(Connections& connections) {
  const std::lock_guard lock(mutex_);
  std::erase(all_, &connections);
}

void Watch::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return !all_.empty() || stopped_; });
    if (stopped_) return;
    for (Connections* connections : all_) connections->look(Connections::Clock::now());
    lock.unlock();
    std::this_thread::sleep_for(kPause);
    lock.lock();
  }
}

void Watch::stop() noexcept {
  const std::unique_lock lock(mutex_, kExitLimit);
  if (!lock) return;
  stopped_ = true;
  changed_.notify_one();
}

}  // namespace tandem::nccl_backend
