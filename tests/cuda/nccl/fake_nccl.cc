// NCCL on top of the fake of CUDA. If one thread drives all ranks, the calls of a group are matched
// and run on the first rank's stream while the others' streams wait. If each rank has its own
// process, each runs its part on its own stream (segment.cc). Calls that would hang in NCCL are
// refused.
//
// It fails on request, in the n-th group of calls of this process:
//   FAKE_NCCL_FAILS=n        the connection breaks when the calls are made
//   FAKE_NCCL_FAILS_LATER=n  ... when the GPUs reach them; the GPUs then hang
//   FAKE_NCCL_HANGS=n        the GPUs hang in the calls
// A hang lasts until every rank of this process is aborted. With FAKE_NCCL_HAS_NO_MEMORY=1 no
// communicator can be made.
#include "cuda/nccl/fake_nccl.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "comm/combine.h"
#include "core/env.h"
#include "cuda/fake_cuda.h"

struct ncclComm {
  std::shared_ptr<tandem::fake_nccl::Rank> rank;
};

namespace tandem::fake_nccl {
namespace {

thread_local int depth = 0;
thread_local std::vector<Call> calls;
thread_local std::vector<std::shared_ptr<Rank>> aborted;
std::atomic<std::int64_t> groups{0};
std::atomic<const char*> last_error{"a cable was pulled"};

DType dtype_of(ncclDataType_t type) {
  switch (type) {
    case ncclFloat32: return float32;
    case ncclFloat64: return float64;
    case ncclFloat16: return float16;
    case ncclBfloat16: return bfloat16;
    case ncclInt32: return int32;
    case ncclInt64: return int64;
    default: return uint8;
  }
}

ReduceOp op_of(ncclRedOp_t op) {
  switch (op) {
    case ncclAvg: return ReduceOp::kMean;
    case ncclMin: return ReduceOp::kMin;
    case ncclMax: return ReduceOp::kMax;
    case ncclProd: return ReduceOp::kProduct;
    default: return ReduceOp::kSum;
  }
}

enum class Order { kNone, kFail, kFailLater, kHang };

Order order_of(std::int64_t group) {
  const auto is = [&](const char* name) { return group == env_int(name).value_or(0); };
  if (is("FAKE_NCCL_FAILS")) return Order::kFail;
  if (is("FAKE_NCCL_FAILS_LATER")) return Order::kFailLater;
  return is("FAKE_NCCL_HANGS") ? Order::kHang : Order::kNone;
}

// The ranks of a communicator in this process.
std::vector<std::shared_ptr<Rank>> local_ranks(const std::shared_ptr<Rank>& rank) {
  if (!rank->clique) return {rank};
  std::vector<std::shared_ptr<Rank>> all;
  for (const auto& known : *rank->clique)
    if (auto one = known.lock()) all.push_back(std::move(one));
  return all;
}

void hang(const std::shared_ptr<Rank>& rank, Order order) {
  const auto all = local_ranks(rank);
  if (order == Order::kFailLater)
    for (const auto& one : all) one->state = ncclRemoteError;
  for (const auto& one : all) one->wait([] { return false; });
}

// The calls of all ranks that form one collective, in the order of the ranks.
void enqueue(const std::vector<Call>& together, Order order) {
  const cudaStream_t first = together.front().stream;
  for (const Call& call : together) fake_cuda::follow(first, call.stream);
  fake_cuda::enqueue(first, [together, order] {
    const Call& any = together.front();
    any.rank->run([&] {
      if (order != Order::kNone) return hang(any.rank, order);
      const std::size_t bytes = any.count * size_of(any.dtype);
      std::vector<const void*> inputs;
      std::vector<void*> outputs;
      for (const Call& call : together) {
        if (any.kind == CallKind::kBroadcast) {
          const void* from = together[static_cast<std::size_t>(any.root)].from;
          if (call.to != from) std::memcpy(call.to, from, bytes);
        }
        inputs.push_back(call.from);
        if (any.kind == CallKind::kAllReduce || call.rank->rank == any.root)
          outputs.push_back(call.to);
      }
      if (any.kind != CallKind::kBroadcast)
        combine(inputs, outputs, static_cast<std::int64_t>(any.count), any.dtype, any.op,
                CombineOrder::kInOrder);
    });
  });
  for (const Call& call : together) fake_cuda::follow(call.stream, first);
}

// A message is a broadcast between two ranks.
bool match_messages(std::vector<Call> sent, std::vector<Call> received, Order order) {
  if (sent.size() != received.size()) return false;
  for (Call& from : sent) {
    const auto to = std::find_if(received.begin(), received.end(), [&](const Call& call) {
      return call.rank->rank == from.root && call.root == from.rank->rank &&
             call.count == from.count && call.dtype == from.dtype;
    });
    if (to == received.end()) return false;
    from.kind = to->kind = CallKind::kBroadcast;
    from.root = to->root = 0;
    from.to = const_cast<void*>(from.from);
    enqueue({from, *to}, order);
    received.erase(to);
  }
  return true;
}

// Whether every rank has made the same calls; if so, starts them.
bool match(const std::vector<Call>& all, Order order) {
  std::map<int, std::vector<Call>> by_rank;
  std::vector<Call> sent, received;
  for (const Call& call : all)
    (call.kind == CallKind::kSend      ? sent
     : call.kind == CallKind::kReceive ? received
                                       : by_rank[call.rank->rank])
        .push_back(call);
  if (!match_messages(std::move(sent), std::move(received), order)) return false;
  if (by_rank.empty()) return true;
  const std::vector<Call>& expected = by_rank.begin()->second;
  if (by_rank.size() != expected.front().rank->clique->size()) return false;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    std::vector<Call> together;
    for (const auto& [rank, its] : by_rank) {
      if (its.size() != expected.size() || its[i].kind != expected[i].kind ||
          its[i].count != expected[i].count || its[i].dtype != expected[i].dtype ||
          its[i].op != expected[i].op || its[i].root != expected[i].root)
        return false;
      together.push_back(its[i]);
    }
    enqueue(together, order);
  }
  return true;
}

// A rank's part of a group of calls, if other processes make the other parts.
void enqueue_part(std::vector<Call> part, Order order) {
  const cudaStream_t stream = part.front().stream;
  fake_cuda::enqueue(stream, [part = std::move(part), order] {
    const std::shared_ptr<Rank>& mine = part.front().rank;
    mine->run([&] {
      if (order != Order::kNone) return hang(mine, order);
      mine->segment->run(*mine, part);
    });
  });
}

ncclResult_t make(const std::vector<Call>& made) {
  const Order order = order_of(++groups);
  if (order == Order::kFail) {
    for (const auto& rank : local_ranks(made.front().rank)) rank->state = ncclSystemError;
    return ncclInProgress;
  }
  if (made.front().rank->clique) return match(made, order) ? ncclSuccess : ncclInvalidUsage;
  enqueue_part(made, order);
  return ncclSuccess;
}

ncclResult_t call(Call made) {
  if (made.rank->state != ncclSuccess) return made.rank->state;
  calls.push_back(std::move(made));
  // outside a group, a single rank would wait forever
  return depth > 0 ? ncclSuccess : ncclInvalidUsage;
}

// Ranks of one process may wait for each other if they are destroyed one by one.
bool alone(const Rank& rank) { return depth == 0 && rank.size > 1 && rank.clique; }

void leave(Rank& rank) {
  if (!rank.leaves.exchange(true) && rank.segment) rank.segment->leave();
}

ncclResult_t state_of(const Rank& rank) {
  if (rank.state != ncclSuccess) return rank.state;
  if (rank.segment && !rank.segment->complete()) return ncclInProgress;
  if (!rank.leaves) return ncclSuccess;
  if (rank.segment) return rank.segment->deserted() ? ncclSuccess : ncclInProgress;
  const bool all = std::all_of(rank.clique->begin(), rank.clique->end(), [](const auto& known) {
    const auto peer = known.lock();
    return !peer || peer->leaves;
  });
  return all ? ncclSuccess : ncclInProgress;
}

std::mutex mutex;
std::map<std::string, std::weak_ptr<std::vector<std::weak_ptr<Rank>>>> joined;

}  // namespace
}  // namespace tandem::fake_nccl

