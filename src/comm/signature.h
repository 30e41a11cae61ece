// The signature of a collective call. Ranks compare signatures to detect mismatched calls.
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
  std::int32_t root = 0;     // of kReduce and kBroadcast; for kSend and kRecv, the peer
  std::uint32_t parts = 0;   // number of buffers
  std::int64_t count = 0;    // total elements; kAllToAll: elements of the largest buffer to send
  std::uint64_t layout = 0;  // hash of each buffer's count and dtype; 0 for kAllToAll

  bool operator==(const Signature&) const = default;
};

// `parts`: the buffers whose counts must be equal on every rank.
Signature make_signature(CollectiveKind kind, std::span<const Buffer> parts, ReduceOp op, int root);

// Whether two ranks' signatures belong to one collective.
bool matches(const Signature& a, const Signature& b);

// Information on a call for error messages; not compared between ranks.
struct Label {
  std::string name;
  std::int64_t step = -1;  // -1: unknown
};

// Maps a group's ranks to the job's ranks, which error messages use.
class RankNames {
 public:
  RankNames() = default;  // the group has all of the job's ranks, in order
  explicit RankNames(std::vector<int> job_ranks) : job_ranks_(std::move(job_ranks)) {}

  int operator[](int rank) const {
    return job_ranks_.empty() ? rank : job_ranks_[static_cast<std::size_t>(rank)];
  }
  // The names of a subgroup that consists of `ranks`, in this order.
  RankNames of(std::span<const int> ranks) const;

 private:
  std::vector<int> job_ranks_;
};

// "all_reduce (sum) of 1280 float32 in 3 parts, 'dense/kernel', step 5"
std::string describe(const Signature& signature, const Label& label, const RankNames& names = {});

// "rank 2", "ranks 0, 1 and 4"
std::string list_ranks(std::span<const int> ranks, const RankNames& names = {});

// The call that a rank made as collective number `sequence`.
struct RankCall {
  int rank = 0;
  Signature signature;
  Label label;
};
// "[all_reduce] ranks diverged at collective 17: ranks 0 and 1 called ..., rank 2 called ...": the
// message of the InvalidArgumentError that every rank throws.
std::string describe_mismatch(std::uint64_t sequence, std::span<const RankCall> calls,
                              const RankNames& names = {});

}  // namespace tandem
