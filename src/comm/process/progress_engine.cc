#include "comm/process/progress_engine.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "core/log.h"
#include "core/parallel.h"
#include "core/threads.h"

namespace tandem {

using std::chrono::microseconds;

// How long the thread sleeps after a round. The naps are too short to delay an owner that computes,
// and at least as long as the system's timer resolution. Peers do not wake the thread when they
// make progress, since that would cost them a system call per step.
class ProgressEngine::Backoff {
 public:
  microseconds nap_after(Look look) {
    quiet_rounds_ = look <= Look::kAttended ? quiet_rounds_ + 1 : 0;
    switch (look) {
      case Look::kIdle: return nap_ = kIdleNap;
      case Look::kAttended: return nap_ = kAttendedNap;
      case Look::kStuck: return nap_ = std::min(nap_ * 2, kLongestNap);
      case Look::kAdvanced: return nap_ = kShortestNap;
    }
    return nap_;
  }
  // Whether there has been nothing to do for so long that the thread sleeps until it is woken. On
  // a host with many more ranks than cores, the naps of threads whose owners wait would keep the
  // cores busy.
  bool is_quiet() const { return quiet_rounds_ >= kQuietRounds; }

 private:
  static constexpr microseconds kShortestNap{50}, kLongestNap{1000};
  static constexpr microseconds kAttendedNap{2000}, kIdleNap{4000};
  static constexpr int kQuietRounds = 16;

  microseconds nap_ = kShortestNap;
  int quiet_rounds_ = 0;
};

namespace {

// Never destroyed: static communicators may be destroyed later.
std::atomic<ProgressEngine*> instance{nullptr};

}  // namespace

// A forked process has no threads, and a copy of the engine's lock in an unknown state, so it gets
// a new engine.
ProgressEngine& ProgressEngine::get() {
  static const bool made = [] {
    instance = new ProgressEngine;
    pthread_atfork(nullptr, nullptr, [] { instance = new ProgressEngine; });
    // Libraries below shut down at exit, after the handlers that were registered later than theirs.
    std::atexit([] { get().stop_at_exit(); });
    return true;
  }();
  static_cast<void>(made);
  return *instance.load(std::memory_order_relaxed);
}

void ProgressEngine::add(Client& client) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    clients_.push_back(&client);
    asleep_.store(false, std::memory_order_relaxed);
    changed_.notify_all();
    if (thread_.joinable()) return;
    thread_ = start_thread([this, generation = generation_] { run(generation); });
    pthread_setname_np(thread_.native_handle(), "tandem-progress");
  } catch (const std::exception& error) {
    logging::warn("[communicator] collectives advance in their owners' calls alone: {}",
                  error.what());
  }
}

// A thread that must end is not in a look, so the next thread may be.
void ProgressEngine::remove(Client& client) noexcept {
  std::thread last;
  {
    std::unique_lock lock(mutex_);
    std::erase(clients_, &client);
    looked_.wait(lock, [&] { return current_ != &client && !(clients_.empty() && current_); });
    if (clients_.empty() && thread_.joinable()) {
      last = std::move(thread_);
      ++generation_;
      changed_.notify_all();
    }
  }
  if (last.joinable()) last.join();
}

void ProgressEngine::end_sleep() noexcept {
  const std::lock_guard lock(mutex_);
  asleep_.store(false, std::memory_order_relaxed);
  changed_.notify_all();
}

// Before a long sleep the thread sets `asleep_` and then looks once more under the clients' locks.
// An owner starts work under that lock and then reads `asleep_`. At least one of the two sees the
// other. If an owner holds its lock, the thread may miss the end of that call, and so sleeps for a
// limited time.
void ProgressEngine::run(std::uint64_t generation) {
  constexpr std::chrono::milliseconds kLongestCall(100);
  const ThreadBudget one(1);  // leaves the cores to the threads that compute
  Backoff backoff;
  std::unique_lock lock(mutex_);
  const auto replaced = [&] { return generation_ != generation; };
  while (!replaced()) {
    const bool was_asleep = asleep_.load(std::memory_order_relaxed);
    const Look look = look_at_all(lock);
    const microseconds nap = backoff.nap_after(look);
    if (!backoff.is_quiet()) {
      asleep_.store(false, std::memory_order_relaxed);
      changed_.wait_for(lock, nap, replaced);
    } else if (!was_asleep) {
      asleep_.store(true, std::memory_order_relaxed);
    } else {
      const auto awake = [&] { return replaced() || !asleep_.load(std::memory_order_relaxed); };
      if (look == Look::kAttended)
        changed_.wait_for(lock, kLongestCall, awake);
      else
        changed_.wait(lock, awake);
    }
  }
}

// Clients may be added and removed during a look; one may be skipped for a round.
ProgressEngine::Look ProgressEngine::look_at_all(std::unique_lock<std::mutex>& lock) {
  Look most = Look::kIdle;
  for (std::size_t i = 0; i < clients_.size(); ++i) {
    current_ = clients_[i];
    lock.unlock();
    most = std::max(most, current_->look());
    lock.lock();
    current_ = nullptr;
    looked_.notify_all();
  }
  return most;
}

// Does not wait for a look that hangs, for instance on a GPU.
void ProgressEngine::stop_at_exit() noexcept {
  constexpr std::chrono::seconds kLimit(5);
  std::unique_lock lock(mutex_);
  stopped_ = true;
  if (!thread_.joinable()) return;
  std::thread last = std::move(thread_);
  ++generation_;
  changed_.notify_all();
  if (!looked_.wait_for(lock, kLimit, [&] { return !current_; })) return last.detach();
  lock.unlock();
  last.join();
}

void ProgressEngine::Client::hand_over_to_engine() noexcept {
  if (under_way() && !std::exchange(known_, true)) get().add(*this);
}

void ProgressEngine::Client::unregister_from_engine() noexcept {
  if (known_) get().remove(*this);
}

ProgressEngine::Look ProgressEngine::Client::look() noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return Look::kAttended;
  if (std::exchange(attended_, false)) return Look::kAttended;
  if (!under_way()) return Look::kIdle;
  return advance_unattended() ? Look::kAdvanced : Look::kStuck;
}

}  // namespace tandem
