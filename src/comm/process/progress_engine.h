// The thread that advances collectives while their owners compute.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace tandem {

// One a process. Its thread starts when a client first leaves something to it, and ends with the
// last client. It looks at the clients once a millisecond, more often while it gets on, less often
// while their owners advance what is under way; after a while without anything it sleeps until it
// is woken. Thread-safe.
class ProgressEngine {
 public:
  class Client;

  static ProgressEngine& get();

  // Looks at the client from now on.
  void add(Client& client) noexcept;
  // The thread does not look at it any more when this returns. REQUIRES: not the engine's thread.
  void remove(Client& client) noexcept;
  // A client has something under way. One relaxed load while the thread is awake.
  void wake() noexcept {
    if (asleep_.load(std::memory_order_relaxed)) [[unlikely]]
      end_sleep();
  }

 private:
  enum class Look {
    kIdle,      // nothing is under way
    kAttended,  // the owner is there, or has been since the last look
    kStuck,     // what is under way waits for peers
    kAdvanced,
  };
  class Pace;

  ProgressEngine() = default;
  void end_sleep() noexcept;
  void run(std::uint64_t generation);
  Look look_at_all(std::unique_lock<std::mutex>& lock);
  void stop_at_exit() noexcept;

  std::mutex mutex_;
  std::condition_variable changed_;  // for the thread
  std::condition_variable looked_;   // for those that wait for the thread
  std::vector<Client*> clients_;
  Client* current_ = nullptr;  // that the thread looks at
  std::thread thread_;
  std::uint64_t generation_ = 0;  // of the thread: an earlier one ends
  bool stopped_ = false;          // the process exits
  std::atomic<bool> asleep_{false};
};

// Collectives that belong to one thread at a time: to their owner's while it is in one of its
// calls, else to the engine's.
class ProgressEngine::Client {
 public:
  Client() = default;
  virtual ~Client() = default;
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

 protected:
  // The owner takes it in every call, and keeps it while it waits: the engine never waits for it.
  [[nodiscard]] std::unique_lock<std::mutex> attend() { return std::unique_lock(mutex_); }
  // The owner has advanced all that is under way: the engine's next look leaves it alone. REQUIRES:
  // attend().
  void note_attended() { attended_ = true; }
  // The owner leaves what is under way to the engine, if there is anything. REQUIRES: attend().
  void leave_to_engine() noexcept;
  // The engine never looks again. REQUIRES: not attend().
  void leave_engine() noexcept;

 private:
  friend class ProgressEngine;
  Look look() noexcept;
  // Whether there is anything that the engine could advance. REQUIRES: attend().
  virtual bool under_way() const = 0;
  // Does what can be done without waiting; whether anything was. An error is kept for the owner.
  // REQUIRES: attend().
  virtual bool advance_unattended() noexcept = 0;

  std::mutex mutex_;
  bool attended_ = false;
  bool known_ = false;  // to the engine
};

}  // namespace tandem
