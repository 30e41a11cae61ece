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

// Slices of all ranks in a window, which is reduced while the next one is in flight.
constexpr std::int64_t kWindowBytes = 8 << 20;

// Distinguishes mismatched calls.
std::uint64_t hash_of(const Signature& signature) {
  return (signature.layout ^ static_cast<std::uint64_t>(signature.op) * 0x9e3779b97f4a7c15u ^
          static_cast<std::uint64_t>(signature.count) * 0xbf58476d1ce4e5b9u) >>
         40;
}

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
      transfers_(mesh.context(), collective_slot(collective.sequence)),
      data_(transfers_, collective, mesh.names(), scratch,
            {.rank = mesh.rank(),
             .size = mesh.size(),
             .window_bytes = kWindowBytes,
             .small_limit = kSmallBytes}) {
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
    std::vector<const std::byte*> messages;
    for (int rank = 0; rank < mesh_.size(); ++rank)
      messages.push_back(announcements_->message_of(rank));
    check_announcements(collective_, messages, mesh_.names());
    data_.start(messages);
    announced_ = true;
    ++steps_;
  }
  return data_.advance(steps_) && announcements_->all_sent();
}

void GlooCollective::start() {
  started_ = true;
  announcements_->check();
  announcements_->send(write_announcement(collective_, mesh_.rank(), kSmallBytes,
                                          announcements_->message_of(mesh_.rank())));
  if (collective_.signature.kind != CollectiveKind::kAllReduce) return;
  transfers_.renumber(collective_slot(collective_.sequence, hash_of(collective_.signature)));
  data_.start_early();
}

std::vector<int> GlooCollective::missing() const {
  std::vector<int> ranks;
  engine_.pause([&] { ranks = announcements_->missing(); });
  return ranks;
}

bool GlooCollective::is_waiting_for(int peer) const {
  return announcements_->waits_for(peer) || transfers_.waits_for(peer);
}

GlooMessage::GlooMessage(const Mesh& mesh, GlooEngine& engine, const Collective& collective,
                         std::uint64_t number)
    : GlooOperation(mesh, engine, collective),
      transfers_(mesh.context(), kMessageSlots + 2 * number),
      message_(transfers_, collective, mesh.rank(), mesh.names()) {
  engine_.add(*this);
}

std::string GlooMessage::description() const {
  return describe(collective_.signature, collective_.label, mesh_.names());
}

}  // namespace tandem::gloo_backend
