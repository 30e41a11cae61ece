#include "comm/mpi/module/collective.h"

#include <algorithm>
#include <utility>

#include "core/status.h"

namespace tandem::mpi_backend {
namespace {

constexpr std::int64_t kWindowBytes = 4 << 20;          // per window, all ranks' slices together
constexpr std::size_t kLongest = std::size_t{1} << 30;  // bytes per MPI call

// Whether all are complete. Removes those that are.
bool test_all(std::vector<MPI_Request>& requests, std::uint64_t& steps) {
  bool all = true;
  for (MPI_Request& request : requests) {
    if (request == MPI_REQUEST_NULL) continue;
    int done = 0;
    check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done)
      ++steps;
    else
      all = false;
  }
  return all;
}

bool is_done(MPI_Request& request) {
  if (request == MPI_REQUEST_NULL) return true;
  int done = 0;
  return MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done;
}

// Whether the request is complete or was cancelled.
bool cancel_receive(MPI_Request& request) {
  return request == MPI_REQUEST_NULL || (MPI_Cancel(&request) == MPI_SUCCESS && is_done(request));
}

// The maximum data in an announcement. Every rank sends it to every other.
std::size_t small_limit(int ranks) { return (std::size_t{8} << 10) / (ranks > 8 ? 8 : 1); }

// Each collective uses the next four of 2^15 tags.
int tag_of(const Collective& collective) {
  return static_cast<int>(collective.sequence % (1 << 13)) * TransferredCollective::kPhases;
}

// A call that MPI cannot cancel may continue whenever any group calls MPI.
void keep_for_ever(std::vector<std::shared_ptr<void>> memory) {
  static auto& kept = *new std::vector<std::vector<std::shared_ptr<void>>>;
  kept.push_back(std::move(memory));
}

}  // namespace

template <class Start>
Transfers::Id MpiTransfers::start(bool sends, std::size_t bytes, const Start& start) {
  const Id first = transfers_.size();
  for (std::size_t at = 0; at < bytes; at += kLongest) {
    MpiTransfer& transfer = transfers_.emplace_back();
    transfer.sends = sends;
    transfer.continues = bytes - at > kLongest;
    start(at, static_cast<int>(std::min(bytes - at, kLongest)), &transfer.request);
  }
  return first;
}

Transfers::Id MpiTransfers::send(int peer, int phase, const std::byte* data, std::size_t bytes) {
  return start(true, bytes, [&](std::size_t at, int count, MPI_Request* request) {
    check(MPI_Isend(data + at, count, MPI_BYTE, peer, tag_ + phase, among_, request), "MPI_Isend");
  });
}

Transfers::Id MpiTransfers::receive(int peer, int phase, std::byte* data, std::size_t bytes) {
  return start(false, bytes, [&](std::size_t at, int count, MPI_Request* request) {
    check(MPI_Irecv(data + at, count, MPI_BYTE, peer, tag_ + phase, among_, request), "MPI_Irecv");
  });
}

bool MpiTransfers::complete(Id id) {
  for (;; ++id) {
    MPI_Request& request = transfers_[id].request;
    int done = 1;
    if (request != MPI_REQUEST_NULL)
      check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (!done) return false;
    if (!transfers_[id].continues) return true;
  }
}

bool MpiTransfers::cancel() noexcept {
  bool all = true;
  for (MpiTransfer& transfer : transfers_)
    all = (transfer.sends ? is_done(transfer.request) : cancel_receive(transfer.request)) && all;
  return all;
}

MpiQueue::MpiQueue(MpiGroup& group) : group_(group) { group_.session().add(*this); }
MpiQueue::~MpiQueue() { group_.session().remove(*this); }

void MpiQueue::end_with_mpi() noexcept {
  for (MpiOperation* operation : operations_) operation->release();
}

void MpiQueue::cancel() noexcept {
  bool all = true;
  for (MpiOperation* operation : operations_) all = operation->cancel() && all;
  if (!all) group_.session().skip_finalize();
}

MpiOperation::MpiOperation(MpiGroup& group, MpiQueue& queue, const Collective& collective,
                           MPI_Comm among, int tag)
    : group_(group), queue_(queue), collective_(collective), transfers_(among, tag) {}

bool MpiOperation::advance() {
  if (done_) return true;
  const auto lock = group_.session().enter();
  return done_ = proceed();
}

void MpiOperation::end() noexcept {
  const auto lock = group_.session().enter_if_running();
  std::erase(queue_.operations_, this);
  if (lock) release();
}

