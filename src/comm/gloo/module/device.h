// Gloo's device, whose thread handles the events of all connections.
#pragma once

#include <gloo/transport/tcp/device.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "comm/rendezvous/socket.h"
#include "core/threads.h"

namespace tandem::gloo_backend {

// Gloo's own thread ends the process when its descriptors are gone, because other code of the
// process has closed them. A thread of this class takes its place. Thread-safe.
class GlooDevice final : public gloo::transport::tcp::Device {
 public:
  // Throws what Gloo throws; ResourceExhaustedError.
  explicit GlooDevice(const gloo::transport::tcp::attr& attributes);
  ~GlooDevice() override;

  // The thread collects no event of the descriptor any more, but may handle earlier ones.
  void forget(int descriptor) noexcept;
  // Returns when the thread has handled all events that it had collected before; at once in a
  // forked process, which has no such thread. REQUIRES: not the device's thread.
  void pass() noexcept;
  // Whether the thread hears of events. False once its descriptor is gone.
  bool hears() const { return hears_; }

 private:
  class Wake final : public gloo::transport::tcp::Handler {
   public:
    Wake();
    void signal() const noexcept;
    void handleEvents(int events) override;
    const Socket event;
  };

  void take_over();
  void run();

  const OwnProcess process_;
  Wake wake_;
  std::atomic<bool> hears_ = true;
  std::mutex mutex_;
  std::condition_variable passed_;
  std::uint64_t round_ = 0;  // how often the thread has collected events; guarded by mutex_
};

}  // namespace tandem::gloo_backend
