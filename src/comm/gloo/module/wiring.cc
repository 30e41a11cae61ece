#include "comm/gloo/module/wiring.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "comm/rendezvous/handshake.h"
#include "core/status.h"

namespace tandem::gloo_backend {
namespace {

constexpr auto kAttempt = std::chrono::seconds(5);  // at a peer that says nothing, and of a guest
constexpr auto kPause = std::chrono::milliseconds(20);
constexpr std::size_t kRankBytes = sizeof(std::int32_t);
constexpr char kThrough = '!';

std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

// Some bytes on a connection that is new, or idle: they fit, or it has broken.
bool send_short(const Socket& socket, std::string_view bytes) {
  return send(socket.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(bytes.size());
}

}  // namespace

Wiring::Wiring(Socket listener, std::vector<Door> doors, int rank)
    : listener_(std::move(listener)),
      doors_(std::move(doors)),
      rank_(rank),
      peers_(doors_.size()) {}

bool Wiring::get_on(std::chrono::milliseconds limit) {
  Clock::time_point now = Clock::now();
  for (int rank = 0; rank < rank_; ++rank)
    if (peers_[index(rank)].stage == Peer::Stage::kWaiting && now >= peers_[index(rank)].retry_at)
      knock(rank, now);
  tell_through();
  if (through_ && missing().empty()) return true;

  std::vector<pollfd> polled = {{listener_.descriptor(), POLLIN, 0}};
  for (const Peer& peer : peers_) {
    const short events = peer.stage == Peer::Stage::kConnecting ? POLLOUT : POLLIN;
    // Bytes that a peer sends after it has finished belong to Gloo.
    const bool watched = peer.stage != Peer::Stage::kThrough;
    polled.push_back({watched ? peer.socket.descriptor() : -1, events, 0});
  }
  for (const auto& [id, guest] : guests_) polled.push_back({guest.socket.descriptor(), POLLIN, 0});
  const bool waits_to_retry =
      std::any_of(peers_.begin(), peers_.begin() + rank_,
                  [](const Peer& p) { return p.stage == Peer::Stage::kWaiting; });
  const auto wait = waits_to_retry ? std::min<std::chrono::milliseconds>(limit, kPause) : limit;
  poll(polled.data(), polled.size(), static_cast<int>(wait.count()));
  now = Clock::now();
  std::size_t i = 1;
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank)
    if (polled[i++].revents != 0) hear(rank);
  for (auto& [id, guest] : guests_)
    if (polled[i++].revents != 0) hear_guest(guest);
  sweep(now);
  if (polled.front().revents != 0) accept_all(now);
  tell_through();
  return through_ && missing().empty();
}

std::vector<int> Wiring::missing() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank)
    if (rank != rank_ && !(through_ ? peers_[index(rank)].stage == Peer::Stage::kThrough
                                    : peers_[index(rank)].connected()))
      ranks.push_back(rank);
  return ranks;
}

std::vector<Socket> Wiring::take_sockets() {
  std::vector<Socket> sockets;
  for (Peer& peer : peers_) sockets.push_back(std::move(peer.socket));
  return sockets;
}

void Wiring::knock(int rank, Clock::time_point now) {
  Peer& peer = peers_[index(rank)];
  peer = {};
  peer.retry_at = now + kPause;
  try {
    peer.socket = start_connecting(doors_[index(rank)].endpoint);
  } catch (const UnavailableError&) {
    return;  // tried again
  }
  peer.stage = Peer::Stage::kConnecting;
  peer.since = now;
}

