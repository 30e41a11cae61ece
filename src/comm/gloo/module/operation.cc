#include "comm/gloo/module/operation.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/status.h"

namespace tandem::gloo_backend {
namespace {

// About as many as the open collectives of a training step, as long as their messages take little
// memory.
constexpr std::size_t kAhead = 4;
constexpr std::size_t kPostedBytes = 1 << 20;

std::size_t ahead_of(const Mesh& mesh) {
  const std::size_t bytes = static_cast<std::size_t>(mesh.size()) * Announcements::kMessageBytes;
  return std::clamp<std::size_t>(kPostedBytes / bytes, 1, kAhead);
}

}  // namespace

bool GlooOperation::advance() {
  if (!ended_.load(std::memory_order_acquire)) return false;
  if (broken_) mesh_.throw_broken(broken_->peer, description(), broken_->reason);
  if (error_) std::rethrow_exception(error_);
  return true;
}

bool GlooOperation::sleep(std::chrono::microseconds limit) const {
  std::unique_lock lock(mutex_);
  has_ended_.wait_for(lock, limit, [this] { return ended_.load(std::memory_order_acquire); });
  return true;
}

void GlooOperation::step() noexcept {
  if (ended_.load(std::memory_order_relaxed)) return;
  bool ended = true;
  try {
    ended = proceed();
  } catch (const Broken& broken) {
    broken_ = broken;
  } catch (...) {
    error_ = std::current_exception();
  }
  progress_.store(steps_, std::memory_order_relaxed);
  if (!ended) return;
  const std::lock_guard lock(mutex_);
  ended_.store(true, std::memory_order_release);
  has_ended_.notify_all();
}

bool GlooOperation::waits_for(int peer) const {
  bool waits = false;
  engine_.pause([&] { waits = is_waiting_for(peer); });
  return waits;
}

// The receive has room for the longest message. A peer may send less.
Announcements::Announcements(const Mesh& mesh, std::uint64_t sequence)
    : mesh_(mesh),
      messages_(std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(mesh.size()) *
                                                            kMessageBytes)),
      transfers_(mesh.context(), collective_slot(sequence)),
      received_(static_cast<std::size_t>(mesh.size())),
      sent_(transfers_) {
  try {
    for (int peer = 0; peer < mesh_.size(); ++peer)
      if (peer != mesh_.rank())
        received_[static_cast<std::size_t>(peer)] =
            transfers_.receive(peer, 0, message_of(peer), kMessageBytes);
  } catch (const Broken& broken) {
    broken_ = broken;
  }
}

void Announcements::check() const {
  if (broken_) throw *broken_;
}

void Announcements::send(std::size_t bytes) {
  for (int peer = 0; peer < mesh_.size(); ++peer)
    if (peer != mesh_.rank()) sent_.send(peer, 0, message_of(mesh_.rank()), bytes);
}

bool Announcements::all_received() {
  for (; first_missing_ < mesh_.size(); ++first_missing_)
    if (first_missing_ != mesh_.rank() &&
        !transfers_.complete(received_[static_cast<std::size_t>(first_missing_)]))
      return false;
  return true;
}

std::vector<int> Announcements::missing() const {
  std::vector<int> ranks;
  if (broken_) return ranks;
  for (int rank = first_missing_; rank < mesh_.size(); ++rank)
    if (rank != mesh_.rank() && !transfers_.has_arrived(received_[static_cast<std::size_t>(rank)]))
      ranks.push_back(rank);
  return ranks;
}

PostedAnnouncements::PostedAnnouncements(const Mesh& mesh) : mesh_(mesh), ahead_(ahead_of(mesh)) {}

std::unique_ptr<Announcements> PostedAnnouncements::take() {
  if (posted_.empty()) post();
  std::unique_ptr<Announcements> first = std::move(posted_.front());
  posted_.pop_front();
  return first;
}

void PostedAnnouncements::post() {
  while (posted_.size() < ahead_)
    posted_.push_back(std::make_unique<Announcements>(mesh_, next_++));
}

