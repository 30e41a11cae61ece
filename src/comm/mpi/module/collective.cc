#include "comm/mpi/module/collective.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "comm/combine.h"
#include "comm/mpi/module/types.h"
#include "core/status.h"

namespace tandem::mpi_backend {
namespace {

// MPI counts in int.
int count_of(std::string_view what, std::int64_t count) {
  if (count > std::numeric_limits<int>::max())
    fail<UnimplementedError>("[{}] the mpi backend moves at most {} elements at a time, got {}",
                             what, std::numeric_limits<int>::max(), count);
  return static_cast<int>(count);
}

// Whether all are complete; those that are, are forgotten.
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

// Whether nothing is left of it.
bool cancel_receive(MPI_Request& request) {
  if (request == MPI_REQUEST_NULL) return true;
  int done = 0;
  if (MPI_Cancel(&request) != MPI_SUCCESS) return false;
  return MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done;
}

bool is_done(MPI_Request& request) {
  if (request == MPI_REQUEST_NULL) return true;
  int done = 0;
  return MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done;
}

bool same_place(const Buffer& a, const Buffer& b) { return a.count > 0 && a.data == b.data; }

}  // namespace

void Queue::advance(const MpiCollective& last) {
  const MpiCollective* before = nullptr;
  for (MpiCollective* collective : collectives_) {
    if (!collective->done_) collective->step(before);
    before = collective;
    if (collective == &last) break;
  }
  while (!collectives_.empty() && collectives_.front()->done_) collectives_.pop_front();
}

void Queue::call_off() noexcept {
  bool all = true;
  for (MpiCollective* collective : collectives_) all = collective->call_off() && all;
  for (MpiMessage* message : messages_) all = message->call_off() && all;
  if (!all) group_.session().abandon();
}

MpiCollective::MpiCollective(Group& group, Queue& queue, const Collective& collective)
    : group_(group),
      queue_(queue),
      collective_(collective),
      announcements_(index(group.size())),
      received_(announcements_.size(), MPI_REQUEST_NULL),
      sent_(announcements_.size(), MPI_REQUEST_NULL) {
  const std::lock_guard lock(group_.session().mutex());
  announcements_[index(group_.rank())] = announce(collective);
  const auto bytes = static_cast<int>(sizeof(Announcement));
  for (int peer = 0; peer < group_.size(); ++peer)
    if (peer != group_.rank())
      check(MPI_Irecv(&announcements_[index(peer)], bytes, MPI_BYTE, peer, kAnnouncementTag,
                      group_.messages(), &received_[index(peer)]),
            "MPI_Irecv");
  for (int peer = 0; peer < group_.size(); ++peer)
    if (peer != group_.rank())
      check(MPI_Isend(&announcements_[index(group_.rank())], bytes, MPI_BYTE, peer,
                      kAnnouncementTag, group_.messages(), &sent_[index(peer)]),
            "MPI_Isend");
  queue_.collectives_.push_back(this);
}

MpiCollective::~MpiCollective() {
  std::erase(queue_.collectives_, this);
  if (done_ || !Session::running()) return;
  const std::lock_guard lock(group_.session().mutex());
  if (!call_off()) group_.session().abandon();
}

bool MpiCollective::advance() {
  if (done_) return true;
  const std::lock_guard lock(group_.session().mutex());
  queue_.advance(*this);
  return done_;
}

void MpiCollective::step(const MpiCollective* before) {
  if (!checked_) {
    if (!all_have_called()) return;
    checked_ = true;
  }
  if (!started_) {
    if (before && !before->started_) return;
    // Ranks that have called may have given up since, and MPI's collectives cannot be called off.
    if (!counting_) group_.look_for_failure();
    if (collective_.signature.kind == CollectiveKind::kAllToAll) {
      if (!agreed_on_counts()) return;
      start_all_to_all();
    } else {
      start_data();
    }
    started_ = true;
  }
  if (request_ != MPI_REQUEST_NULL) {
    int done = 0;
    check(MPI_Test(&request_, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (!done) return;
  }
  if (!test_all(sent_, steps_)) return;
  finish();
  ++steps_;
  done_ = true;
}

bool MpiCollective::all_have_called() {
  if (!test_all(received_, steps_)) return false;
  check_announcements(collective_, announcements_);
  return true;
}

bool MpiCollective::agreed_on_counts() {
  const auto size = index(group_.size());
  if (!counting_) {
    share_counts_.resize(size * size);
    ShareCounts* const mine = &share_counts_[index(group_.rank()) * size];
    for (std::size_t peer = 0; peer < size; ++peer)
      mine[peer] = {collective_.in[peer].count, collective_.out[peer].count};
    check(MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, share_counts_.data(),
                         static_cast<int>(size * sizeof(ShareCounts)), MPI_BYTE, group_.data(),
                         &request_),
          "MPI_Iallgather");
    counting_ = true;
  }
  int done = 0;
  check(MPI_Test(&request_, &done, MPI_STATUS_IGNORE), "MPI_Test");
  if (done) check_shares_agree(collective_, share_counts_, group_.size());
  return done != 0;
}

void MpiCollective::start_data() {
  const Signature& signature = collective_.signature;
  const std::string_view what = name_of(signature.kind);
  const MPI_Datatype type = type_of(signature.dtype);
  const bool root = signature.root == group_.rank();
  const auto counts_of = [&](std::span<const Buffer> buffers) {
    for (const Buffer& buffer : buffers) {
      places_.push_back(places_.empty() ? 0 : places_.back() + counts_.back());
      counts_.push_back(static_cast<int>(buffer.count));
    }
  };
  if (signature.kind == CollectiveKind::kBarrier || signature.count == 0) return;
  const int count = count_of(what, signature.count);
  switch (signature.kind) {
    case CollectiveKind::kAllReduce:
      in_.emplace(collective_.in);
      in_->gather();
      return check(MPI_Iallreduce(MPI_IN_PLACE, in_->data(), count, type,
                                  op_of(signature.dtype, signature.op), group_.data(), &request_),
                   "MPI_Iallreduce");
    case CollectiveKind::kReduce:
      in_.emplace(collective_.in);
      in_->gather();
      return check(MPI_Ireduce(root ? MPI_IN_PLACE : in_->data(), root ? in_->data() : nullptr,
                               count, type, op_of(signature.dtype, signature.op), signature.root,
                               group_.data(), &request_),
                   "MPI_Ireduce");
    case CollectiveKind::kBroadcast:
      in_.emplace(collective_.in);
      if (root) in_->gather();
      return check(MPI_Ibcast(in_->data(), count, type, signature.root, group_.data(), &request_),
                   "MPI_Ibcast");
    case CollectiveKind::kAllGather:
    case CollectiveKind::kExchange: {
      const Buffer& mine = collective_.in.front();
      const bool in_place = same_place(mine, collective_.out[index(group_.rank())]);
      out_.emplace(collective_.out);
      if (in_place) out_->gather();
      counts_of(collective_.out);
      return check(MPI_Iallgatherv(in_place ? MPI_IN_PLACE : mine.data,
                                   in_place ? 0 : static_cast<int>(mine.count), type, out_->data(),
                                   counts_.data(), places_.data(), type, group_.data(), &request_),
                   "MPI_Iallgatherv");
    }
    case CollectiveKind::kReduceScatter:
      // The result may lie in what goes in.
      in_.emplace(collective_.in,
                  same_place(collective_.out.front(), collective_.in[index(group_.rank())]));
      in_->gather();
      counts_of(collective_.in);
      return check(
          MPI_Ireduce_scatter(in_->data(), collective_.out.front().data, counts_.data(), type,
                              op_of(signature.dtype, signature.op), group_.data(), &request_),
          "MPI_Ireduce_scatter");
    default: fail<InternalError>("[mpi] {} is no collective", what);
  }
}

void MpiCollective::start_all_to_all() {
  const auto counts_of = [](std::span<const Buffer> buffers, std::vector<int>& counts,
                            std::vector<int>& places) {
    std::int64_t place = 0;
    for (const Buffer& buffer : buffers) {
      places.push_back(static_cast<int>(place));
      place += buffer.count;
      counts.push_back(static_cast<int>(buffer.count));
    }
    return place;
  };
  count_of("all_to_all", counts_of(collective_.in, counts_, places_));
  count_of("all_to_all", counts_of(collective_.out, out_counts_, out_places_));
  const auto me = index(group_.rank());
  in_.emplace(collective_.in, same_place(collective_.in[me], collective_.out[me]));
  out_.emplace(collective_.out);
  in_->gather();
  const MPI_Datatype type = type_of(collective_.signature.dtype);
  check(MPI_Ialltoallv(in_->data(), counts_.data(), places_.data(), type, out_->data(),
                       out_counts_.data(), out_places_.data(), type, group_.data(), &request_),
        "MPI_Ialltoallv");
}

void MpiCollective::finish() {
  const Signature& signature = collective_.signature;
  const bool root = signature.root == group_.rank();
  const bool mean = signature.op == ReduceOp::kMean;
  switch (signature.kind) {
    case CollectiveKind::kReduce:
      if (!root) return;
      [[fallthrough]];
    case CollectiveKind::kAllReduce:
      if (in_ && mean) divide(in_->data(), in_->count(), signature.dtype, group_.size());
      [[fallthrough]];
    case CollectiveKind::kBroadcast:
      if (in_) in_->scatter();
      return;
    case CollectiveKind::kReduceScatter: {
      const Buffer& mine = collective_.out.front();
      if (mean) divide(mine.data, mine.count, signature.dtype, group_.size());
      return;
    }
    default:
      if (out_) out_->scatter();
  }
}

std::vector<int> MpiCollective::missing() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < group_.size(); ++rank)
    if (received_[index(rank)] != MPI_REQUEST_NULL) ranks.push_back(rank);
  return ranks;
}

