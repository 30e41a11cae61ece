// Collectives between threads of one process, each with its own device.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/combine.h"
#include "comm/communicator.h"
#include "comm/local/local_collective.h"
#include "comm/nccl/nccl_clique.h"

namespace tandem {

struct LocalGroupOptions {
  LocalPlan plan;
  std::chrono::milliseconds time_limit = std::chrono::minutes(30);  // for each wait
};

// The state that the ranks share. Thread-safe; outlives its communicators.
class LocalGroup : public std::enable_shared_from_this<LocalGroup> {
 public:
  explicit LocalGroup(std::vector<DeviceImpl*> devices, LocalGroupOptions options = {});
  ~LocalGroup();

  int size() const { return static_cast<int>(devices_.size()); }
  std::unique_ptr<Communicator> communicator(int rank);

  // Begins a step. Only the `active` ranks take part in its collectives; the others are inactive.
  // Discards the state of the previous step. REQUIRES: no rank is in a collective. Like end_step()
  // and abort(), it also applies to the groups that were split off.
  void begin_step(const std::vector<bool>& active);
  // This rank has ended its step: ranks that wait for it in a collective get an
  // InvalidArgumentError.
  void end_step(int rank);
  // Reports that a rank has failed: every wait of the others throws AbortedError with this reason.
  void abort(int rank, const std::string& reason);
  // The same, with an error of that type and this message.
  void abort(int rank, GroupFailure failure, const std::string& text);
  bool aborted() const { return aborted_.load(std::memory_order_acquire); }

 private:
  friend class LocalRank;
  friend class LocalWork;
  friend class LocalCommunicator;

  // Identifies a collective of a step: the n-th of all ranks, or the n-th message between two.
  struct Key {
    std::uint64_t number = 0;
    int from = -1, to = -1;
    bool operator==(const Key&) const = default;
  };
  // A new group, until each of its ranks has fetched it.
  struct Split {
    std::shared_ptr<LocalGroup> group;
    std::size_t expected = 0;
  };
  struct Child {
    std::vector<int> ranks;
    std::weak_ptr<LocalGroup> group;
  };

  // One rank's arguments, for the collective that `key` identifies.
  struct Call {
    Key key;
    Signature signature;
    Label label;
    std::vector<Buffer> in, out;
  };
  std::shared_ptr<LocalCollective> join(int rank, Call call);
  // Runs this rank's part of a collective that every rank has joined.
  void perform(LocalCollective& collective, int rank);
  // Whether NCCL runs this collective for all ranks, and whether the plan uses NCCL at all.
  bool by_nccl(const LocalCollective& collective) const;
  bool uses_nccl() const { return options_.plan.kind == LocalPlan::Kind::kNccl; }
  // On the first rank's thread.
  void perform_by_nccl(LocalCollective& collective);
  // Makes the stream of the rank's device wait for all parts. REQUIRES: all ranks have finished.
  void finish(LocalCollective& collective, int rank);
  // Throws when a rank that `collective` waits for has ended its step.
  void check_ended_ranks(const LocalCollective& collective);
  // The ranks that must join and have not.
  std::vector<int> missing(const LocalCollective& collective);
  // The wait of `rank`.
  void wait_until(const LocalCollective& collective, int rank, const std::function<bool()>& ready);
  // Whom the collective has been waiting for.
  std::string describe_wait(const LocalCollective& collective, std::chrono::milliseconds waited);
  void wake();
  [[noreturn]] void throw_abort();
  // The `again`-th group of these ranks.
  std::shared_ptr<LocalGroup> split(const std::vector<int>& ranks, int again);
  // Calls body(group, ranks) for each group that was split off and is still in use.
  template <class Body>
  void for_children(const Body& body);

  LocalWorld world_;
  std::vector<DeviceImpl*>& devices_ = world_.devices;
  std::vector<int>& active_ = world_.active;
  LocalGroupOptions options_;
  std::uint64_t step_ = 0;
  std::shared_ptr<NcclClique> nccl_;  // null: not used yet; only the first rank's thread uses it

  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<int> sleepers_{0};
  std::atomic<bool> aborted_{false};
  std::atomic<int> ended_count_{0};
  std::vector<bool> ended_;  // by rank; under mutex_
  std::string abort_reason_;
  GroupFailure abort_failure_ = GroupFailure::kNone;  // kNone: the reason is a replica's failure
  int abort_rank_ = -1;
  std::vector<std::pair<Key, std::shared_ptr<LocalCollective>>> open_;
  std::map<std::pair<std::vector<int>, int>, Split> splits_;
  std::vector<Child> children_;
};

}  // namespace tandem
