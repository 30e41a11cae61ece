#include "comm/nccl/module/watch.h"

#include <pthread.h>

#include <chrono>
#include <cstdlib>
#include <thread>

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

void Watch::add(Client& client) {
  const std::lock_guard lock(mutex_);
  clients_.push_back(&client);
  changed_.notify_one();
}

void Watch::remove(Client& client) {
  const std::lock_guard lock(mutex_);
  std::erase(clients_, &client);
}

void Watch::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return !clients_.empty() || stopped_; });
    if (stopped_) return;
    for (Client* client : clients_) client->look(std::chrono::steady_clock::now());
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
