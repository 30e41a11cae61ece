// The entry points of the module that libtandem loads.
#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/checked_communicator.h"
#include "comm/nccl/module/calls.h"
#include "comm/nccl/module/group.h"
#include "comm/process/announcement.h"
#include "comm/process/backend.h"
#include "core/status.h"

namespace tandem::nccl_backend {
namespace {

// Its end is recorded once NCCL has put all of it on the stream, by the first thread that polls it.
class GroupLaunch final : public NcclLaunch {
 public:
  GroupLaunch(const NcclConnection& connection, std::string description)
      : NcclLaunch(connection.stream()),
        connection_(connection),
        description_(std::move(description)) {}

  bool ended() override {
    use_gpu(connection_.gpu());
    const bool ready = connection_.ready();  // throws if a peer has failed
    if (!marked_) {
      if (!ready) return false;
      mark_.record(connection_.stream());
      marked_ = true;
    }
    return mark_.passed();
  }
  std::string describe() const override { return description_; }

 private:
  const NcclConnection& connection_;
  const std::string description_;
  CudaEvent mark_;
  bool marked_ = false;
};

// A collective or message, as a sequence of steps: first the ranks exchange their calls, then the
// data moves.
class NcclOperation : public BackendOperation {
 public:
  NcclOperation(NcclGroup& group, const Collective& collective, std::string description)
      : group_(group), collective_(collective), description_(std::move(description)) {
    if (group_.on_cuda()) enqueued_.record(group_.device_stream());
  }

  bool advance() final {
    use_gpu(group_.gpu());
    for (; !done_; ++steps_)
      if (!step()) return false;
    return true;
  }
  std::uint64_t steps() const final { return steps_; }
  // Called by a rank that waits for it.
  virtual void check_peers() {
    if (launch_) group_.connections().restart_limit(*launch_);
    group_.check_published_failure();
  }

 protected:
  // One step. False if it must be retried later. REQUIRES: !done().
  virtual bool step() = 0;
  void finish() { done_ = true; }
  // Makes NCCL calls on the connection, as one group.
  void launch(const NcclConnection& connection,
              const std::function<void(ncclComm_t, cudaStream_t)>& calls);
  // Whether they have completed, also on the GPU.
  bool through() { return group_.connections().ended(*launch_); }

  NcclGroup& group_;
  const Collective& collective_;
  const std::string description_;
  CudaEvent enqueued_;  // CUDA devices: recorded after the computation of the inputs

 private:
  std::shared_ptr<NcclLaunch> launch_;  // the last one
  bool done_ = false;
  std::uint64_t steps_ = 0;
};

class NcclCollective final : public NcclOperation {
 public:
  // `turn`: its number among the group's collectives.
  NcclCollective(NcclGroup& group, const Collective& collective, std::uint64_t turn);

  std::vector<int> missing() const override {
    return announced() ? std::vector<int>{} : group_.missing(collective_.sequence);
  }
  void check_peers() override {
    group_.publish_reached(collective_.sequence);
    NcclOperation::check_peers();
    if (!announced()) group_.check_left(collective_.sequence, description_);
  }

 private:
  enum class Phase { kAnnounce, kCompare, kMove, kEnd };
  bool step() override;
  // By every rank.
  bool announced() const { return phase_ == Phase::kMove || phase_ == Phase::kEnd; }
  void compare() const;
  void move();

  const std::uint64_t turn_;
  Phase phase_ = Phase::kAnnounce;
  std::shared_ptr<void> announcements_;  // this rank's, then all ranks'
  std::unique_ptr<GpuBuffers> in_, out_;
};

class NcclMessage final : public NcclOperation {
 public:
  NcclMessage(NcclGroup& group, const Collective& collective);
  ~NcclMessage() override { std::erase(messages_.queue, this); }

  std::vector<int> missing() const override { return {}; }

 private:
  enum class Phase { kConnect, kHeader, kCompare, kData, kEnd };
  bool step() override;
  // Throws InvalidArgumentError if the other rank sent something else.
  void compare(const Buffer& buffer) const;

