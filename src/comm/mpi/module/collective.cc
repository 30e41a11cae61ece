#include "comm/mpi/module/collective.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "comm/combine.h"
#include "core/status.h"

namespace tandem::mpi_backend {
namespace {

constexpr std::int64_t kWindowBytes = 4 << 20;  // per window, all ranks' slices together

MPI_Datatype type_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return MPI_FLOAT;
    case DType::kFloat64: return MPI_DOUBLE;
    case DType::kFloat16:
    case DType::kBFloat16: return MPI_UINT16_T;
    case DType::kInt32: return MPI_INT32_T;
    case DType::kInt64: return MPI_INT64_T;
    case DType::kUInt8:
    case DType::kBool: break;
  }
  return MPI_UINT8_T;
}

// MPI counts are int.
int count_of(std::string_view what, std::int64_t count) {
  if (count > std::numeric_limits<int>::max())
    fail<UnimplementedError>("[{}] the mpi backend moves at most {} elements at a time, got {}",
                             what, std::numeric_limits<int>::max(), count);
  return static_cast<int>(count);
}

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

// Whether the request is complete or was cancelled.
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

// The maximum data in an announcement. Every rank sends it to every other.
std::size_t small_limit(int ranks) { return (std::size_t{8} << 10) / (ranks > 8 ? 8 : 1); }

// The number of this rank's bytes that are sent in the announcement; may be 0.
std::size_t bytes_with_announcement(const Collective& collective, std::size_t limit) {
  switch (collective.signature.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kExchange: break;
    default: return 0;
  }
  std::size_t bytes = 0;
  for (const Buffer& buffer : collective.in) bytes += buffer.bytes();
  return bytes <= limit ? bytes : 0;
}

// A call that MPI cannot cancel may continue whenever any group calls MPI.
void keep_for_ever(std::shared_ptr<void> memory) {
  static auto& kept = *new std::vector<std::shared_ptr<void>>;
  kept.push_back(std::move(memory));
}

// Sets the counts and offsets of the buffers' elements in one array; returns their sum.
std::int64_t concatenate_counts(std::span<const Buffer> buffers, std::vector<int>& counts,
                                std::vector<int>& places) {
  std::int64_t place = 0;
  for (const Buffer& buffer : buffers) {
    places.push_back(static_cast<int>(place));
    place += buffer.count;
    counts.push_back(static_cast<int>(buffer.count));
  }
  return place;
}

bool same_place(const Buffer& a, const Buffer& b) { return a.count > 0 && a.data == b.data; }

}  // namespace

Transfers::Id MpiTransfers::send(int peer, int phase, const std::byte* data, std::size_t bytes) {
  MpiTransfer& transfer = transfers_.emplace_back();
  transfer.sends = true;
  check(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer, tag_ + phase, among_,
                  &transfer.request),
        "MPI_Isend");
  return transfers_.size() - 1;
}

Transfers::Id MpiTransfers::receive(int peer, int phase, std::byte* data, std::size_t bytes) {
  check(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, peer, tag_ + phase, among_,
                  &transfers_.emplace_back().request),
        "MPI_Irecv");
  return transfers_.size() - 1;
}

bool MpiTransfers::complete(Id id) {
  MPI_Request& request = transfers_[id].request;
  int done = 1;
  if (request != MPI_REQUEST_NULL) check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
  return done != 0;
}

