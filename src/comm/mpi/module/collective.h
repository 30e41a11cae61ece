// Open collectives and messages: non-blocking MPI sends and receives that are polled.
//
// Ranks first exchange announcements of their calls, so that each knows which ranks are missing.
// When all announcements have arrived and match, the data moves. Small data is sent in the
// announcement.
#pragma once

#include <mpi.h>

#include <memory>
#include <string>
#include <vector>

#include "comm/mpi/module/group.h"
#include "comm/process/transferred_collective.h"

namespace tandem::mpi_backend {

// Non-blocking sends and receives through MPI.
// REQUIRES for all functions: no other thread calls MPI.
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
  // MPI counts bytes by an int: a longer transfer consists of several, one after the other.
  struct MpiTransfer {
    MPI_Request request = MPI_REQUEST_NULL;  // null: complete
    bool sends = false;
    bool continues = false;  // in the next one
  };
  template <class Start>
  Id start(bool sends, std::size_t bytes, const Start& start);

  const MPI_Comm among_;
  const int tag_;
  std::vector<MpiTransfer> transfers_;
};

class MpiQueue;

class MpiOperation : public BackendOperation {
 public:
  bool advance() override;
  std::uint64_t steps() const override { return steps_; }
  // Whether this rank still waits for something from `peer`.
  virtual bool waits_for(int peer) const = 0;
  virtual std::string description() const = 0;
  // The group has failed: cancels the MPI calls. Returns whether all could be cancelled.
  virtual bool cancel() noexcept = 0;
  // The same, for the last time: keeps the memory that MPI may still access.
  void release() noexcept;

 protected:
  MpiOperation(MpiGroup& group, MpiQueue& queue, const Collective& collective, MPI_Comm among,
               int tag);
  // For the destructors of subclasses.
  void end() noexcept;

  MpiGroup& group_;
  MpiQueue& queue_;
  const Collective& collective_;
  std::uint64_t steps_ = 0;
  bool done_ = false;
  MpiTransfers transfers_;

 private:
  // Makes progress without waiting. Returns whether it is complete.
  virtual bool proceed() = 0;
  // The memory that MPI accesses besides the caller's buffers.
  virtual std::vector<std::shared_ptr<void>> memory() = 0;
};

// MPI sends a message of this size at once, without asking the receiver first.
constexpr std::size_t kMessagePiece = 3 << 10;

class MpiCollective final : public MpiOperation {
 public:
  MpiCollective(MpiGroup& group, MpiQueue& queue, const Collective& collective);
  ~MpiCollective() override { end(); }
  std::vector<int> missing() const override;
  bool waits_for(int peer) const override;
  std::string description() const override;
  bool cancel() noexcept override;

 private:
  bool proceed() override;
  std::vector<std::shared_ptr<void>> memory() override { return {messages_, data_}; }
  void post_messages();
  bool all_have_called();
  std::vector<const std::byte*> messages() const;
  std::size_t index(int rank) const { return static_cast<std::size_t>(rank); }
  // The bytes of a rank's message: the announcement, followed by the rank's small data.
  std::size_t bytes_of(int rank) const {
    return sizeof(Announcement) + bytes_with_announcement(collective_, rank, small_limit_);
  }
  // The size of a message's memory. Its last piece is received as if it were a full one.
  std::size_t room() const { return sizeof(Announcement) + small_limit_ + kMessagePiece; }
  std::byte* message_of(int rank) const { return messages_.get() + index(rank) * room(); }

  const std::size_t small_limit_;  // the maximum data bytes in an announcement
  std::shared_ptr<std::byte[]> messages_;
  std::vector<MPI_Request> received_;     // the first pieces, with announcements, by rank
  std::vector<MPI_Request> rest_, sent_;  // of the messages
  bool checked_ = false, started_ = false;
  std::shared_ptr<TransferredCollective> data_;
};

class MpiMessage final : public MpiOperation {
 public:
  MpiMessage(MpiGroup& group, MpiQueue& queue, const Collective& collective, std::uint64_t number);
  ~MpiMessage() override { end(); }
  std::vector<int> missing() const override { return {}; }
  bool waits_for(int peer) const override { return !done_ && peer == collective_.signature.root; }
  std::string description() const override;
  bool cancel() noexcept override { return transfers_.cancel(); }

 private:
  bool proceed() override { return message_->advance(steps_); }
  std::vector<std::shared_ptr<void>> memory() override { return {message_}; }

  std::shared_ptr<TransferredMessage> message_;
};

// The open collectives and messages of a group.
class MpiQueue final : public MpiSession::Client {
 public:
  explicit MpiQueue(MpiGroup& group);
  ~MpiQueue() override;
  MpiQueue(const MpiQueue&) = delete;
  MpiQueue& operator=(const MpiQueue&) = delete;
  // After a failure: afterwards nothing is running, or MPI is left without MPI_Finalize.
  void cancel() noexcept;
  void end_with_mpi() noexcept override;

 private:
  friend class MpiOperation;
  friend class MpiCollective;
  friend class MpiMessage;
  MpiGroup& group_;
  Scratch scratch_;
  std::vector<MpiOperation*> operations_;
};

}  // namespace tandem::mpi_backend
