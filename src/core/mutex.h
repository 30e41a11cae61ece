// Locks of what a forked process may use. A fork copies the locks that other threads hold, but not
// the threads, which would release them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace tandem {

// An object that takes part in a fork. Its functions run on the thread that forks.
class AtFork {
 public:
  enum class Step { kCalls, kLocks };  // in this order: calls that are under way may need locks

  explicit AtFork(Step step = Step::kLocks) : step_(step) {}
  virtual ~AtFork() = default;
  AtFork(const AtFork&) = delete;
  AtFork& operator=(const AtFork&) = delete;

  // Before the fork, several times if it returns false: whether no other thread uses the object,
  // and none can until after(). Must not wait.
  virtual bool hold() { return true; }
  // Afterwards, in both processes. `held`: what hold() returned last; false where the fork has not
  // waited any longer.
  virtual void after(bool held) { static_cast<void>(held); }
  // In the new process, before after().
  virtual void forked(bool held) = 0;

 protected:
  // The last of a constructor and the first of a destructor: another thread may fork meanwhile.
  void begin();
  void end();

 private:
  friend class ForkedObjects;
  Step step_;
  bool held_ = false;
  AtFork *earlier_ = nullptr, *later_ = nullptr;
};

// A lock that threads hold for moments, and never while they run functions of users: a fork waits
// until no other thread has it. Nothing waits for `changed` in the new process.
class HeldAtFork final : public AtFork {
 public:
  explicit HeldAtFork(std::mutex& mutex, std::condition_variable* changed = nullptr)
      : mutex_(mutex), changed_(changed) {
    begin();
  }
  ~HeldAtFork() override { end(); }
  bool hold() override { return mutex_.try_lock(); }
  void after(bool held) override {
    if (held) mutex_.unlock();
  }
  void forked(bool held) override;

 private:
  std::mutex& mutex_;
  std::condition_variable* changed_;
};

// The same for as long as the lock exists, for locks of headers that many sources include.
void hold_at_fork(std::mutex& mutex, std::condition_variable* changed = nullptr);
void forget_at_fork(const std::mutex& mutex);

// A lock that threads may hold for long, also while they run functions of users. Where a caller
// would wait for ever, lock() throws FailedPreconditionError: in a forked process if another thread
// of its parent had the lock, and if the calling thread has it already.
class Mutex : private AtFork {
 public:
  // `what`: the object, for messages: "function".
  explicit Mutex(const char* what) : what_(what) { begin(); }
  ~Mutex() override { end(); }
  void lock();
  bool try_lock();
  void unlock() {
    owner_.store({}, std::memory_order_relaxed);
    mutex_.unlock();
  }

 protected:
  bool is_mine() const {
    return owner_.load(std::memory_order_relaxed) == std::this_thread::get_id();
  }

 private:
  void forked(bool held) override;

  const char* what_;
  std::mutex mutex_;
  std::atomic<std::thread::id> owner_{};
  bool lost_ = false;  // set in a new process, before it has threads
};

// The same, which its owner may lock again.
class RecursiveMutex : private Mutex {
 public:
  using Mutex::Mutex;
  void lock() {
    if (!is_mine()) Mutex::lock();
    ++depth_;
  }
  void unlock() {
    if (--depth_ == 0) Mutex::unlock();
  }

 private:
  int depth_ = 0;
};

// The same, which several threads may have shared. In a forked process lock() throws if another
// thread had it in any way, and lock_shared() if another one had it alone. REQUIRES: a thread that
// has it does not lock it.
class SharedMutex : private AtFork {
 public:
  explicit SharedMutex(const char* what) : what_(what) { begin(); }
  ~SharedMutex() override { end(); }
  void lock();
  void unlock();
  void lock_shared();
  void unlock_shared();

 private:
  void forked(bool held) override;

  const char* what_;
  std::atomic<int> holders_ = 0;  // -1: one thread has it alone
  std::atomic<std::thread::id> owner_{};
  bool shared_by_lost_ = false, lost_ = false;  // as Mutex::lost_
};

}  // namespace tandem