bool MpiTransfers::cancel() noexcept {
  bool all = true;
  for (MpiTransfer& transfer : transfers_) {
    if (transfer.request == MPI_REQUEST_NULL) continue;
    int done = 0;
    if (!transfer.sends) MPI_Cancel(&transfer.request);
    all = MPI_Test(&transfer.request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done && all;
  }
  return all;
}

void MpiQueue::advance(const MpiCollective& last) {
  const MpiCollective* before = nullptr;
  for (MpiCollective* collective : collectives_) {
    if (!collective->done_) collective->step(before);
    before = collective;
    if (collective == &last) break;
  }
  while (!collectives_.empty() && collectives_.front()->done_) collectives_.pop_front();
}

MpiQueue::MpiQueue(MpiGroup& group) : group_(group) { group_.session().add(*this); }
MpiQueue::~MpiQueue() { group_.session().remove(*this); }

void MpiQueue::end_with_mpi() noexcept {
  for (MpiCollective* collective : collectives_)
    if (!collective->done_) collective->release();
  for (MpiMessage* message : messages_)
    if (!message->done_) message->release();
}

void MpiQueue::cancel() noexcept {
  bool all = true;
  for (MpiCollective* collective : collectives_) all = collective->cancel() && all;
  for (MpiMessage* message : messages_) all = message->cancel() && all;
  if (!all) group_.session().skip_finalize();
}

MpiCollective::MpiCollective(MpiGroup& group, MpiQueue& queue, const Collective& collective)
    : group_(group),
      queue_(queue),
      collective_(collective),
      small_limit_(small_limit(group.size())),
      small_(bytes_with_announcement(collective, small_limit_)),
      received_(index(group.size()), MPI_REQUEST_NULL) {
  memory_->messages = std::make_unique_for_overwrite<std::byte[]>(room() * index(group.size()));
  std::byte* at = message_of(group_.rank());
  const Announcement mine = announce(collective);
  std::memcpy(at, &mine, sizeof(mine));
  at += sizeof(mine);
  for (const Buffer& buffer : collective.in) {
    if (small_ == 0) break;
    if (buffer.count > 0) std::memcpy(at, buffer.data, buffer.bytes());
    at += buffer.bytes();
  }
  const auto lock = group_.session().enter();
  post_messages();
  queue_.collectives_.push_back(this);
}

// A peer whose call mismatches sends different pieces, except the first, which has its
// announcement.
void MpiCollective::post_messages() {
  const std::size_t bytes = sizeof(Announcement) + small_;
  for (int peer = 0; peer < group_.size(); ++peer) {
    if (peer == group_.rank()) continue;
    for (std::size_t at = 0; at < bytes; at += kMessagePiece) {
      MPI_Request& request = at == 0 ? received_[index(peer)] : rest_.emplace_back();
      check(MPI_Irecv(message_of(peer) + at, static_cast<int>(kMessagePiece), MPI_BYTE, peer,
                      kAnnouncementTag, group_.messages(), &request),
            "MPI_Irecv");
    }
  }
  for (int peer = 0; peer < group_.size(); ++peer) {
    if (peer == group_.rank()) continue;
    for (std::size_t at = 0; at < bytes; at += kMessagePiece)
      check(MPI_Isend(message_of(group_.rank()) + at,
                      static_cast<int>(std::min(kMessagePiece, bytes - at)), MPI_BYTE, peer,
                      kAnnouncementTag, group_.messages(), &sent_.emplace_back()),
            "MPI_Isend");
  }
}

MpiCollective::~MpiCollective() {
  const auto lock = group_.session().enter_if_running();
  std::erase(queue_.collectives_, this);
  if (lock && !done_) release();
}

void MpiCollective::release() noexcept {
  if (cancel()) return;
  group_.session().skip_finalize();
  keep_for_ever(std::move(memory_));
}

bool MpiCollective::advance() {
  if (done_) return true;
  const auto lock = group_.session().enter();
  queue_.advance(*this);
  return done_;
}

void MpiCollective::step(const MpiCollective* before) {
  if (!checked_) {
    if (!all_have_called()) return;
    checked_ = true;
  }
  if (!started_) {
    if ((before && !before->started_) || !test_all(rest_, steps_)) return;
    // Ranks may have failed after they called, and MPI's collectives cannot be cancelled.
    if (!counting_) group_.look_for_failure();
    if (collective_.signature.kind == CollectiveKind::kAllToAll) {
      if (!agreed_on_counts()) return;
      start_all_to_all();
    } else {
      start_data();
    }
    started_ = true;
  }
  if (!data_done() || !test_all(sent_, steps_)) return;
  finish();
  ++steps_;
  done_ = true;
}

bool MpiCollective::data_done() {
  if (reduction_) return reduction_->advance(steps_);
  if (request_ == MPI_REQUEST_NULL) return true;
  int done = 0;
  check(MPI_Test(&request_, &done, MPI_STATUS_IGNORE), "MPI_Test");
  return done != 0;
}

bool MpiCollective::all_have_called() {
  if (!test_all(received_, steps_)) return false;
  std::vector<Announcement> all(received_.size());
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    std::memcpy(&all[rank], message_of(static_cast<int>(rank)), sizeof(Announcement));
  check_announcements(collective_, all, group_.names());
  return true;
}

bool MpiCollective::agreed_on_counts() {
  const auto size = index(group_.size());
  if (!counting_) {
    memory_->share_counts.resize(size * size);
    TransferCounts* const mine = &memory_->share_counts[index(group_.rank()) * size];
    for (std::size_t peer = 0; peer < size; ++peer)
      mine[peer] = {collective_.in[peer].count, collective_.out[peer].count};
    check(MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, memory_->share_counts.data(),
                         static_cast<int>(size * sizeof(TransferCounts)), MPI_BYTE, group_.data(),
                         &request_),
          "MPI_Iallgather");
    counting_ = true;
  }
  int done = 0;
  check(MPI_Test(&request_, &done, MPI_STATUS_IGNORE), "MPI_Test");
  if (done) check_counts_match(collective_, memory_->share_counts, group_.size(), group_.names());
  return done != 0;
}

