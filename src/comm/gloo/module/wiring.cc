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

constexpr auto kAttempt =
    std::chrono::seconds(5);  // for a silent peer, and for an accepted connection
constexpr auto kPause = std::chrono::milliseconds(20);
constexpr std::size_t kRankBytes = sizeof(std::int32_t);
// Each message of the tree starts with its length.
constexpr std::size_t kLengthBytes = sizeof(std::uint32_t);
constexpr std::size_t kMaxDoorBytes = 1024;
constexpr char kFinished = '!';

// Sends a few bytes on a new or idle connection: they fit into its buffer, or it is broken.
bool send_short(const Socket& socket, std::string_view bytes) {
  return send(socket.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(bytes.size());
}

}  // namespace

std::string to_string(const ListenAddress& address) {
  return fmt::format("{} {} {} {} {}", address.host, address.pid, address.endpoint.host,
                     address.endpoint.port, address.key);
}

ListenAddress parse_listen_address(const std::string& text) {
  std::istringstream parts(text);
  ListenAddress address;
  parts >> address.host >> address.pid >> address.endpoint.host >> address.endpoint.port >>
      address.key;
  if (!parts) fail<DataLossError>("[gloo] expected the address of a rank, got '{}'", text);
  return address;
}

Wiring::Wiring(Socket listener, const ListenAddress& mine, int rank, int size,
               const std::optional<ListenAddress>& parent)
    : listener_(std::move(listener)),
      key_(mine.key),
      rank_(rank),
      tree_(rank, size, to_string(mine)),
      addresses_(index(size)),
      peers_(index(size)) {
  if (parent) addresses_[index(TreeExchange::parent_of(rank))] = *parent;
}

bool Wiring::advance(std::chrono::milliseconds limit) {
  forward_addresses();
  flush_all();
  connect_to_lower(Clock::now());
  announce_finished();
  if (finished()) return true;
  poll_sockets(limit);
  forward_addresses();
  announce_finished();
  flush_all();
  return finished();
}

void Wiring::poll_sockets(std::chrono::milliseconds limit) {
  std::vector<pollfd> polled = {{listener_.descriptor(), POLLIN, 0}};
  bool waits_to_retry = false;
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    const Peer& peer = peers_[index(rank)];
    const bool writes =
        peer.stage == Peer::Stage::kConnecting || (peer.connected() && unsent_.contains(rank));
    // Bytes that a peer sends after it has finished belong to Gloo.
    const bool reads =
        peer.stage != Peer::Stage::kConnecting && peer.stage != Peer::Stage::kFinished;
    polled.push_back({reads || writes ? peer.socket.descriptor() : -1,
                      static_cast<short>((reads ? POLLIN : 0) | (writes ? POLLOUT : 0)), 0});
    waits_to_retry =
        waits_to_retry || (rank < rank_ && knows(rank) && peer.stage == Peer::Stage::kWaiting);
  }
  for (const auto& [id, incoming] : incoming_)
    polled.push_back({incoming.socket.descriptor(), POLLIN, 0});
  const auto wait = waits_to_retry ? std::min<std::chrono::milliseconds>(limit, kPause) : limit;
  poll(polled.data(), polled.size(), static_cast<int>(wait.count()));
  const Clock::time_point now = Clock::now();
  std::size_t i = 1;
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank)
    if (polled[i++].revents != 0) read_from(rank);
  for (auto& [id, incoming] : incoming_)
    if (polled[i++].revents != 0) read_incoming(incoming);
  close_stale(now);
  if (polled.front().revents != 0) accept_all(now);
}

std::vector<int> Wiring::missing() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank)
    if (rank != rank_ && !(finished_ ? peers_[index(rank)].stage == Peer::Stage::kFinished
                                     : peers_[index(rank)].connected()))
      ranks.push_back(rank);
  return ranks;
}

std::vector<Socket> Wiring::take_sockets() {
  std::vector<Socket> sockets;
  for (Peer& peer : peers_) sockets.push_back(std::move(peer.socket));
  return sockets;
}

void Wiring::connect_to_lower(Clock::time_point now) {
  for (int rank = 0; rank < rank_; ++rank)
    if (const Peer& peer = peers_[index(rank)];
        knows(rank) && peer.stage == Peer::Stage::kWaiting && now >= peer.retry_at)
      start_connecting_to(rank, now);
}

void Wiring::start_connecting_to(int rank, Clock::time_point now) {
  Peer& peer = peers_[index(rank)];
  peer = {};
  peer.retry_at = now + kPause;
  try {
    peer.socket = start_connecting(addresses_[index(rank)].endpoint);
  } catch (const UnavailableError&) {
    return;  // retried later
  }
  peer.stage = Peer::Stage::kConnecting;
  peer.since = now;
}

