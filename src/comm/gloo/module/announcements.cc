#include "comm/gloo/module/announcements.h"

#include <algorithm>
#include <utility>

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

}  // namespace tandem::gloo_backend
