// Who advances the operations of a group: the thread that starts them, and Gloo's own, which comes
// whenever a connection has read or written. Nobody waits inside of Gloo.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

namespace tandem::gloo_backend {

class Engine {
 public:
  class Operation {
   public:
    virtual ~Operation() = default;
    // Goes on as far as it can without waiting. Called by one thread at a time.
    virtual void step() noexcept = 0;
  };

  // Steps it from now on; this thread does so first.
  void add(Operation& operation);
  // Nobody steps it any more when this returns.
  void remove(Operation& operation);
  // Runs `body` while nobody steps anything.
  void pause(const std::function<void()>& body);
  // Something may have completed. Never blocks: where another thread is stepping, that thread steps
  // once more.
  void poke() noexcept;
  // Nothing is stepped any more.
  void stop();

 private:
  void catch_up() noexcept;

  std::mutex mutex_;
  std::vector<Operation*> operations_;  // in the order of the calls
  bool stopped_ = false;
  std::atomic<std::uint64_t> pokes_{0}, handled_{0};
};

}  // namespace tandem::gloo_backend