// All data was in the announcements.
void MpiCollective::use_announced() {
  std::vector<const void*> inputs;
  for (int rank = 0; rank < group_.size(); ++rank)
    inputs.push_back(message_of(rank) + sizeof(Announcement));
  if (collective_.signature.kind == CollectiveKind::kExchange) {
    for (std::size_t rank = 0; rank < inputs.size(); ++rank)
      std::memcpy(collective_.out[rank].data, inputs[rank], collective_.out[rank].bytes());
    return;
  }
  memory_->in.emplace(collective_.in);
  void* const output = memory_->in->data();
  combine(inputs, {&output, 1}, memory_->in->count(), collective_.signature.dtype,
          collective_.signature.op, CombineOrder::kInOrder);
}

void MpiCollective::start_data() {
  const Signature& signature = collective_.signature;
  if (signature.kind == CollectiveKind::kBarrier || signature.count == 0) return;
  if (small_ > 0) return use_announced();
  const auto all = [&] {
    memory_->in.emplace(collective_.in);
    memory_->in->gather();
    return ElementSpan{memory_->in->data(), memory_->in->count()};
  };
  switch (signature.kind) {
    case CollectiveKind::kAllReduce: return make_reduction().all_reduce(all());
    case CollectiveKind::kReduce: return make_reduction().reduce(all(), signature.root);
    case CollectiveKind::kBroadcast: return start_broadcast();
    case CollectiveKind::kAllGather:
    case CollectiveKind::kExchange: return start_all_gather();
    case CollectiveKind::kReduceScatter: {
      std::vector<ElementSpan> shares;
      for (const Buffer& part : collective_.in)
        shares.push_back({static_cast<std::byte*>(part.data), part.count});
      return make_reduction().reduce_scatter(shares,
                                             static_cast<std::byte*>(collective_.out.front().data));
    }
    default: fail<InternalError>("[mpi] {} is no collective", name_of(signature.kind));
  }
}

WindowedReduction& MpiCollective::make_reduction() {
  // Each collective uses the next two of 2^14 tags.
  const int tag = static_cast<int>(collective_.sequence % (1 << 13)) * 2;
  transfers_.emplace(group_.data(), tag);
  return reduction_.emplace(*transfers_, queue_.scratch_,
                            ReductionOptions{.rank = group_.rank(),
                                             .size = group_.size(),
                                             .dtype = collective_.signature.dtype,
                                             .op = collective_.signature.op,
                                             .window_bytes = kWindowBytes});
}

void MpiCollective::start_broadcast() {
  const Signature& signature = collective_.signature;
  memory_->in.emplace(collective_.in);
  if (signature.root == group_.rank()) memory_->in->gather();
  check(MPI_Ibcast(memory_->in->data(), count_of("broadcast", signature.count),
                   type_of(signature.dtype), signature.root, group_.data(), &request_),
        "MPI_Ibcast");
}

