// The thread that advances collectives while their owners compute.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace tandem {

// One per process. Its thread starts with the first client that hands work over to it and ends
// with the last. It polls the clients once per millisecond; more often while they make progress,
// less often while their owners advance the works. When there has been nothing for it to do for a
// while it sleeps until it is woken. Thread-safe.
class ProgressEngine {
 public:
  class Client;

  static ProgressEngine& get();

  // Polls the client from now on.
  void add(Client& client) noexcept;
  // When this returns, the thread no longer uses the client. REQUIRES: not the engine's thread.
  void remove(Client& client) noexcept;
  // Called when a client has or may have work. One relaxed load while the thread is awake.
  void wake() noexcept {
    if (asleep_.load(std::memory_order_relaxed)) [[unlikely]]
      end_sleep();
  }

 private:
  enum class Look {
    kIdle,      // there is no work
    kAttended,  // the owner is in a call, or has been since the last look
    kStuck,     // the work waits for peers
    kAdvanced,
  };
  class Backoff;

  ProgressEngine() = default;
  void end_sleep() noexcept;
  void run(std::uint64_t generation);
  Look look_at_all(std::unique_lock<std::mutex>& lock);
  void stop_at_exit() noexcept;

  std::mutex mutex_;
  std::condition_variable changed_;  // wakes the thread
  std::condition_variable looked_;   // wakes those that wait for the thread
  std::vector<Client*> clients_;
  Client* current_ = nullptr;  // the client that the thread is looking at
  std::thread thread_;
  std::uint64_t generation_ = 0;  // of the thread; an older thread ends
  bool stopped_ = false;          // the process is exiting
  std::atomic<bool> asleep_{false};
};

// A user of the engine. Its state is owned by one thread at a time: by its owner while that is in a
// call, otherwise by the engine.
class ProgressEngine::Client {
 public:
  Client() = default;
  virtual ~Client() = default;
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

 protected:
  // The owner holds this lock during every call, waits included. The engine only tries to lock; if
  // it fails to for a while, it sleeps until the call ends.
  class Attendance {
   public:
    explicit Attendance(Client& client) : client_(client), lock_(client.mutex_) {}
    ~Attendance() {
      lock_.unlock();
      if (client_.known_) get().wake();
    }
    Attendance(const Attendance&) = delete;
    Attendance& operator=(const Attendance&) = delete;

   private:
    Client& client_;
    std::unique_lock<std::mutex> lock_;
  };
  [[nodiscard]] Attendance attend() { return Attendance(*this); }
  // The owner has just advanced everything, so the engine skips this client once. REQUIRES:
  // attend().
  void note_attended() { attended_ = true; }
  // Hands the remaining work, if any, over to the engine. REQUIRES: attend().
  void hand_over_to_engine() noexcept;
  // Unregisters the client from the engine. REQUIRES: not attend().
  void unregister_from_engine() noexcept;

 private:
  friend class ProgressEngine;
  Look look() noexcept;
  // Whether there is anything that the engine could advance. REQUIRES: attend().
  virtual bool under_way() const = 0;
  // Makes progress without waiting. Returns whether anything was done. Stores an error for the
  // owner. REQUIRES: attend().
  virtual bool advance_unattended() noexcept = 0;

  std::mutex mutex_;
  bool attended_ = false;
  bool known_ = false;  // registered with the engine
};

}  // namespace tandem
