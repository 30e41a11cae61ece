// One collective between threads, and each rank's part in it.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/signature.h"
#include "core/profile.h"

namespace tandem {

// How the work of a collective is divided among ranks.
struct LocalPlan {
  enum class Kind {
    kSliced,        // each rank reduces its slice: the fastest
    kToOneDevice,   // rank `root` reduces everything, on `device`
    kHierarchical,  // packs of the parts are assigned round-robin, and summed by halves
    kNccl,  // NVIDIA NCCL; kSliced if NCCL cannot join the ranks, or some ranks are inactive
  };
  Kind kind = Kind::kSliced;
  int root = 0;
  DeviceImpl* device = nullptr;  // kToOneDevice: the device of all-reduces; null: the root's
  // kHierarchical: number of equal packs; 0: one per part. kNccl: packs per part.
  int num_packs = 1;
};

// The ranks of a group.
struct LocalWorld {
  std::vector<DeviceImpl*> devices;  // by rank
  std::vector<int> active;           // ranks that run this step
  bool direct = true;                // each rank can access the memory of every other
  LocalPlan plan;
};

// A collective and the ranks that have joined it.
struct LocalCollective {
  explicit LocalCollective(std::size_t ranks)
      : in(ranks), out(ranks), ready(ranks), performed(ranks), here(ranks) {}

  std::uint64_t number = 0;
  Signature signature;                   // of the first caller
  Label label;                           // of the first caller
  int first_rank = -1;                   // the first caller
  std::vector<int> members;              // the ranks that must join
  std::vector<std::vector<Buffer>> in;   // by rank; in-place collectives: the parts
  std::vector<std::vector<Buffer>> out;  // by rank
  std::vector<StreamEvent> ready;        // by rank: the inputs have been computed
  std::vector<StreamEvent> performed;    // by rank: its part is done
  std::vector<bool> here;                // by rank; under the group's mutex
  std::atomic<int> joined{0};
  std::atomic<int> finished{0};
  std::string mismatch;  // written before `joined` is complete

  CollectiveKind kind() const { return signature.kind; }
  // Whether the host does all the work.
  bool on_host() const {
    return kind() == CollectiveKind::kExchange || kind() == CollectiveKind::kBarrier;
  }
  bool complete() const {
    return joined.load(std::memory_order_acquire) == static_cast<int>(members.size());
  }
  bool finished_everywhere() const {
    return finished.load(std::memory_order_acquire) == static_cast<int>(members.size());
  }
  // The profiler event of this rank's part.
  profile::Event event(int rank, std::string name, profile::Lane lane) const;
};

// Enqueues the rank's part on its device. Work on the host is done on return. REQUIRES: complete().
void perform_part(const LocalWorld& world, const LocalCollective& collective, int rank);

}  // namespace tandem
