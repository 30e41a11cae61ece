// What communicators have in common: every call is checked, and becomes one of one form.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "comm/signature.h"

namespace tandem {

// A call whose arguments are in order.
struct CheckedCall {
  CollectiveKind kind = CollectiveKind::kBarrier;
  // What this rank gives and gets. What works in place (all_reduce, reduce, broadcast) has its
  // parts in `in` alone.
  std::span<const Buffer> in, out;
  std::span<const Buffer> counts;  // the list that every rank names with the same counts
  ReduceOp op = ReduceOp::kSum;
  int root = 0;  // or the peer

  Signature signature() const { return make_signature(kind, counts, op, root); }
};

// Whether a collective has its results where its inputs were.
bool works_in_place(CollectiveKind kind);

class CheckedCommunicator : public Communicator {
 public:
  std::shared_ptr<Work> all_reduce(std::span<const Buffer> parts, ReduceOp op) final;
  std::shared_ptr<Work> reduce(std::span<const Buffer> parts, ReduceOp op, int root) final;
  std::shared_ptr<Work> broadcast(std::span<const Buffer> parts, int root) final;
  std::shared_ptr<Work> all_gather(const Buffer& mine, std::span<const Buffer> gathered) final;
  std::shared_ptr<Work> reduce_scatter(std::span<const Buffer> parts, const Buffer& mine,
                                       ReduceOp op) final;
  std::shared_ptr<Work> all_to_all(std::span<const Buffer> sent,
                                   std::span<const Buffer> received) final;
  std::shared_ptr<Work> send(const Buffer& buffer, int peer) final;
  std::shared_ptr<Work> recv(const Buffer& buffer, int peer) final;
  std::shared_ptr<Work> barrier() final;
  void exchange(const void* mine, std::size_t bytes, void* gathered) final;
  std::shared_ptr<Work> start_exchange(const void* mine, std::size_t bytes, void* gathered) final;
  std::unique_ptr<Communicator> split(std::span<const int> ranks) final;

 private:
  // The spans live as long as the call.
  virtual std::shared_ptr<Work> start(const CheckedCall& call) = 0;
  // `place`: of this rank in `ranks`.
  virtual std::unique_ptr<Communicator> split_off(const std::vector<int>& ranks, int place) = 0;
};

}  // namespace tandem