using namespace tandem::fake_nccl;

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> next{0};
  std::memset(id, 0, sizeof(*id));
  std::snprintf(
      id->internal, sizeof(id->internal), "%d-%d-%lld", getpid(), ++next,
      static_cast<long long>(std::chrono::steady_clock::now().time_since_epoch().count()));
  return ncclSuccess;
}
// Inside a group: called by a thread that drives all ranks.
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t*) {
  const std::lock_guard lock(mutex);
  last_error = "a cable was pulled";
  if (tandem::env_bool("FAKE_NCCL_HAS_NO_MEMORY").value_or(false)) {
    last_error = "Failed to CUDA calloc async 608 bytes: Cuda failure 2 'out of memory'";
    return ncclUnhandledCudaError;
  }
  auto mine = std::make_shared<Rank>();
  mine->rank = rank;
  mine->size = ranks;
  if (depth > 0) {
    auto& known = joined[id.internal];
    mine->clique = known.lock();
    if (!mine->clique) {
      mine->clique =
          std::make_shared<std::vector<std::weak_ptr<Rank>>>(static_cast<std::size_t>(ranks));
      known = mine->clique;
    }
    (*mine->clique)[static_cast<std::size_t>(rank)] = mine;
  } else {
    mine->segment = std::make_unique<RankSegment>(id, rank, ranks);
  }
  *comm = new ncclComm{std::move(mine)};
  return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  return *state = state_of(*comm->rank), ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (alone(*comm->rank)) return ncclInvalidUsage;
  return leave(*comm->rank), ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (alone(*comm->rank) || !comm->rank->leaves) return ncclInvalidUsage;
  return delete comm, ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (alone(*comm->rank)) return ncclInvalidUsage;
  comm->rank->aborted = true;
  leave(*comm->rank);
  aborted.push_back(comm->rank);
  delete comm;
  if (depth > 0) return ncclSuccess;
  ncclGroupStart();
  return ncclGroupEnd();
}
const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited or there was a network error"
                                   : "unhandled system error";
}
const char* ncclGetLastError(ncclComm_t) { return last_error; }

