// NCCL for the ranks of one process, over the fake of CUDA: the calls of a group are matched, and
// done on the first rank's stream while the others' wait for it. Refuses what NCCL would hang in.
// With FAKE_NCCL_FAILS=n the n-th group of calls breaks the connection.
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "comm/combine.h"
#include "core/env.h"
#include "cuda/fake_cuda.h"

namespace {

using namespace tandem;

enum class Kind { kAllReduce, kReduce, kBroadcast, kSend, kReceive };

struct Call {
  ncclComm_t comm;
  Kind kind;
  const void* from;
  void* to;
  std::size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int root;  // the peer of a message
  cudaStream_t stream;
};

thread_local int depth = 0;
thread_local std::vector<Call> calls;
std::atomic<std::int64_t> groups{0};

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

}  // namespace

struct ncclComm {
  std::shared_ptr<std::vector<ncclComm*>> ranks;
  int rank = 0;
  ncclResult_t state = ncclSuccess;
};

namespace {

// The calls of all ranks that are one collective, in the order of the ranks.
void enqueue(const std::vector<Call>& together) {
  const cudaStream_t first = together.front().stream;
  for (const Call& call : together) fake_cuda::follow(first, call.stream);
  fake_cuda::enqueue(first, [together] {
    const Call& any = together.front();
    const std::size_t bytes = any.count * size_of(dtype_of(any.type));
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (const Call& call : together) {
      if (any.kind == Kind::kBroadcast) {
        const void* from = together[static_cast<std::size_t>(any.root)].from;
        if (call.to != from) std::memcpy(call.to, from, bytes);
      }
      inputs.push_back(call.from);
      if (any.kind == Kind::kAllReduce || call.comm->rank == any.root) outputs.push_back(call.to);
    }
    if (any.kind != Kind::kBroadcast)
      combine(inputs, outputs, static_cast<std::int64_t>(any.count), dtype_of(any.type),
              op_of(any.op), CombineOrder::kInOrder);
  });
  for (const Call& call : together) fake_cuda::follow(call.stream, first);
}

// A message is a broadcast of two.
bool match_messages(std::vector<Call> sent, std::vector<Call> received) {
  if (sent.size() != received.size()) return false;
  for (Call& from : sent) {
    const auto to = std::find_if(received.begin(), received.end(), [&](const Call& call) {
      return call.comm->rank == from.root && call.root == from.comm->rank &&
             call.count == from.count && call.type == from.type;
    });
    if (to == received.end()) return false;
    from.kind = to->kind = Kind::kBroadcast;
    from.root = to->root = 0;
    from.to = const_cast<void*>(from.from);
    enqueue({from, *to});
    received.erase(to);
  }
  return true;
}

// Whether every rank has made the same calls, which are then under way.
bool match(const std::vector<Call>& all) {
  std::map<int, std::vector<Call>> by_rank;
  std::vector<Call> sent, received;
  for (const Call& call : all)
    (call.kind == Kind::kSend      ? sent
     : call.kind == Kind::kReceive ? received
                                   : by_rank[call.comm->rank])
        .push_back(call);
  if (!match_messages(std::move(sent), std::move(received))) return false;
  if (by_rank.empty()) return true;
  const std::vector<Call>& expected = by_rank.begin()->second;
  if (by_rank.size() != expected.front().comm->ranks->size()) return false;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    std::vector<Call> together;
    for (const auto& [rank, its] : by_rank) {
      if (its.size() != expected.size() || its[i].kind != expected[i].kind ||
          its[i].count != expected[i].count || its[i].type != expected[i].type ||
          its[i].op != expected[i].op || its[i].root != expected[i].root)
        return false;
      together.push_back(its[i]);
    }
    enqueue(together);
  }
  return true;
}

ncclResult_t call(Call made) {
  if (made.comm->state != ncclSuccess) return made.comm->state;
  calls.push_back(made);
  return depth > 0 ? ncclSuccess : ncclInvalidUsage;  // a rank by itself would wait for ever
}

std::mutex mutex;
std::map<std::string, std::shared_ptr<std::vector<ncclComm*>>> joined;

}  // namespace

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<std::int64_t> next{0};
  std::memset(id, 0, sizeof(*id));
  const std::int64_t number = ++next;
  std::memcpy(id->internal, &number, sizeof(number));
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t*) {
  const std::lock_guard lock(mutex);
  auto& all = joined[std::string(id.internal, sizeof(id.internal))];
  if (!all) all = std::make_shared<std::vector<ncclComm*>>(static_cast<std::size_t>(ranks));
  *comm = new ncclComm{all, rank};
  (*all)[static_cast<std::size_t>(rank)] = *comm;
  return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  *state = comm->state;
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t) { return ncclSuccess; }
ncclResult_t ncclCommDestroy(ncclComm_t comm) { return delete comm, ncclSuccess; }
ncclResult_t ncclCommAbort(ncclComm_t comm) { return delete comm, ncclSuccess; }
const char* ncclGetErrorString(ncclResult_t) { return "unhandled system error"; }
const char* ncclGetLastError(ncclComm_t) { return "a cable was pulled"; }

ncclResult_t ncclGroupStart() { return ++depth, ncclSuccess; }
ncclResult_t ncclGroupEnd() {
  if (--depth > 0 || calls.empty()) return ncclSuccess;
  const std::vector<Call> made = std::exchange(calls, {});
  if (++groups == env_int("FAKE_NCCL_FAILS").value_or(0)) {
    for (ncclComm* comm : *made.front().comm->ranks) comm->state = ncclSystemError;
    return ncclInProgress;
  }
  return match(made) ? ncclSuccess : ncclInvalidUsage;
}
ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return call({comm, Kind::kAllReduce, from, to, count, type, op, 0, stream});
}
ncclResult_t ncclReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return call({comm, Kind::kReduce, from, to, count, type, op, root, stream});
}
ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return call({comm, Kind::kBroadcast, from, to, count, type, ncclSum, root, stream});
}
// Of the ranks of other processes, which there are none of here.
ncclResult_t ncclAllGather(const void*, void*, std::size_t, ncclDataType_t, ncclComm_t,
                           cudaStream_t) {
  return ncclInvalidUsage;
}
ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return call({comm, Kind::kSend, from, nullptr, count, type, ncclSum, peer, stream});
}
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return call({comm, Kind::kReceive, nullptr, to, count, type, ncclSum, peer, stream});
}

}  // extern "C"
