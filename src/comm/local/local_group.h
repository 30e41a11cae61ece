// Collectives between threads of one process, each with a device of its own.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/combine.h"
#include "comm/communicator.h"

namespace tandem {

// Which rank combines which elements.
struct LocalPlan {
  enum class Kind {
    kSliced,        // every rank its share of each collective: the fastest
    kToOneDevice,   // rank `root` everything
    kHierarchical,  // packs of the parts go round the ranks, added up by halves
  };
  Kind kind = Kind::kSliced;
  int root = 0;
  int num_packs = 1;  // kHierarchical: equal packs of all elements; 0: a pack a part
};

struct LocalGroupOptions {
  LocalPlan plan;
  std::chrono::milliseconds time_limit = std::chrono::minutes(30);  // of every wait
};

// The meeting place of the ranks. Thread-safe; outlives its communicators.
class LocalGroup : public std::enable_shared_from_this<LocalGroup> {
 public:
  LocalGroup(std::vector<Device*> devices, LocalGroupOptions options = {});
  ~LocalGroup();

  int size() const { return static_cast<int>(devices_.size()); }
  std::unique_ptr<Communicator> communicator(int rank);

  // Starts a step: which ranks take part in its collectives; the others sit out. Forgets what an
  // earlier step left behind. REQUIRES: no rank is in a collective.
  void begin(const std::vector<bool>& active);
  // This rank has ended its step: who waits for it in a collective gets an InvalidArgumentError.
  void leave(int rank);
  // A rank has failed: every wait of the others throws AbortedError with this reason.
  void abort(int rank, const std::string& reason);
  bool aborted() const { return aborted_.load(std::memory_order_acquire); }

 private:
  friend class LocalCommunicator;
  friend class LocalWork;
  struct Collective;

  std::shared_ptr<Collective> join(int rank, std::uint64_t sequence, std::span<const Buffer> parts,
                                   int kind, ReduceOp op, int root);
  // Does this rank's share of a collective that every rank has joined.
  void perform(Collective& collective, int rank);
  void finish(Collective& collective, int rank);
  // Throws when a rank that `collective` waits for has left the step.
  void check_departures(const Collective& collective);
  template <class Ready>
  void wait_until(const char* what, const Ready& ready);
  void wake();
  [[noreturn]] void throw_abort();

  std::vector<Device*> devices_;
  LocalGroupOptions options_;
  bool direct_;              // every rank can reach every other's memory
  std::vector<int> active_;  // ranks that take part
  std::uint64_t step_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<int> sleepers_{0};
  std::atomic<bool> aborted_{false};
  std::atomic<int> departures_{0};
  std::vector<bool> left_;  // by rank; under mutex_
  std::string abort_reason_;
  int abort_rank_ = -1;
  std::vector<std::pair<std::uint64_t, std::shared_ptr<Collective>>> open_;
};

}  // namespace tandem
