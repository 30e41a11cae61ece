// Open collectives and messages: non-blocking MPI calls that are polled.
//
// Ranks first exchange announcements of their calls, so that each knows which ranks are missing.
// When all announcements have arrived and match, the data moves: reductions with a
// WindowedReduction, other collectives with one MPI call, made in the order of the collectives.
// Small data is sent in the announcement.
#pragma once

#include <mpi.h>

#include <vector>

#include "comm/mpi/module/group.h"
#include "comm/process/transfers.h"
#include "comm/process/windowed_reduction.h"

namespace tandem::mpi_backend {

// Non-blocking sends and receives through MPI.
// REQUIRES for all functions: no other thread calls MPI; at most INT_MAX bytes per transfer.
class MpiTransfers final : public Transfers {
 public:
  // Phase p uses the tag `tag` + p between all ranks of the communicator.
  MpiTransfers(MPI_Comm among, int tag) : among_(among), tag_(tag) {}

  Id send(int peer, int phase, const std::byte* data, std::size_t bytes) override;
  Id receive(int peer, int phase, std::byte* data, std::size_t bytes) override;
  bool complete(Id id) override;
  // MPI must not write to memory that it is still sending.
  bool receives_into_sent() const override { return false; }

  // Cancels the receives. Returns whether MPI no longer uses any of the memory.
  bool cancel() noexcept;

 private:
  struct MpiTransfer {
    MPI_Request request = MPI_REQUEST_NULL;  // null: complete
    bool sends = false;
  };
  const MPI_Comm among_;
  const int tag_;
  std::vector<MpiTransfer> transfers_;
};

class MpiOperation : public BackendOperation {
 public:
  // Whether this rank still waits for something from `peer`.
  virtual bool waits_for(int peer) const = 0;
  virtual std::string description() const = 0;
  // The group has failed: cancels the MPI calls. Returns whether all could be cancelled.
  virtual bool cancel() noexcept = 0;
  // The same, for the last time: keeps the memory that MPI may still access.
  virtual void release() noexcept = 0;
};

class MpiQueue;

// MPI sends a message of this size at once, without asking the receiver first.
constexpr std::size_t kMessagePiece = 3 << 10;

class MpiCollective final : public MpiOperation {
 public:
  MpiCollective(MpiGroup& group, MpiQueue& queue, const Collective& collective);
  ~MpiCollective() override;
  bool advance() override;
  std::uint64_t steps() const override { return steps_; }
  std::vector<int> missing() const override;
  bool waits_for(int peer) const override;
  std::string description() const override;
  bool cancel() noexcept override;
  void release() noexcept override;

 private:
  friend class MpiQueue;

  void post_messages();
  void step(const MpiCollective* before);
  bool all_have_called();
  // Whether every rank expects the counts that the others send.
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
  // The size of a message's memory. Its last piece is received as if it were a full one.
  std::size_t room() const { return sizeof(Announcement) + small_limit_ + kMessagePiece; }
  std::byte* message_of(int rank) const { return memory_->messages.get() + index(rank) * room(); }

  MpiGroup& group_;
  MpiQueue& queue_;
  const Collective& collective_;
  std::uint64_t steps_ = 0;
  // The memory that MPI accesses besides the caller's buffers. It outlives this object if a running
  // call cannot be cancelled.
  struct TransferMemory {
    // By rank: the announcement, followed by the rank's small data.
    std::unique_ptr<std::byte[]> messages;
    std::vector<TransferCounts> share_counts;
    std::optional<Contiguous> in, out;
    std::vector<int> counts, places, out_counts, out_places;
  };
  std::unique_ptr<TransferMemory> memory_ = std::make_unique<TransferMemory>();
  // The maximum data bytes in an announcement; 0 if data has messages of its own.
  std::size_t small_limit_ = 0, small_ = 0;
  std::vector<MPI_Request> received_;     // announcements, by rank
  std::vector<MPI_Request> rest_, sent_;  // of the messages
  bool checked_ = false, counting_ = false, started_ = false, done_ = false;
  MPI_Request request_ = MPI_REQUEST_NULL;
  std::optional<MpiTransfers> transfers_;  // of reduction_
  std::optional<WindowedReduction> reduction_;
};

// Sends the size and the type first, which the receiver checks, then the data.
class MpiMessage final : public MpiOperation {
 public:
  MpiMessage(MpiGroup& group, MpiQueue& queue, const Collective& collective, std::uint64_t number);
  ~MpiMessage() override;
  bool advance() override;
  std::uint64_t steps() const override { return steps_; }
  std::vector<int> missing() const override { return {}; }
  bool waits_for(int peer) const override { return !done_ && peer == peer_; }
  std::string description() const override;
  bool cancel() noexcept override;
  void release() noexcept override;

 private:
  friend class MpiQueue;

  bool sends() const { return collective_.signature.kind == CollectiveKind::kSend; }
  void start_data();

  MpiGroup& group_;
  MpiQueue& queue_;
  const Collective& collective_;
  const Buffer& buffer_;
  int peer_, tag_;
  // Outlives this object as MpiCollective::TransferMemory does.
  std::unique_ptr<MessageHeader> header_ = std::make_unique<MessageHeader>();
  MPI_Request header_request_ = MPI_REQUEST_NULL, request_ = MPI_REQUEST_NULL;
  bool data_started_ = false, done_ = false;
  std::uint64_t steps_ = 0;
};

// The open collectives and messages of a group.
class MpiQueue final : public MpiSession::Client {
 public:
  explicit MpiQueue(MpiGroup& group);
  ~MpiQueue() override;
  MpiQueue(const MpiQueue&) = delete;
  MpiQueue& operator=(const MpiQueue&) = delete;
  // Advances collectives in order, up to `last`.
  void advance(const MpiCollective& last);
  // After a failure: afterwards nothing is running, or MPI is left without MPI_Finalize.
  void cancel() noexcept;
  void end_with_mpi() noexcept override;

 private:
  friend class MpiCollective;
  friend class MpiMessage;
  MpiGroup& group_;
  Scratch scratch_;
  std::deque<MpiCollective*> collectives_;
  std::deque<MpiMessage*> messages_;
};

}  // namespace tandem::mpi_backend
