// One collective between threads, and what each rank does in it.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/signature.h"
#include "core/profile.h"

namespace tandem {

// Which rank combines which elements.
struct LocalPlan {
  enum class Kind {
    kSliced,        // every rank its share of each collective: the fastest
    kToOneDevice,   // rank `root` everything, on `device`
    kHierarchical,  // packs of the parts go round the ranks, added up by halves
    kNccl,  // NVIDIA's NCCL; sliced where it does not join the ranks, or some sit a step out
  };
  Kind kind = Kind::kSliced;
  int root = 0;
  Device* device = nullptr;  // kToOneDevice: where all-reduces are computed; null: the root's
  // kHierarchical: equal packs of all elements; 0: a pack a part. kNccl: of each part.
  int num_packs = 1;
};

// Who they are.
struct LocalWorld {
  std::vector<Device*> devices;  // by rank
  std::vector<int> active;       // ranks that take part
  bool direct = true;            // every rank can reach every other's memory
  LocalPlan plan;
};

// A collective and the ranks that have reached it.
struct LocalCollective {
  explicit LocalCollective(std::size_t ranks)
      : in(ranks), out(ranks), ready(ranks), performed(ranks), here(ranks) {}

  std::uint64_t number = 0;
  Signature signature;                   // of who called it first
  Label label;                           // the same rank's
  int first_rank = -1;                   // that rank
  std::vector<int> members;              // ranks that it needs
  std::vector<std::vector<Buffer>> in;   // by rank; what works in place: its parts
  std::vector<std::vector<Buffer>> out;  // by rank
  std::vector<Event> ready;              // the rank's buffers hold what it put there
  std::vector<Event> performed;          // the rank's share is done
  std::vector<bool> here;                // by rank; under the group's mutex
  std::atomic<int> joined{0};
  std::atomic<int> finished{0};
  std::string mismatch;  // written before `joined` is complete

  CollectiveKind kind() const { return signature.kind; }
  // Whether no device takes part.
  bool on_host() const {
    return kind() == CollectiveKind::kExchange || kind() == CollectiveKind::kBarrier;
  }
  bool complete() const {
    return joined.load(std::memory_order_acquire) == static_cast<int>(members.size());
  }
  bool finished_everywhere() const {
    return finished.load(std::memory_order_acquire) == static_cast<int>(members.size());
  }
  // What a profile tells of this rank's side.
  profile::Event event(int rank, std::string name, profile::Lane lane) const;
};

// Enqueues the rank's share on its device; what works on the host is done on return. REQUIRES:
// complete().
void perform_share(const LocalWorld& world, const LocalCollective& collective, int rank);

}  // namespace tandem