bool MpiCollective::waits_for(int peer) const { return received_[index(peer)] != MPI_REQUEST_NULL; }

std::string MpiCollective::description() const {
  return fmt::format("collective {} ({})", collective_.sequence,
                     describe(collective_.signature, collective_.label));
}

bool MpiCollective::call_off() noexcept {
  bool all = true;
  for (MPI_Request& request : received_) all = cancel_receive(request) && all;
  for (MPI_Request& request : sent_) all = is_done(request) && all;
  return is_done(request_) && all;
}

MpiMessage::MpiMessage(Group& group, Queue& queue, const Collective& collective,
                       std::uint64_t number)
    : group_(group),
      queue_(queue),
      collective_(collective),
      buffer_(sends() ? collective.in.front() : collective.out.front()),
      peer_(collective.signature.root),
      tag_(kMessageTags + 2 * static_cast<int>(number % (1 << 13))) {
  count_of(name_of(collective.signature.kind), buffer_.count);
  const std::lock_guard lock(group_.session().mutex());
  if (sends()) {
    header_[0] = buffer_.count;
    header_[1] = static_cast<std::int64_t>(buffer_.dtype);
    check(MPI_Isend(header_, sizeof(header_), MPI_BYTE, peer_, tag_, group_.messages(),
                    &header_request_),
          "MPI_Isend");
    start_data();
  } else {
    check(MPI_Irecv(header_, sizeof(header_), MPI_BYTE, peer_, tag_, group_.messages(),
                    &header_request_),
          "MPI_Irecv");
  }
  queue_.messages_.push_back(this);
}