  const bool sends_;
  const int peer_;
  MessageConnection& messages_;
  Phase phase_ = Phase::kConnect;
  std::shared_ptr<void> header_;
  std::unique_ptr<GpuBuffers> data_;
};

std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
// The size of a rank's announcement: its call, and the counts per rank of an all-to-all.
std::size_t announcement_bytes(int size) {
  return sizeof(Announcement) + index(size) * sizeof(TransferCounts);
}

void NcclOperation::launch(const NcclConnection& connection,
                           const std::function<void(ncclComm_t, cudaStream_t)>& calls) {
  group_.connections().call([&] { calls(connection.comm(), connection.stream()); });
  launch_ = std::make_shared<GroupLaunch>(connection, description_);
  group_.connections().watch(launch_);
}

NcclCollective::NcclCollective(NcclGroup& group, const Collective& collective, std::uint64_t turn)
    : NcclOperation(group, collective,
                    fmt::format("collective {} ({})", collective.sequence,
                                describe(collective.signature, collective.label, group.names()))),
      turn_(turn) {
  const std::size_t bytes = announcement_bytes(group.size());
  announcements_ = group.pool().take(bytes * index(group.size() + 1));
  auto* mine = static_cast<std::byte*>(announcements_.get());
  std::memset(mine, 0, bytes);
  const Announcement announcement = announce(collective);
  std::memcpy(mine, &announcement, sizeof(announcement));
  if (collective.signature.kind != CollectiveKind::kAllToAll) return;
  for (std::size_t peer = 0; peer < collective.in.size(); ++peer) {
    const TransferCounts counts = {collective.in[peer].count, collective.out[peer].count};
    std::memcpy(mine + sizeof(announcement) + peer * sizeof(counts), &counts, sizeof(counts));
  }
}

bool NcclCollective::step() {
  const NcclConnection& connection = group_.connection();
  switch (phase_) {
    case Phase::kAnnounce: {
      if (group_.turn != turn_ || !group_.connections().ready(connection)) return false;
      const std::size_t bytes = announcement_bytes(group_.size());
      auto* mine = static_cast<std::byte*>(announcements_.get());
      launch(connection, [&](ncclComm_t comm, cudaStream_t stream) {
        check(ncclAllGather(mine, mine + bytes, bytes, ncclUint8, comm, stream), "ncclAllGather");
      });
      phase_ = Phase::kCompare;
      return true;
    }
    case Phase::kCompare:
      if (!through()) return false;
      compare();
      if (collective_.signature.kind == CollectiveKind::kBarrier) {
        ++group_.turn;
        finish();
      }
      phase_ = Phase::kMove;
      return true;
    case Phase::kMove:
      move();
      phase_ = Phase::kEnd;
      return true;
    case Phase::kEnd:
      // The next collective may be announced once NCCL has processed this one.
      if (group_.turn == turn_ && group_.connections().ready(connection)) ++group_.turn;
      if (!through()) return false;
      out_->copy_out();
      finish();
      return true;
  }
  return false;
}

void NcclCollective::compare() const {
  const std::size_t bytes = announcement_bytes(group_.size());
  const auto* all = static_cast<const std::byte*>(announcements_.get()) + bytes;
  std::vector<Announcement> announcements(index(group_.size()));
  std::vector<TransferCounts> counts(announcements.size() * announcements.size());
  for (std::size_t rank = 0; rank < announcements.size(); ++rank) {
    const std::byte* its = all + rank * bytes;
    std::memcpy(&announcements[rank], its, sizeof(Announcement));
    std::memcpy(&counts[rank * announcements.size()], its + sizeof(Announcement),
                announcements.size() * sizeof(TransferCounts));
  }
  check_announcements(collective_, announcements, group_.names());
  if (collective_.signature.kind == CollectiveKind::kAllToAll)
    check_counts_match(collective_, counts, group_.size(), group_.names());
}

void NcclCollective::move() {
  in_ = std::make_unique<GpuBuffers>(collective_.in, group_.pool());
  // In-place collectives have one list.
  const bool in_place = collective_.in.data() == collective_.out.data();
  if (!in_place) out_ = std::make_unique<GpuBuffers>(collective_.out, group_.pool());
  in_->copy_in();
  const NcclConnection& connection = group_.connection();
  launch(connection, [this](ncclComm_t comm, cudaStream_t stream) {
    if (group_.on_cuda()) enqueued_.hold(stream);
    const auto in = in_->placed();
    call_share(collective_.signature, group_.rank(), in, out_ ? out_->placed() : in, comm, stream);
  });
  if (in_place) out_ = std::move(in_);
}

NcclMessage::NcclMessage(NcclGroup& group, const Collective& collective)
    : NcclOperation(group, collective,
                    describe(collective.signature, collective.label, group.names())),
      sends_(collective.signature.kind == CollectiveKind::kSend),
      peer_(collective.signature.root),
      messages_(group.message_connection(peer_, sends_)),
      header_(group.pool().take(sizeof(MessageHeader))) {
  const Buffer& buffer = sends_ ? collective.in.front() : collective.out.front();
  const MessageHeader header = header_of(buffer);
  if (sends_) std::memcpy(header_.get(), &header, sizeof(header));
  messages_.queue.push_back(this);
}

void NcclMessage::compare(const Buffer& buffer) const {
  MessageHeader sent;
  std::memcpy(&sent, header_.get(), sizeof(sent));
  check_message(sent, peer_, buffer, group_.rank(), group_.names());
}

bool NcclMessage::step() {
  const std::span<const Buffer> one = sends_ ? collective_.in : collective_.out;
  const Buffer& buffer = one.front();
  const int other = sends_ ? 1 : 0;  // the peer's rank in the connection, which has two
  switch (phase_) {
    case Phase::kConnect:
      if (messages_.queue.front() != this || !group_.connect(messages_, peer_, sends_))
        return false;
      launch(*messages_.connection, [&](ncclComm_t comm, cudaStream_t stream) {
        check(sends_
                  ? ncclSend(header_.get(), sizeof(MessageHeader), ncclUint8, other, comm, stream)
                  : ncclRecv(header_.get(), sizeof(MessageHeader), ncclUint8, other, comm, stream),
              sends_ ? "ncclSend" : "ncclRecv");
      });
      phase_ = Phase::kHeader;
      return true;
    case Phase::kHeader:
      if (sends_ ? !group_.connections().ready(*messages_.connection) : !through()) return false;
      phase_ = Phase::kCompare;
      return true;
    case Phase::kCompare:
      compare(buffer);
      phase_ = Phase::kData;
      return true;
    case Phase::kData:
      data_ = std::make_unique<GpuBuffers>(one, group_.pool());
      if (sends_) data_->copy_in();
      launch(*messages_.connection, [&](ncclComm_t comm, cudaStream_t stream) {
        if (group_.on_cuda()) enqueued_.hold(stream);
        if (buffer.count == 0) return;
        const ncclDataType_t type = type_of(buffer.dtype);
        check(sends_
                  ? ncclSend(data_->placed()[0].data, elements(buffer), type, other, comm, stream)
                  : ncclRecv(data_->placed()[0].data, elements(buffer), type, other, comm, stream),
              sends_ ? "ncclSend" : "ncclRecv");
      });
      phase_ = Phase::kEnd;
      return true;
    case Phase::kEnd:
      if (!through()) return false;
      messages_.queue.pop_front();
      if (!sends_) data_->copy_out();
      finish();
      return true;
  }
  return false;
}

class NcclBackend final : public Backend {
 public:
  NcclBackend(GroupOptions options, NcclDevice where) : group_(std::move(options), where) {}

  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  const std::string& name() const override { return group_.options().name; }
  const RankNames& names() const override { return group_.names(); }
  bool supports_device_memory() const override { return group_.on_cuda(); }
  bool oversubscribed() const override { return false; }

