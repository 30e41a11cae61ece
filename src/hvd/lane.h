// The ranks of a process set: their communicator, and the cycles in which they agree on what is due
// and run it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "comm/communicator.h"
#include "hvd/autotune.h"
#include "hvd/execution.h"
#include "hvd/negotiation.h"
#include "hvd/settings.h"
#include "hvd/stall.h"
#include "hvd/timeline.h"

namespace tandem::hvd {

struct LaneOptions {
  int id = 0;
  std::vector<int> ranks;  // of the job, in the order of the lane's own
  std::string backend;     // "SHM"
  Settings settings;
  std::chrono::milliseconds time_limit = std::chrono::minutes(30);
  std::function<void()> wake;  // the background thread, which sleeps longer while nothing is due.
                               // Threads that still wait may keep the lane when the world has gone
  // This rank gives up for a reason that the others do not know.
  std::function<void(const std::string& reason)> report;
  std::string autotune_log;
};

// A cycle: every rank tells which operations it waits for, as bits for those that are known and as
// requests for others; those that all wait for are run. The next cycle may begin while they run.
// Whoever waits for an operation leads the cycles on its own thread; while nobody does, the
// background thread leads, and never waits. Thread-safe.
class Lane : public std::enable_shared_from_this<Lane> {
 public:
  // Every rank of the set makes it.
  Lane(std::unique_ptr<Communicator> communicator, LaneOptions options,
       std::shared_ptr<Timeline> timeline);
  ~Lane();

  int id() const { return options_.id; }
  const std::vector<int>& ranks() const { return options_.ranks; }
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(options_.ranks.size()); }
  // Memory from which operations travel the fastest (Handle::State::bucket).
  std::shared_ptr<void> allocate(std::size_t bytes) { return communicator_->allocate(bytes); }

  // Throws InvalidArgumentError for a name that is under way, and what the lane failed with.
  void submit(const OperationRef& operation);
  // Returns when it is done.
  void wait(const Handle::State& operation);
  int join();

  // The background thread's turn: does what can be done without waiting, unless what waits was
  // submitted less than a cycle time ago.
  enum class Turn { kIdle, kPending, kLed };
  Turn tick();
  std::chrono::microseconds cycle_time() const {
    return std::chrono::microseconds(cycle_microseconds_.load(std::memory_order_relaxed));
  }
  // Tells every rank that this one has finished, within `limit`.
  void shut_down(std::chrono::milliseconds limit);
  // Operations under way and later ones fail with this.
  void abandon(std::exception_ptr error);
  // A step was left while operations of its were under way, whose memory goes: ends all. Returns
  // when nothing touches it any more.
  void withdraw();
  bool failed() const;
  // REQUIRES: failed(). Whether, within `limit`, nothing touches operations' memory any more; a
  // backend that cannot call off what was under way may yet.
  bool comes_to_rest(std::chrono::milliseconds limit);

 private:
  enum class Phase { kIdle, kAgree, kRequests, kExecute };
  // Leads, with `lock` of mutex_ given up meanwhile. REQUIRES: nobody leads.
  void take_lead(std::unique_lock<std::mutex>& lock, bool may_wait);
  // What the leader does. Until a cycle has ended, or nothing can be done without waiting.
  void lead(bool may_wait);
  bool try_advance(bool may_wait);
  void begin_cycle();
  bool read_headers();  // whether there are requests to gather
  void gather_requests();
  void settle();
  void end_cycle();
  bool may_begin_ahead(bool may_wait) const;
  bool came_back(bool may_wait);
  void look_after_peers();
  std::shared_ptr<Work> gather(std::span<const std::byte> mine, std::span<const std::size_t> bytes,
                               std::vector<std::byte>& all);
  OperationRef take(const std::string& name);
  void complete(const OperationRef& operation, std::exception_ptr error);
  void look_for_stalls();

  LaneOptions options_;
  int rank_;
  std::shared_ptr<Timeline> timeline_;
  std::atomic<std::int64_t> cycle_microseconds_;

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  bool leading_ = false;
  std::chrono::steady_clock::time_point submitted_at_;  // the first of those that are there
  std::vector<OperationRef> submitted_;
  std::unordered_map<std::string, OperationRef> by_name_;
  std::exception_ptr failure_;
  bool joining_ = false, finishing_ = false;
  int last_joined_ = -1;
  std::uint64_t joins_ = 0;  // that every rank has come to

  // The leader's.
  std::unique_ptr<Communicator> communicator_;
  Execution execution_;
  Negotiation negotiation_;
  StallWatch stalls_;
  std::optional<Autotune> autotune_;
  Phase phase_ = Phase::kIdle;
  std::shared_ptr<Work> work_;
  std::vector<OperationRef> waiting_;  // for the other ranks
  std::vector<std::byte> mine_, gathered_, requests_, gathered_requests_;
  std::vector<std::size_t> header_bytes_, request_bytes_;
  std::vector<std::uint64_t> hits_;
  CycleMessages messages_;
  std::int64_t fusion_threshold_;
  std::chrono::steady_clock::time_point began_, looked_after_peers_;
  bool stalled_ = false;
  bool began_ahead_ = false;  // a cycle while operations were under way, since this thread leads
};

}  // namespace tandem::hvd