void Wiring::hear(int rank) {
  Peer& peer = peers_[index(rank)];
  const Door& door = doors_[index(rank)];
  bool well = true;
  switch (peer.stage) {
    case Peer::Stage::kConnecting:
      well = connect_error(peer.socket) == 0;
      peer.stage = Peer::Stage::kGreeting;
      break;
    case Peer::Stage::kGreeting:
      well = receive(peer.socket, peer.received, kServerBytes);
      if (!well || peer.received.size() < kServerBytes) break;
      peer.greeting = std::exchange(peer.received, "");
      peer.nonce = random_bytes(kNonceBytes);
      {
        const std::string mine = answer(door.key, peer.greeting, peer.nonce);
        well = !mine.empty() && send_short(peer.socket, mine);
      }
      peer.stage = Peer::Stage::kVerdict;
      break;
    case Peer::Stage::kVerdict:
      well = receive(peer.socket, peer.received, kVerdictBytes);
      if (!well || peer.received.size() < kVerdictBytes) break;
      well = read_verdict(door.key, peer.greeting, peer.nonce, peer.received) == Greeted::kWelcome;
      if (well) {
        const std::int32_t mine = rank_;
        well = send_short(peer.socket, {reinterpret_cast<const char*>(&mine), kRankBytes});
      }
      peer.received.clear();
      peer.stage = Peer::Stage::kConnected;
      break;
    case Peer::Stage::kConnected:
      if (!receive(peer.socket, peer.received, 1))
        throw Disconnected{rank, "it closed the connection"};
      if (peer.received.size() == 1) peer.stage = Peer::Stage::kThrough;
      return;
    default: return;
  }
  if (well) return;
  const Clock::time_point retry_at = Clock::now() + kPause;
  peer = {};
  peer.retry_at = retry_at;
}

void Wiring::hear_guest(Guest& guest) {
  const std::size_t due = guest.known ? kRankBytes : kClientBytes;
  if (!receive(guest.socket, guest.received, due)) return guest.socket.close();
  if (guest.received.size() < due) return;
  if (!guest.known) {
    const std::string verdict = judge(doors_[index(rank_)].key, guest.nonce, guest.received);
    guest.known = verdict != kRefusal;
    guest.received.clear();
    if (!send_short(guest.socket, verdict) || !guest.known) guest.socket.close();
    return;
  }
  std::int32_t rank = 0;
  std::memcpy(&rank, guest.received.data(), sizeof(rank));
  if (rank > rank_ && rank < static_cast<int>(peers_.size()) && !peers_[index(rank)].connected()) {
    peers_[index(rank)].socket = std::move(guest.socket);
    peers_[index(rank)].stage = Peer::Stage::kConnected;
  }
  guest.socket.close();
}

void Wiring::accept_all(Clock::time_point now) {
  // All ranks may come at the same moment.
  const std::size_t most = 64 + peers_.size();
  while (true) {
    Socket socket = accept_from(listener_);
    if (!socket.is_open()) return;
    if (guests_.size() >= most) guests_.erase(guests_.begin());
    Guest& guest = guests_[next_guest_++];
    guest.socket = std::move(socket);
    guest.since = now;
    guest.nonce = random_bytes(kNonceBytes);
    if (!send_short(guest.socket, std::string(kGreeting) + guest.nonce)) guest.socket.close();
  }
}

void Wiring::sweep(Clock::time_point now) {
  std::erase_if(guests_, [&](const auto& each) {
    return !each.second.socket.is_open() || now - each.second.since > kAttempt;
  });
  for (Peer& peer : peers_)
    if (peer.stage != Peer::Stage::kWaiting && !peer.connected() && now - peer.since > kAttempt)
      peer = {};
}

void Wiring::tell_through() {
  if (through_ || !missing().empty()) return;
  through_ = true;
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank)
    if (rank != rank_ && !send_short(peers_[index(rank)].socket, {&kThrough, 1}))
      throw Disconnected{rank, "it closed the connection"};
}

bool Wiring::receive(const Socket& socket, std::string& received, std::size_t due) {
  char bytes[64];
  const std::size_t room = std::min(sizeof(bytes), due - received.size());
  const ssize_t count = recv(socket.descriptor(), bytes, room, 0);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  received.append(bytes, static_cast<std::size_t>(count));
  return count > 0;
}

}  // namespace tandem::gloo_backend