void Wiring::read_from(int rank) {
  Peer& peer = peers_[index(rank)];
  const ListenAddress& address = addresses_[index(rank)];
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
        const std::string mine = answer(address.key, peer.greeting, peer.nonce);
        well = !mine.empty() && send_short(peer.socket, mine);
      }
      peer.stage = Peer::Stage::kVerdict;
      break;
    case Peer::Stage::kVerdict:
      well = receive(peer.socket, peer.received, kVerdictBytes);
      if (!well || peer.received.size() < kVerdictBytes) break;
      well =
          read_verdict(address.key, peer.greeting, peer.nonce, peer.received) == Greeted::kWelcome;
      if (well) {
        const std::int32_t mine = rank_;
        well = send_short(peer.socket, {reinterpret_cast<const char*>(&mine), kRankBytes});
      }
      peer.received.clear();
      peer.stage = Peer::Stage::kConnected;
      break;
    case Peer::Stage::kConnected: return read_connected(rank);
    default: return;
  }
  if (well) return;
  const Clock::time_point retry_at = Clock::now() + kPause;
  peer = {};
  peer.retry_at = retry_at;
}

// A neighbour in the tree sends addresses; then, like every peer, it reports that it has finished.
void Wiring::read_connected(int rank) {
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
    peer.stage = Peer::Stage::kFinished;
    return;
  }
  tree_.receive(rank, std::make_shared<const std::string>(peer.received.substr(kLengthBytes)));
  peer.received = {};
}

void Wiring::forward_addresses() {
  while (const auto outgoing = tree_.take_outgoing()) {
    const auto length = static_cast<std::uint32_t>(outgoing->message->size());
    for (const int rank : outgoing->to) {
      send_to(rank, {reinterpret_cast<const char*>(&length), kLengthBytes});
      send_to(rank, *outgoing->message);
    }
  }
  if (!tree_.complete() || knows(rank_)) return;
  const std::vector<std::string> values = tree_.values();
  for (std::size_t rank = 0; rank < addresses_.size(); ++rank)
    addresses_[rank] = parse_listen_address(values[rank]);
}

void Wiring::send_to(int rank, std::string_view bytes) { unsent_[rank] += bytes; }

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

void Wiring::read_incoming(IncomingConnection& incoming) {
  const std::size_t due = incoming.known ? kRankBytes : kClientBytes;
  if (!receive(incoming.socket, incoming.received, due)) return incoming.socket.close();
  if (incoming.received.size() < due) return;
  if (!incoming.known) {
    const std::string verdict = judge(key_, incoming.nonce, incoming.received);
    incoming.known = verdict != kRefusal;
    incoming.received.clear();
    if (!send_short(incoming.socket, verdict) || !incoming.known) incoming.socket.close();
    return;
  }
  std::int32_t rank = 0;
  std::memcpy(&rank, incoming.received.data(), sizeof(rank));
  if (rank > rank_ && rank < static_cast<int>(peers_.size()) && !peers_[index(rank)].connected()) {
    peers_[index(rank)].socket = std::move(incoming.socket);
    peers_[index(rank)].stage = Peer::Stage::kConnected;
  }
  incoming.socket.close();
}

void Wiring::accept_all(Clock::time_point now) {
  // All ranks may connect at the same moment.
  const std::size_t most = 64 + peers_.size();
  while (true) {
    Socket socket = accept_from(listener_);
    if (!socket.is_open()) return;
    if (incoming_.size() >= most) drop_stranger();
    IncomingConnection& incoming = incoming_[next_incoming_++];
    incoming.socket = std::move(socket);
    incoming.since = now;
    incoming.nonce = random_bytes(kNonceBytes);
    if (!send_short(incoming.socket, std::string(kGreeting) + incoming.nonce))
      incoming.socket.close();
  }
}

// The one that has been a stranger for longest.
void Wiring::drop_stranger() {
  const auto stranger = std::find_if(incoming_.begin(), incoming_.end(),
                                     [](const auto& each) { return !each.second.known; });
  if (stranger != incoming_.end()) incoming_.erase(stranger);
}

void Wiring::close_stale(Clock::time_point now) {
  // A peer that is known counts itself as connected, and may only be slow.
  std::erase_if(incoming_, [&](const auto& each) {
    const IncomingConnection& incoming = each.second;
    return !incoming.socket.is_open() || (!incoming.known && now - incoming.since > kAttempt);
  });
  for (Peer& peer : peers_)
    if (peer.stage != Peer::Stage::kWaiting && !peer.connected() && now - peer.since > kAttempt)
      peer = {};
}

void Wiring::announce_finished() {
  if (finished_ || !tree_.complete() || !missing().empty()) return;
  finished_ = true;
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank)
    if (rank != rank_) send_to(rank, {&kFinished, 1});
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