ncclResult_t ncclGroupStart() { return ++depth, ncclSuccess; }
ncclResult_t ncclGroupEnd() {
  if (--depth > 0) return ncclSuccess;
  for (const auto& rank : std::exchange(aborted, {}))
    while (rank->running > 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
  if (calls.empty()) return ncclSuccess;
  return make(std::exchange(calls, {}));
}
ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return call(
      {comm->rank, CallKind::kAllReduce, from, to, count, dtype_of(type), op_of(op), 0, stream});
}
ncclResult_t ncclReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return call(
      {comm->rank, CallKind::kReduce, from, to, count, dtype_of(type), op_of(op), root, stream});
}
ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return call({comm->rank, CallKind::kBroadcast, from, to, count, dtype_of(type), op_of(ncclSum),
               root, stream});
}
// For ranks in separate processes; other tests do not use it.
ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  if (comm->rank->clique) return ncclInvalidUsage;
  return call({comm->rank, CallKind::kAllGather, from, to, count, dtype_of(type), op_of(ncclSum), 0,
               stream});
}
ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return call({comm->rank, CallKind::kSend, from, nullptr, count, dtype_of(type), op_of(ncclSum),
               peer, stream});
}
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return call({comm->rank, CallKind::kReceive, nullptr, to, count, dtype_of(type), op_of(ncclSum),
               peer, stream});
}

}  // extern "C"
