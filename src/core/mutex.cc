#include "core/mutex.h"

#include <pthread.h>

#include <chrono>
#include <memory>
#include <unordered_map>
#include <utility>

#include "core/status.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

// How long a fork waits: threads hold these locks for moments, and kernels end.
constexpr std::chrono::seconds kLimit{2};

[[noreturn]] void refuse_lost(const char* what) {
  fail<FailedPreconditionError>(
      "[{}] this process was forked while another thread of its parent used this object, and has "
      "none of its threads: fork while no other thread uses it, or make another one",
      what);
}

}  // namespace

// All objects, in a list.
class ForkedObjects {
 public:
  // Never destroyed: objects may live until the process ends.
  static ForkedObjects& get() {
    static auto& objects = *new ForkedObjects;
    return objects;
  }

  void add(AtFork& object) {
    const std::lock_guard lock(mutex_);
    AtFork*& first = first_of(object.step_);
    object.later_ = first;
    if (first) first->earlier_ = &object;
    first = &object;
  }

  void remove(AtFork& object) {
    const std::lock_guard lock(mutex_);
    (object.earlier_ ? object.earlier_->later_ : first_of(object.step_)) = object.later_;
    if (object.later_) object.later_->earlier_ = object.earlier_;
  }

  // Holds all, and the list.
  void prepare() {
    mutex_.lock();
    const Clock::time_point limit = Clock::now() + kLimit;
    const auto late = [&] { return Clock::now() > limit; };
    for (AtFork* each = calls_; each; each = each->later_)
      while (!(each->held_ = each->hold()) && !late()) pause();
    // A thread that has one of the locks may wait for another one, or for the list.
    while (!hold_locks(late())) {
      release(locks_);
      mutex_.unlock();
      pause();
      mutex_.lock();
    }
  }

  void after() {
    release(locks_);
    release(calls_);
    mutex_.unlock();
  }

  void forked() {
    for (AtFork* first : {calls_, locks_})
      for (AtFork* each = first; each; each = each->later_) each->forked(each->held_);
    after();
  }

 private:
  ForkedObjects() {
    pthread_atfork([] { get().prepare(); }, [] { get().after(); }, [] { get().forked(); });
  }

  AtFork*& first_of(AtFork::Step step) { return step == AtFork::Step::kCalls ? calls_ : locks_; }
  static void pause() { std::this_thread::sleep_for(std::chrono::microseconds(20)); }

  // Returns false at the first one that is not free, unless `late`.
  bool hold_locks(bool late) {
    for (AtFork* each = locks_; each; each = each->later_)
      if (!(each->held_ = each->hold()) && !late) return false;
    return true;
  }

  static void release(AtFork* first) {
    for (AtFork* each = first; each; each = each->later_)
      each->after(std::exchange(each->held_, false));
  }

  std::mutex mutex_;
  AtFork *calls_ = nullptr, *locks_ = nullptr;
};

void AtFork::begin() { ForkedObjects::get().add(*this); }
void AtFork::end() { ForkedObjects::get().remove(*this); }

void HeldAtFork::forked(bool held) {
  // Without the destructors, for the threads that have it and wait for it do not exist.
  if (!held) std::construct_at(&mutex_);
  if (changed_) std::construct_at(changed_);
}

namespace {

struct HeldMutexes {
  std::mutex mutex;
  HeldAtFork held_at_fork{mutex};
  std::unordered_map<const std::mutex*, std::unique_ptr<HeldAtFork>> all;
};

// Never destroyed, as the list.
HeldMutexes& held_mutexes() {
  static auto& instance = *new HeldMutexes;
  return instance;
}

}  // namespace

void hold_at_fork(std::mutex& mutex, std::condition_variable* changed) {
  HeldMutexes& held = held_mutexes();
  const std::lock_guard lock(held.mutex);
  held.all[&mutex] = std::make_unique<HeldAtFork>(mutex, changed);
}

void forget_at_fork(const std::mutex& mutex) {
  HeldMutexes& held = held_mutexes();
  const std::lock_guard lock(held.mutex);
  held.all.erase(&mutex);
}

void Mutex::lock() {
  if (lost_) [[unlikely]]
    refuse_lost(what_);
  if (is_mine()) [[unlikely]]
    fail<FailedPreconditionError>(
        "[{}] this call is made inside of another one of the same object, which waits for it",
        what_);
  mutex_.lock();
  owner_.store(std::this_thread::get_id(), std::memory_order_relaxed);
}

bool Mutex::try_lock() {
  if (lost_ || !mutex_.try_lock()) return false;
  owner_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  return true;
}

void Mutex::forked(bool) {
  if (is_mine()) return;
  if (mutex_.try_lock())
    mutex_.unlock();
  else
    lost_ = true;
}

void SharedMutex::lock() {
  if (lost_ || shared_by_lost_) [[unlikely]]
    refuse_lost(what_);
  for (int holders = 0; !holders_.compare_exchange_weak(holders, -1); holders = 0)
    if (holders != 0) holders_.wait(holders);
  owner_.store(std::this_thread::get_id(), std::memory_order_relaxed);
}

void SharedMutex::unlock() {
  owner_.store({}, std::memory_order_relaxed);
  holders_.store(0);
  holders_.notify_all();
}

void SharedMutex::lock_shared() {
  if (lost_) [[unlikely]]
    refuse_lost(what_);
  for (int holders = holders_.load();;) {
    if (holders < 0) {
      holders_.wait(holders);
      holders = holders_.load();
    } else if (holders_.compare_exchange_weak(holders, holders + 1)) {
      return;
    }
  }
}

void SharedMutex::unlock_shared() {
  if (holders_.fetch_sub(1) == 1) holders_.notify_all();
}

void SharedMutex::forked(bool) {
  const int holders = holders_.load();
  shared_by_lost_ = shared_by_lost_ || holders > 0;
  lost_ = lost_ ||
          (holders < 0 && owner_.load(std::memory_order_relaxed) != std::this_thread::get_id());
}

}  // namespace tandem
