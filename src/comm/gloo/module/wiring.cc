#include "comm/gloo/module/wiring.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <sstream>
#include <utility>

#include "comm/rendezvous/handshake.h"
#include "core/status.h"

namespace tandem::gloo_backend {
namespace {

constexpr auto kAttempt = std::chrono::seconds(5);  // at a peer that says nothing, and of a guest
constexpr auto kPause = std::chrono::milliseconds(20);
constexpr std::size_t kRankBytes = sizeof(std::int32_t);
// Of the tree's messages, which have their length in front.
constexpr std::size_t kLengthBytes = sizeof(std::uint32_t);
constexpr std::size_t kMaxDoorBytes = 1024;
constexpr char kThrough = '!';

std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

// Some bytes on a connection that is new, or idle: they fit, or it has broken.
bool send_short(const Socket& socket, std::string_view bytes) {
  return send(socket.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(bytes.size());
}

}  // namespace

std::string to_text(const Door& door) {
  return fmt::format("{} {} {} {} {}", door.host, door.pid, door.endpoint.host, door.endpoint.port,
                     door.key);
}

Door parse_door(const std::string& text) {
  std::istringstream parts(text);
  Door door;
  parts >> door.host >> door.pid >> door.endpoint.host >> door.endpoint.port >> door.key;
  if (!parts) fail<DataLossError>("[gloo] expected the address of a rank, got '{}'", text);
  return door;
}

Wiring::Wiring(Socket listener, const Door& mine, int rank, int size,
               const std::optional<Door>& parent)
    : listener_(std::move(listener)),
      key_(mine.key),
      rank_(rank),
      tree_(rank, size, to_text(mine)),
      doors_(index(size)),
      peers_(index(size)) {
  if (parent) doors_[index(TreeExchange::parent_of(rank))] = *parent;
}

bool Wiring::get_on(std::chrono::milliseconds limit) {
  pass_on_doors();
  flush_all();
  knock_at_lower(Clock::now());
  tell_through();
  if (finished()) return true;
  wait_and_hear(limit);
  pass_on_doors();
  tell_through();
  flush_all();
  return finished();
}

void Wiring::wait_and_hear(std::chrono::milliseconds limit) {
  std::vector<pollfd> polled = {{listener_.descriptor(), POLLIN, 0}};
  bool waits_to_retry = false;
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    const Peer& peer = peers_[index(rank)];
    const bool writes =
        peer.stage == Peer::Stage::kConnecting || (peer.connected() && unsent_.contains(rank));
    // Bytes that a peer sends after it has finished belong to Gloo.
    const bool reads =
        peer.stage != Peer::Stage::kConnecting && peer.stage != Peer::Stage::kThrough;
    polled.push_back({reads || writes ? peer.socket.descriptor() : -1,
                      static_cast<short>((reads ? POLLIN : 0) | (writes ? POLLOUT : 0)), 0});
    waits_to_retry =
        waits_to_retry || (rank < rank_ && knows(rank) && peer.stage == Peer::Stage::kWaiting);
  }
  for (const auto& [id, guest] : guests_) polled.push_back({guest.socket.descriptor(), POLLIN, 0});
  const auto wait = waits_to_retry ? std::min<std::chrono::milliseconds>(limit, kPause) : limit;
  poll(polled.data(), polled.size(), static_cast<int>(wait.count()));
  const Clock::time_point now = Clock::now();
  std::size_t i = 1;
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank)
    if (polled[i++].revents != 0) hear(rank);
  for (auto& [id, guest] : guests_)
    if (polled[i++].revents != 0) hear_guest(guest);
  sweep(now);
  if (polled.front().revents != 0) accept_all(now);
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

void Wiring::knock_at_lower(Clock::time_point now) {
  for (int rank = 0; rank < rank_; ++rank)
    if (const Peer& peer = peers_[index(rank)];
        knows(rank) && peer.stage == Peer::Stage::kWaiting && now >= peer.retry_at)
      knock(rank, now);
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
    case Peer::Stage::kConnected: return hear_connected(rank);
    default: return;
  }
  if (well) return;
  const Clock::time_point retry_at = Clock::now() + kPause;
  peer = {};
  peer.retry_at = retry_at;
}

// A neighbour in the tree sends doors; then, as every peer does, that it has finished.
void Wiring::hear_connected(int rank) {
  Peer& peer = peers_[index(rank)];
  std::uint32_t length = 0;
  std::size_t due = 1;
  if (tree_.awaits(rank)) {
    due = kLengthBytes;
    if (peer.received.size() >= kLengthBytes) {
      std::memcpy(&length, peer.received.data(), kLengthBytes);
      due += length;
    }
  }
  if (length > peers_.size() * kMaxDoorBytes)
    fail<DataLossError>("[gloo] rank {} sends addresses of {} bytes", rank, length);
  if (!receive(peer.socket, peer.received, due))
    throw Disconnected{rank, "it closed the connection"};
  if (peer.received.size() < due || due == kLengthBytes) return;
  if (length == 0) {
    peer.stage = Peer::Stage::kThrough;
    return;
  }
  tree_.receive(rank, std::make_shared<const std::string>(peer.received.substr(kLengthBytes)));
  peer.received = {};
}

void Wiring::pass_on_doors() {
  while (const auto outgoing = tree_.take_outgoing()) {
    const auto length = static_cast<std::uint32_t>(outgoing->message->size());
    for (const int rank : outgoing->to) {
      say(rank, {reinterpret_cast<const char*>(&length), kLengthBytes});
      say(rank, *outgoing->message);
    }
  }
  if (!tree_.complete() || knows(rank_)) return;
  const std::vector<std::string> texts = tree_.values();
  for (std::size_t rank = 0; rank < doors_.size(); ++rank) doors_[rank] = parse_door(texts[rank]);
}

void Wiring::say(int rank, std::string_view bytes) { unsent_[rank] += bytes; }

void Wiring::flush_all() {
  for (auto it = unsent_.begin(); it != unsent_.end();) {
    auto& [rank, bytes] = *it;
    const Peer& peer = peers_[index(rank)];
    const ssize_t sent = !peer.connected() ? 0
                                           : send(peer.socket.descriptor(), bytes.data(),
                                                  bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN && errno != EINTR)
      throw Disconnected{rank, "it closed the connection"};
    if (sent > 0) bytes.erase(0, static_cast<std::size_t>(sent));
    it = bytes.empty() ? unsent_.erase(it) : std::next(it);
  }
}

void Wiring::hear_guest(Guest& guest) {
  const std::size_t due = guest.known ? kRankBytes : kClientBytes;
  if (!receive(guest.socket, guest.received, due)) return guest.socket.close();
  if (guest.received.size() < due) return;
  if (!guest.known) {
    const std::string verdict = judge(key_, guest.nonce, guest.received);
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
  if (through_ || !tree_.complete() || !missing().empty()) return;
  through_ = true;
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank)
    if (rank != rank_) say(rank, {&kThrough, 1});
}

bool Wiring::receive(const Socket& socket, std::string& received, std::size_t due) {
  char bytes[std::size_t{64} << 10];
  const std::size_t room = std::min(sizeof(bytes), due - received.size());
  const ssize_t count = recv(socket.descriptor(), bytes, room, 0);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  received.append(bytes, static_cast<std::size_t>(count));
  return count > 0;
}

}  // namespace tandem::gloo_backend
