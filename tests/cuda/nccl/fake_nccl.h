// Declarations that the parts of the fake of NCCL share.
#pragma once

#include <nccl.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tandem/dtype.h"
#include "tandem/reduce_op.h"

namespace tandem::fake_nccl {

enum class CallKind { kAllReduce, kReduce, kBroadcast, kAllGather, kSend, kReceive };

struct Rank;

struct Call {
  std::shared_ptr<Rank> rank;
  CallKind kind;
  const void* from;
  void* to;
  std::size_t count;
  DType dtype;
  ReduceOp op;
  int root;  // for a message: the peer
  cudaStream_t stream;
};

class RankSegment;

// A communicator, which lives at least as long as its work on streams.
struct Rank {
  int rank = 0, size = 1;
  std::shared_ptr<std::vector<std::weak_ptr<Rank>>> clique;  // null: one process per rank
  std::unique_ptr<RankSegment> segment;                      // null: all ranks are in this process
  std::atomic<ncclResult_t> state{ncclSuccess};
  std::atomic<bool> leaves{false};  // has left
  // running work ends without further access to the program's memory
  std::atomic<bool> aborted{false};
  std::atomic<int> running{0};

  // For a stream's task: calls body() unless this is aborted.
  template <class F>
  void run(const F& body) {
    ++running;
    if (!aborted) body();
    --running;
  }
  // Waits until done(), as a kernel would; false if this is aborted before.
  template <class F>
  bool wait(const F& done) const {
    for (int round = 0; !done(); ++round) {
      if (aborted) return false;
      if (round < 200)
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return true;
  }
};

// Shared memory through which ranks of one communicator in several processes reach each other;
// found by the communicator's id. If a rank dies, the others keep waiting, as over NVLink. With
// FAKE_NCCL_TELLS_OF_DEATHS=1 their communicators fail, as over a network.
class RankSegment {
 public:
  RankSegment(const ncclUniqueId& id, int rank, int size);
  ~RankSegment();
  RankSegment(const RankSegment&) = delete;
  RankSegment& operator=(const RankSegment&) = delete;

  bool complete() const;  // every rank has joined
  bool deserted() const;  // every rank has left
  void leave();
  // Runs the calls of a group, on the stream.
  void run(Rank& mine, std::span<const Call> calls);

 private:
  struct Header;
  struct Place;
  struct Channel;
  class Message;

  Place& place(int rank) const;
  std::byte* slot(int rank) const;
  Channel& channel(int from, int to) const;
  bool peer_is_dead() const;
  template <class F>
  bool wait(Rank& mine, const F& done) const;
  template <class F>
  bool wait_for_all(Rank& mine, const F& reached) const;
  bool collective(Rank& mine, const Call& call);

  const int rank_, size_;
  std::string name_;
  std::size_t bytes_ = 0;
  Header* memory_ = nullptr;
  std::uint64_t round_ = 0;  // for the stream's thread
};

}  // namespace tandem::fake_nccl
