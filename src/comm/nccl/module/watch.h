// A thread that monitors NCCL's work on GPUs, whatever the program does meanwhile. Nothing else
// notices that a launched collective never completes on a GPU.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <vector>

namespace tandem::nccl_backend {

// Starts with the first client and ends with the process. Thread-safe.
class Watch {
 public:
  class Client;

  static Watch& get();

  void add(Client& client);
  // When this returns, the watch no longer uses the client.
  void remove(Client& client);

 private:
  Watch();
  void run();
  void stop() noexcept;

  std::timed_mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<Client*> clients_;
  bool stopped_ = false;
};

// The owner of work on GPUs.
class Watch::Client {
 public:
  virtual ~Client() = default;
  // Checks the work. Called periodically, on the watch's thread.
  virtual void look(std::chrono::steady_clock::time_point now) noexcept = 0;
};

}  // namespace tandem::nccl_backend