GlooCollective::GlooCollective(const Mesh& mesh, GlooEngine& engine, Scratch& scratch,
                               const Collective& collective,
                               std::unique_ptr<Announcements> announcements)
    : GlooOperation(mesh, engine, collective),
      announcements_(std::move(announcements)),
      data_(mesh.context(), collective, mesh.names(), scratch) {
  engine_.add(*this);
}

std::string GlooCollective::description() const {
  return fmt::format("collective {} ({})", collective_.sequence,
                     describe(collective_.signature, collective_.label, mesh_.names()));
}

bool GlooCollective::proceed() {
  if (!started_) start();
  if (!announced_) {
    if (!announcements_->all_received()) return false;
    compare();
    std::vector<const std::byte*> small;
    for (int rank = 0; rank < mesh_.size(); ++rank)
      small.push_back(announcements_->message_of(rank) + sizeof(Announcement));
    data_.start(small);
    announced_ = true;
    ++steps_;
  }
  return data_.advance(steps_) && announcements_->all_sent();
}

void GlooCollective::start() {
  started_ = true;
  announcements_->check();
  announcements_->send(write_message(announcements_->message_of(mesh_.rank())));
  data_.start_early();
}

std::size_t GlooCollective::write_message(std::byte* to) const {
  const Announcement mine = announce(collective_);
  std::memcpy(to, &mine, sizeof(mine));
  std::size_t bytes = sizeof(mine);
  if (bytes_with_announcement(collective_) == 0) return bytes;
  for (const Buffer& buffer : collective_.in) {
    if (buffer.count > 0) std::memcpy(to + bytes, buffer.data, buffer.bytes());
    bytes += buffer.bytes();
  }
  return bytes;
}

void GlooCollective::compare() const {
  std::vector<Announcement> all(static_cast<std::size_t>(mesh_.size()));
  for (int rank = 0; rank < mesh_.size(); ++rank)
    std::memcpy(&all[static_cast<std::size_t>(rank)], announcements_->message_of(rank),
                sizeof(Announcement));
  check_announcements(collective_, all, mesh_.names());
}

std::vector<int> GlooCollective::missing() const {
  std::vector<int> ranks;
  engine_.pause([&] { ranks = announcements_->missing(); });
  return ranks;
}

bool GlooCollective::is_waiting_for(int peer) const {
  return announcements_->waits_for(peer) || data_.waits_for(peer);
}

GlooMessage::GlooMessage(const Mesh& mesh, GlooEngine& engine, const Collective& collective,
                         std::uint64_t number)
    : GlooOperation(mesh, engine, collective),
      transfers_(mesh.context(), kMessageSlots + 2 * number),
      first_(transfers_),
      data_(transfers_) {
  engine_.add(*this);
}

std::string GlooMessage::description() const {
  return describe(collective_.signature, collective_.label, mesh_.names());
}

bool GlooMessage::proceed() {
  const int peer = collective_.signature.root;
  const bool sends = collective_.signature.kind == CollectiveKind::kSend;
  const Buffer& buffer = sends ? collective_.in.front() : collective_.out.front();
  auto* const data = static_cast<std::byte*>(buffer.data);
  if (!started_) {
    started_ = true;
    if (sends) {
      header_ = header_of(buffer);
      first_.send(peer, 0, reinterpret_cast<const std::byte*>(&header_), sizeof(header_));
      data_.send(peer, 1, data, buffer.bytes());
    } else {
      first_.receive(peer, 0, reinterpret_cast<std::byte*>(&header_), sizeof(header_));
    }
  }
  if (!first_.complete()) return false;
  if (!sends && !compared_) {
    check_message(header_, peer, buffer, mesh_.rank(), mesh_.names());
    compared_ = true;
    ++steps_;
    data_.receive(peer, 1, data, buffer.bytes());
  }
  return data_.complete();
}

}  // namespace tandem::gloo_backend