  void check(const CheckedCall& call) const override {
    if (call.op == ReduceOp::kTreeSum)
      throw UnimplementedError(
          "[all_reduce] a tree sum over NCCL between processes, whose order of sums is its own: "
          "use the backend shm, gloo or mpi");
  }
  std::unique_ptr<BackendOperation> start(const Collective& collective) override {
    use_gpu(group_.gpu());
    const CollectiveKind kind = collective.signature.kind;
    if (kind == CollectiveKind::kSend || kind == CollectiveKind::kRecv)
      return std::make_unique<NcclMessage>(group_, collective);
    return std::make_unique<NcclCollective>(group_, collective, next_turn_++);
  }

  void check_peers(const BackendOperation& operation) override {
    // The operation is this backend's own, and no other object uses it.
    const_cast<NcclOperation&>(static_cast<const NcclOperation&>(operation)).check_peers();
  }

  void abort(GroupFailure failure, const std::string& text) noexcept override {
    group_.publish_failure(failure, text);
    group_.abort(failure, text);
  }
  void check_failure() override { group_.check_published_failure(); }

  std::shared_ptr<void> allocate(std::size_t bytes) override {
    use_gpu(group_.gpu());
    return group_.pool().take(bytes);
  }

  std::unique_ptr<Backend> split(std::span<const int> ranks, const std::string& name) override {
    return std::make_unique<NcclBackend>(group_.options().of(ranks, name), group_.where());
  }

 private:
  NcclGroup group_;
  std::uint64_t next_turn_ = 0;
};

}  // namespace
}  // namespace tandem::nccl_backend

extern "C" __attribute__((visibility("default"))) tandem::Backend* tandem_make_nccl_backend(
    tandem::GroupOptions* options, tandem::NcclDevice* where) {
  return new tandem::nccl_backend::NcclBackend(std::move(*options), *where);
}
