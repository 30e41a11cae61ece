// A thread that looks after what NCCL does on GPUs, whatever the program does meanwhile: nothing
// else notices that a GPU never gets through with a collective that is enqueued.
#pragma once

#include <condition_variable>
#include <mutex>
#include <vector>

namespace tandem::nccl_backend {

class Connections;

// Starts with the first connections, and ends with the process. Thread-safe.
class Watch {
 public:
  static Watch& get();

  void add(Connections& connections);
  // They are not looked at any more when this returns.
  void remove(Connections& connections);

 private:
  Watch();
  void run();
  void stop() noexcept;

  std::timed_mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<Connections*> all_;
  bool stopped_ = false;
};

}  // namespace tandem::nccl_backend
