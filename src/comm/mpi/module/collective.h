// Collectives and messages under way: calls of MPI that do not wait, and looks at what has become
// of them.
//
// Ranks first tell each other what they call, from rank to rank, so that each knows who is missing.
// When all have, and agree, the data moves: a WindowedReduction combines, the rest is one call of
// MPI, made in the order of the collectives. What is little goes with the announcement.
#pragma once

#include <array>

#include "comm/mpi/module/group.h"
#include "comm/mpi/module/mpi_transfers.h"
#include "comm/process/windowed_reduction.h"

namespace tandem::mpi_backend {

class MpiOperation : public BackendOperation {
 public:
  // Whether this rank still needs something of `peer`.
  virtual bool waits_for(int peer) const = 0;
  virtual std::string description() const = 0;
  // The group has failed: calls off what can be called off; whether that was all.
  virtual bool call_off() noexcept = 0;
};

class Queue;

// MPI sends so much at once, without asking the receiver first.
constexpr std::size_t kMessagePiece = 3 << 10;

class MpiCollective final : public MpiOperation {
 public:
  MpiCollective(Group& group, Queue& queue, const Collective& collective);
  ~MpiCollective() override;
  bool advance() override;
  std::uint64_t steps() const override { return steps_; }
  std::vector<int> missing() const override;
  bool waits_for(int peer) const override;
  std::string description() const override;
  bool call_off() noexcept override;

 private:
  friend class Queue;

  void post_messages();
  void step(const MpiCollective* before);
  bool all_have_called();
  // Whether every rank expects what the others send it.
  bool agreed_on_counts();
  void start_data();
  WindowedReduction& make_reduction();
  void start_broadcast();
  void start_all_gather();
  void start_all_to_all();
  void use_announced();
  bool data_done();
  void finish();
  std::size_t index(int rank) const { return static_cast<std::size_t>(rank); }
  // Of a message: its last piece is received as if it were a whole one.
  std::size_t room() const { return sizeof(Announcement) + small_limit_ + kMessagePiece; }
  std::byte* message_of(int rank) const { return memory_->messages.get() + index(rank) * room(); }

  Group& group_;
  Queue& queue_;
  const Collective& collective_;
  std::uint64_t steps_ = 0;
  // The memory that MPI reads and writes beside the caller's buffers. It outlives this object when
  // a call that is under way cannot be cancelled.
  struct Memory {
    // By rank: the announcement, and after it the data of a rank that are little.
    std::unique_ptr<std::byte[]> messages;
    std::vector<ShareCounts> share_counts;
    std::optional<Contiguous> in, out;
    std::vector<int> counts, places, out_counts, out_places;
  };
  std::unique_ptr<Memory> memory_ = std::make_unique<Memory>();
  // The most bytes of data that a message includes; 0 where data has messages of its own.
  std::size_t small_limit_ = 0, small_ = 0;
  std::vector<MPI_Request> received_;     // announcements, by rank
  std::vector<MPI_Request> rest_, sent_;  // of the messages
  bool checked_ = false, counting_ = false, started_ = false, done_ = false;
  MPI_Request request_ = MPI_REQUEST_NULL;
  std::optional<MpiTransfers> transfers_;  // of reduction_
  std::optional<WindowedReduction> reduction_;
};

// Goes round in order: first the size and the type, which the receiver checks, then the data.
class MpiMessage final : public MpiOperation {
 public:
  MpiMessage(Group& group, Queue& queue, const Collective& collective, std::uint64_t number);
  ~MpiMessage() override;
  bool advance() override;
  std::uint64_t steps() const override { return steps_; }
  std::vector<int> missing() const override { return {}; }
  bool waits_for(int peer) const override { return !done_ && peer == peer_; }
  std::string description() const override;
  bool call_off() noexcept override;

 private:
  bool sends() const { return collective_.signature.kind == CollectiveKind::kSend; }
  void start_data();

  Group& group_;
  Queue& queue_;
  const Collective& collective_;
  const Buffer& buffer_;
  int peer_, tag_;
  using Header = std::array<std::int64_t, 2>;  // elements, dtype
  // Outlives this as MpiCollective::Memory does.
  std::unique_ptr<Header> header_ = std::make_unique<Header>();
  MPI_Request header_request_ = MPI_REQUEST_NULL, request_ = MPI_REQUEST_NULL;
  bool data_started_ = false, done_ = false;
  std::uint64_t steps_ = 0;
};

// What is under way.
class Queue {
 public:
  explicit Queue(Group& group) : group_(group) {}
  // Collectives in order, up to `last`.
  void advance(const MpiCollective& last);
  // After a failure. Nothing is under way any more, or MPI is abandoned.
  void call_off() noexcept;

 private:
  friend class MpiCollective;
  friend class MpiMessage;
  Group& group_;
  Scratch scratch_;
  std::deque<MpiCollective*> collectives_;
  std::deque<MpiMessage*> messages_;
};

}  // namespace tandem::mpi_backend