void MpiCollective::start_all_gather() {
  const Signature& signature = collective_.signature;
  count_of(name_of(signature.kind), signature.count);
  const MPI_Datatype type = type_of(signature.dtype);
  const Buffer& mine = collective_.in.front();
  const bool in_place = same_place(mine, collective_.out[index(group_.rank())]);
  memory_->out.emplace(collective_.out);
  if (in_place) memory_->out->gather();
  concatenate_counts(collective_.out, memory_->counts, memory_->places);
  check(MPI_Iallgatherv(in_place ? MPI_IN_PLACE : mine.data,
                        in_place ? 0 : static_cast<int>(mine.count), type, memory_->out->data(),
                        memory_->counts.data(), memory_->places.data(), type, group_.data(),
                        &request_),
        "MPI_Iallgatherv");
}

void MpiCollective::start_all_to_all() {
  count_of("all_to_all", concatenate_counts(collective_.in, memory_->counts, memory_->places));
  count_of("all_to_all",
           concatenate_counts(collective_.out, memory_->out_counts, memory_->out_places));
  const auto me = index(group_.rank());
  memory_->in.emplace(collective_.in, same_place(collective_.in[me], collective_.out[me]));
  memory_->out.emplace(collective_.out);
  memory_->in->gather();
  const MPI_Datatype type = type_of(collective_.signature.dtype);
  check(MPI_Ialltoallv(memory_->in->data(), memory_->counts.data(), memory_->places.data(), type,
                       memory_->out->data(), memory_->out_counts.data(), memory_->out_places.data(),
                       type, group_.data(), &request_),
        "MPI_Ialltoallv");
}

void MpiCollective::finish() {
  const Signature& signature = collective_.signature;
  const bool root = signature.root == group_.rank();
  switch (signature.kind) {
    case CollectiveKind::kReduce:
      if (!root) return;
      [[fallthrough]];
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kBroadcast:
      if (memory_->in) memory_->in->scatter();
      return;
    default:
      if (memory_->out) memory_->out->scatter();
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
                     describe(collective_.signature, collective_.label, group_.names()));
}

bool MpiCollective::cancel() noexcept {
  bool all = true;
  for (MPI_Request& request : received_) all = cancel_receive(request) && all;
  for (MPI_Request& request : rest_) all = cancel_receive(request) && all;
  for (MPI_Request& request : sent_) all = is_done(request) && all;
  if (transfers_ && !transfers_->cancel()) {
    reduction_->keep_memory();
    all = false;
  }
  return is_done(request_) && all;
}

MpiMessage::MpiMessage(MpiGroup& group, MpiQueue& queue, const Collective& collective,
                       std::uint64_t number)
    : group_(group),
      queue_(queue),
      collective_(collective),
      buffer_(sends() ? collective.in.front() : collective.out.front()),
      peer_(collective.signature.root),
      tag_(kMessageTags + 2 * static_cast<int>(number % (1 << 13))) {
  count_of(name_of(collective.signature.kind), buffer_.count);
  const auto lock = group_.session().enter();
  if (sends()) {
    *header_ = header_of(buffer_);
    check(MPI_Isend(header_.get(), sizeof(MessageHeader), MPI_BYTE, peer_, tag_, group_.messages(),
                    &header_request_),
          "MPI_Isend");
    start_data();
  } else {
    check(MPI_Irecv(header_.get(), sizeof(MessageHeader), MPI_BYTE, peer_, tag_, group_.messages(),
                    &header_request_),
          "MPI_Irecv");
  }
  queue_.messages_.push_back(this);
}

MpiMessage::~MpiMessage() {
  const auto lock = group_.session().enter_if_running();
  std::erase(queue_.messages_, this);
  if (lock && !done_) release();
}

void MpiMessage::release() noexcept {
  if (cancel()) return;
  group_.session().skip_finalize();
  keep_for_ever(std::move(header_));
}

bool MpiMessage::advance() {
  if (done_) return true;
  const auto lock = group_.session().enter();
  int done = 0;
  check(MPI_Test(&header_request_, &done, MPI_STATUS_IGNORE), "MPI_Test");
  if (!done) return false;
  if (!data_started_) {
    check_message(*header_, peer_, buffer_, group_.rank(), group_.names());
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
  return describe(collective_.signature, collective_.label, group_.names());
}

bool MpiMessage::cancel() noexcept {
  if (sends()) {
    const bool header = is_done(header_request_);
    return is_done(request_) && header;
  }
  const bool header = cancel_receive(header_request_);
  return cancel_receive(request_) && header;
}

}  // namespace tandem::mpi_backend
