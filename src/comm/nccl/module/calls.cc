#include "comm/nccl/module/calls.h"

#include "comm/nccl/module/connection.h"

namespace tandem::nccl_backend {
namespace {

ncclRedOp_t op_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return ncclSum;
    case ReduceOp::kMean: return ncclAvg;
    case ReduceOp::kMin: return ncclMin;
    case ReduceOp::kMax: return ncclMax;
    case ReduceOp::kProduct: return ncclProd;
    case ReduceOp::kTreeSum: break;  // rejected earlier
  }
  return ncclSum;
}

// The calls on one communicator.
struct NcclCalls {
  ncclComm_t comm;
  cudaStream_t stream;

  void all_reduce(const Buffer& part, ReduceOp op) const {
    check(ncclAllReduce(part.data, part.data, elements(part), type_of(part.dtype), op_of(op), comm,
                        stream),
          "ncclAllReduce");
  }
  void reduce(const void* from, void* to, const Buffer& like, ReduceOp op, int root) const {
    check(ncclReduce(from, to, elements(like), type_of(like.dtype), op_of(op), root, comm, stream),
          "ncclReduce");
  }
  void broadcast(const void* from, const Buffer& to, int root) const {
    check(ncclBroadcast(from, to.data, elements(to), type_of(to.dtype), root, comm, stream),
          "ncclBroadcast");
  }
  void send(const Buffer& buffer, int peer) const {
    check(ncclSend(buffer.data, elements(buffer), type_of(buffer.dtype), peer, comm, stream),
          "ncclSend");
  }
  void receive(const Buffer& buffer, int peer) const {
    check(ncclRecv(buffer.data, elements(buffer), type_of(buffer.dtype), peer, comm, stream),
          "ncclRecv");
  }
};

}  // namespace

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return ncclFloat32;
    case DType::kFloat64: return ncclFloat64;
    case DType::kFloat16: return ncclFloat16;
    case DType::kBFloat16: return ncclBfloat16;
    case DType::kInt32: return ncclInt32;
    case DType::kInt64: return ncclInt64;
    case DType::kInt8: return ncclInt8;
    case DType::kUInt32: return ncclUint32;
    case DType::kUInt64: return ncclUint64;
    // NCCL has no integers of 16 bits. They are moved, and not reduced.
    case DType::kInt16:
    case DType::kUInt16: return ncclFloat16;
    case DType::kFloat8E4M3FN:
    case DType::kFloat8E5M2:
    case DType::kUInt8:
    case DType::kBool: break;
  }
  return ncclUint8;
}

void call_share(const Signature& signature, int rank, std::span<const Buffer> in,
                std::span<const Buffer> out, ncclComm_t comm, cudaStream_t stream) {
  const NcclCalls calls{comm, stream};
  const auto me = static_cast<std::size_t>(rank);
  switch (signature.kind) {
    case CollectiveKind::kAllReduce:
      for (const Buffer& part : in)
        if (part.count > 0) calls.all_reduce(part, signature.op);
      break;
    case CollectiveKind::kReduce:
      for (const Buffer& part : in)
        if (part.count > 0) calls.reduce(part.data, part.data, part, signature.op, signature.root);
      break;
    case CollectiveKind::kBroadcast:
      for (const Buffer& part : in)
        if (part.count > 0) calls.broadcast(part.data, part, signature.root);
      break;
    case CollectiveKind::kAllGather:
    case CollectiveKind::kExchange:
      for (std::size_t i = 0; i < out.size(); ++i)
        if (out[i].count > 0)
          calls.broadcast(i == me ? in[0].data : out[i].data, out[i], static_cast<int>(i));
      break;
    case CollectiveKind::kReduceScatter:
      for (std::size_t i = 0; i < in.size(); ++i)
        if (in[i].count > 0)
          calls.reduce(in[i].data, i == me ? out[0].data : nullptr, in[i], signature.op,
                       static_cast<int>(i));
      break;
    case CollectiveKind::kAllToAll:
      for (std::size_t i = 0; i < in.size(); ++i) {
        if (i == me) {
          if (out[i].count > 0 && in[i].data != out[i].data)
            check(
                cudaMemcpyAsync(out[i].data, in[i].data, out[i].bytes(), cudaMemcpyDefault, stream),
                "cudaMemcpyAsync");
          continue;
        }
        if (in[i].count > 0) calls.send(in[i], static_cast<int>(i));
        if (out[i].count > 0) calls.receive(out[i], static_cast<int>(i));
      }
      break;
    case CollectiveKind::kBarrier:
    case CollectiveKind::kSend:
    case CollectiveKind::kRecv: break;
  }
}

}  // namespace tandem::nccl_backend
