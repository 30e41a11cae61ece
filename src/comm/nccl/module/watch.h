// A thread that monitors NCCL's work on GPUs, whatever the program does meanwhile. Nothing else
// notices that a launched collective never completes on a GPU.
#pragma once

#include <condition_variable>
#include <mutex>
#include <vector>

namespace tandem::nccl_backend {

class Connections;

// Starts with the first connections and ends with the process. Thread-safe.
class Watch {
 public:
  static Watch& get();

  void add(Connections& connections);
  // When this returns, the watch no longer uses the connections.
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
