// The base of all communicators: checks every call and converts it to one common form.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "comm/signature.h"
#include "core/threads.h"

namespace tandem {

// A call with valid arguments.
struct CheckedCall {
  CollectiveKind kind = CollectiveKind::kBarrier;
  // This rank's inputs and outputs. In-place collectives (all_reduce, reduce, broadcast) have their
  // buffers in `in` only.
  std::span<const Buffer> in, out;
  std::span<const Buffer> counts;  // the buffers whose counts must be equal on every rank
  ReduceOp op = ReduceOp::kSum;
  int root = 0;  // for send and recv: the peer

  Signature signature() const { return make_signature(kind, counts, op, root); }
};

// Whether a collective writes its results over its inputs.
bool works_in_place(CollectiveKind kind);

class CheckedCommunicator : public Communicator {
 public:
  std::shared_ptr<CollectiveWork> all_reduce(std::span<const Buffer> parts, ReduceOp op) final;
  std::shared_ptr<CollectiveWork> reduce(std::span<const Buffer> parts, ReduceOp op,
                                         int root) final;
  std::shared_ptr<CollectiveWork> broadcast(std::span<const Buffer> parts, int root) final;
  std::shared_ptr<CollectiveWork> all_gather(const Buffer& mine,
                                             std::span<const Buffer> gathered) final;
  std::shared_ptr<CollectiveWork> reduce_scatter(std::span<const Buffer> parts, const Buffer& mine,
                                                 ReduceOp op) final;
  std::shared_ptr<CollectiveWork> all_to_all(std::span<const Buffer> sent,
                                             std::span<const Buffer> received) final;
  std::shared_ptr<CollectiveWork> send(const Buffer& buffer, int peer) final;
  std::shared_ptr<CollectiveWork> recv(const Buffer& buffer, int peer) final;
  std::shared_ptr<CollectiveWork> barrier() final;
  void exchange(const void* mine, std::size_t bytes, void* gathered) final;
  std::shared_ptr<CollectiveWork> start_exchange(const void* mine, std::size_t bytes,
                                                 void* gathered) final;
  std::unique_ptr<Communicator> split(std::span<const int> ranks) final;

 private:
  std::shared_ptr<CollectiveWork> launch(const CheckedCall& call) {
    process_.expect_this("process group");
    return start(call);
  }
  // The spans are valid during the call.
  virtual std::shared_ptr<CollectiveWork> start(const CheckedCall& call) = 0;
  // `place`: the index of this rank in `ranks`.
  virtual std::unique_ptr<Communicator> split_off(const std::vector<int>& ranks, int place) = 0;

  OwnProcess process_;
};

}  // namespace tandem