void MpiOperation::release() noexcept {
  if (done_ || cancel()) return;
  group_.session().skip_finalize();
  keep_for_ever(memory());
}

MpiCollective::MpiCollective(MpiGroup& group, MpiQueue& queue, const Collective& collective)
    : MpiOperation(group, queue, collective, group.data(), tag_of(collective)),
      small_limit_(small_limit(group.size())),
      messages_(std::make_shared_for_overwrite<std::byte[]>(room() * index(group.size()))),
      received_(index(group.size()), MPI_REQUEST_NULL),
      data_(std::make_shared<TransferredCollective>(transfers_, collective, group.names(),
                                                    queue.scratch_,
                                                    TransferOptions{.rank = group.rank(),
                                                                    .size = group.size(),
                                                                    .window_bytes = kWindowBytes,
                                                                    .small_limit = small_limit_})) {
  write_announcement(collective, group.rank(), small_limit_, message_of(group.rank()));
  const auto lock = group_.session().enter();
  post_messages();
  queue_.operations_.push_back(this);
}

// A peer whose call mismatches sends different pieces, except the first, which has its
// announcement.
void MpiCollective::post_messages() {
  for (int peer = 0; peer < group_.size(); ++peer) {
    if (peer == group_.rank()) continue;
    for (std::size_t at = 0; at < bytes_of(peer); at += kMessagePiece) {
      MPI_Request& request = at == 0 ? received_[index(peer)] : rest_.emplace_back();
      check(MPI_Irecv(message_of(peer) + at, static_cast<int>(kMessagePiece), MPI_BYTE, peer,
                      kAnnouncementTag, group_.messages(), &request),
            "MPI_Irecv");
    }
  }
  const std::size_t bytes = bytes_of(group_.rank());
  for (int peer = 0; peer < group_.size(); ++peer) {
    if (peer == group_.rank()) continue;
    for (std::size_t at = 0; at < bytes; at += kMessagePiece)
      check(MPI_Isend(message_of(group_.rank()) + at,
                      static_cast<int>(std::min(kMessagePiece, bytes - at)), MPI_BYTE, peer,
                      kAnnouncementTag, group_.messages(), &sent_.emplace_back()),
            "MPI_Isend");
  }
}

bool MpiCollective::proceed() {
  if (!checked_) {
    if (!test_all(received_, steps_)) return false;
    check_announcements(collective_, messages(), group_.names());
    checked_ = true;
  }
  if (!started_) {
    if (!test_all(rest_, steps_)) return false;
    group_.look_for_failure();  // of ranks that failed after they called
    data_->start(messages());
    started_ = true;
  }
  if (!data_->advance(steps_) || !test_all(sent_, steps_)) return false;
  ++steps_;
  return true;
}

std::vector<const std::byte*> MpiCollective::messages() const {
  std::vector<const std::byte*> all;
  for (int rank = 0; rank < group_.size(); ++rank) all.push_back(message_of(rank));
  return all;
}

std::vector<int> MpiCollective::missing() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < group_.size(); ++rank)
    if (waits_for(rank)) ranks.push_back(rank);
  return ranks;
}

bool MpiCollective::waits_for(int peer) const { return received_[index(peer)] != MPI_REQUEST_NULL; }

std::string MpiCollective::description() const {
  return fmt::format("collective {} ({})", collective_.sequence,
                     describe(collective_.signature, collective_.label, group_.names()));
}

bool MpiCollective::cancel() noexcept {
  bool all = true;
  for (MPI_Request& request : received_) all = cancel_receive(request) && all;
  for (MPI_Request& request : rest_) all = cancel_receive(request) && all;
  for (MPI_Request& request : sent_) all = is_done(request) && all;
  return transfers_.cancel() && all;
}

MpiMessage::MpiMessage(MpiGroup& group, MpiQueue& queue, const Collective& collective,
                       std::uint64_t number)
    : MpiOperation(group, queue, collective, group.messages(),
                   kMessageTags + 2 * static_cast<int>(number % (1 << 13))),
      message_(std::make_shared<TransferredMessage>(transfers_, collective, group.rank(),
                                                    group.names())) {
  const auto lock = group_.session().enter();
  queue_.operations_.push_back(this);
}

std::string MpiMessage::description() const {
  return describe(collective_.signature, collective_.label, group_.names());
}

}  // namespace tandem::mpi_backend
