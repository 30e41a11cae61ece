// What a rank called, for the others to compare with: how ranks that part are found, and what they
// are told.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/communicator.h"

namespace tandem {

enum class CollectiveKind : std::uint8_t {
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kBarrier,
  kExchange,
  kSend,
  kRecv,
};
// "all_reduce"
std::string_view name_of(CollectiveKind kind);
std::string_view name_of(ReduceOp op);

struct Signature {
  CollectiveKind kind = CollectiveKind::kBarrier;
  DType dtype = float32;
  ReduceOp op = ReduceOp::kSum;
  std::int32_t root = 0;     // of kReduce and kBroadcast; the peer of kSend and kRecv
  std::uint32_t parts = 0;   // buffers
  std::int64_t count = 0;    // elements of all of them; kAllToAll: of the largest to send
  std::uint64_t layout = 0;  // a hash of each one's count and dtype; 0 for kAllToAll

  bool operator==(const Signature&) const = default;
};

// Of `parts`, which name the counts that every rank names.
Signature make_signature(CollectiveKind kind, std::span<const Buffer> parts, ReduceOp op, int root);

// Whether two ranks' calls are one collective.
bool suit(const Signature& a, const Signature& b);

// What diagnoses tell of a call beside its signature.
struct Label {
  std::string name;
  std::int64_t step = -1;  // none
};

// The names of a group's ranks in errors: their numbers in the job, not those in the group.
class RankNames {
 public:
  RankNames() = default;  // a group of all of the job's ranks, in order
  explicit RankNames(std::vector<int> job_ranks) : job_ranks_(std::move(job_ranks)) {}

  int operator[](int rank) const {
    return job_ranks_.empty() ? rank : job_ranks_[static_cast<std::size_t>(rank)];
  }
  // Those of a group of some of these ranks, in this order.
  RankNames of(std::span<const int> ranks) const;

 private:
  std::vector<int> job_ranks_;
};

// "all_reduce (sum) of 1280 float32 in 3 parts, 'dense/kernel', step 5"
std::string describe(const Signature& signature, const Label& label, const RankNames& names = {});

// "rank 2", "ranks 0, 1 and 4"
std::string list_ranks(std::span<const int> ranks, const RankNames& names = {});

// What a rank called as collective `sequence`.
struct RankCall {
  int rank = 0;
  Signature signature;
  Label label;
};
// "[all_reduce] ranks parted at collective 17: ranks 0 and 1 called ..., rank 2 called ...": the
// text of the InvalidArgumentError that every rank gets.
std::string describe_parting(std::uint64_t sequence, std::span<const RankCall> calls,
                             const RankNames& names = {});

}  // namespace tandem