MpiMessage::~MpiMessage() {
  std::erase(queue_.messages_, this);
  if (done_ || !Session::running()) return;
  const std::lock_guard lock(group_.session().mutex());
  if (!call_off()) group_.session().abandon();
}

bool MpiMessage::advance() {
  if (done_) return true;
  const std::lock_guard lock(group_.session().mutex());
  int done = 0;
  check(MPI_Test(&header_request_, &done, MPI_STATUS_IGNORE), "MPI_Test");
  if (!done) return false;
  if (!data_started_) {
    if (header_[0] != buffer_.count || header_[1] != static_cast<std::int64_t>(buffer_.dtype))
      fail<InvalidArgumentError>("[recv] rank {} sent {} {}, rank {} expected {} {}", peer_,
                                 header_[0], name_of(static_cast<DType>(header_[1])), group_.rank(),
                                 buffer_.count, name_of(buffer_.dtype));
    start_data();
    ++steps_;
  }
  check(MPI_Test(&request_, &done, MPI_STATUS_IGNORE), "MPI_Test");
  done_ = done != 0;
  return done_;
}

void MpiMessage::start_data() {
  data_started_ = true;
  if (buffer_.count == 0) return;
  const auto count = static_cast<int>(buffer_.count);
  const MPI_Datatype type = type_of(buffer_.dtype);
  if (sends())
    check(MPI_Isend(buffer_.data, count, type, peer_, tag_ + 1, group_.messages(), &request_),
          "MPI_Isend");
  else
    check(MPI_Irecv(buffer_.data, count, type, peer_, tag_ + 1, group_.messages(), &request_),
          "MPI_Irecv");
}

std::string MpiMessage::description() const {
  return describe(collective_.signature, collective_.label);
}

bool MpiMessage::call_off() noexcept {
  if (sends()) {
    const bool header = is_done(header_request_);
    return is_done(request_) && header;
  }
  const bool header = cancel_receive(header_request_);
  return cancel_receive(request_) && header;
}

}  // namespace tandem::mpi_backend
