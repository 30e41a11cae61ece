#include "rpc/unix_socket/server_connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/status.h"
#include "rpc/call_outcome.h"
#include "rpc/credential.h"
#include "rpc/frame.h"

namespace tandem::rpc {

using std::chrono::milliseconds;

namespace {

constexpr std::uint64_t kLongestMs = std::uint64_t{1} << 40;  // 34 years; a clock does not overflow

}  // namespace

std::shared_ptr<void> ServerCalls::begin() {
  {
    const std::lock_guard lock(mutex_);
    if (stops_at_) return nullptr;
    ++running_;
  }
  return {this, [](void* calls) { static_cast<ServerCalls*>(calls)->end(); }};
}

void ServerCalls::end() {
  const std::lock_guard lock(mutex_);
  --running_;
  changed_.notify_all();
}

void ServerCalls::stop_at(Clock::time_point end) {
  const std::lock_guard lock(mutex_);
  if (!stops_at_ || end < *stops_at_) stops_at_ = end;
}

bool ServerCalls::has_stopped() const {
  const std::lock_guard lock(mutex_);
  return stops_at_ && Clock::now() >= *stops_at_;
}

bool ServerCalls::try_to_queue(std::size_t bytes) {
  if (queued_.fetch_add(bytes) + bytes <= service.options.memory_limit) return true;
  queued_ -= bytes;
  return false;
}

void ServerCalls::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return running_ == 0; });
}

class ServedUnixCall final : public CallContext {
 public:
  // `running`: see ServerCalls::begin().
  ServedUnixCall(std::shared_ptr<ServerConnection> connection, std::shared_ptr<void> running,
                 const Packet& packet)
      : connection_(std::move(connection)),
        running_(std::move(running)),
        call_(packet.call),
        method_(packet.strings[0]),
        deadline_(Clock::now() + milliseconds(std::min(packet.limit, kLongestMs))),
        request_(parse_frame({&packet.bytes, 1})) {}

  const std::string& caller() const override { return connection_->caller_; }
  milliseconds remaining() const override {
    return std::max(milliseconds(0),
                    std::chrono::duration_cast<milliseconds>(deadline_ - Clock::now()));
  }
  bool cancelled() const override {
    return cancelled_ || connection_->lost_ || Clock::now() >= deadline_ ||
           connection_->server_->has_stopped();
  }
  void cancel() { cancelled_ = true; }

  void run() {
    ServerConnection& connection = *connection_;
    Service& service = connection.server_->service;
    SharedSender::Sent sent;
    if (!cancelled()) {
      Frame reply = service.answer(method_, *this, [this] { return std::move(request_); });
      if (frame_bytes(reply.message) > connection.largest_reply_)
        reply = too_large(fmt::format("the reply has {} bytes, more than the limit of {}",
                                      frame_bytes(reply.message), connection.largest_reply_));
      if (connection.neighbor_)
        sent = service.sender.share(reply, {*connection.neighbor_, Clock::now() + remaining()});
      if (!cancelled()) connection.reply(call_, method_, reply);
    }
    if (connection.server_->has_stopped()) connection.refuse(call_, "the server has stopped");
    if (cancelled()) sent.revoke();
    connection.forget(call_);
  }

 private:
  const std::shared_ptr<ServerConnection> connection_;
  const std::shared_ptr<void> running_;
  const std::uint64_t call_;
  const std::string method_;
  const Clock::time_point deadline_;
  Frame request_;
  std::atomic<bool> cancelled_ = false;
};

ServerConnection::ServerConnection(std::shared_ptr<ServerCalls> server, Socket socket)
    : server_(std::move(server)), socket_(std::move(socket)), buffer_(kMostPacketBytes) {}

ServerConnection::~ServerConnection() {
  for (const std::string& packet : unsent_) server_->unqueue(packet.size());
}

void ServerConnection::close() {
  lost_ = true;
  shutdown(socket_.descriptor(), SHUT_RDWR);
  server_->threads.forget(*this);
}

void ServerConnection::ready() {
  const std::shared_ptr<ServerConnection> self = shared_from_this();
  if (flush() && receive()) {
    const std::lock_guard lock(mutex_);  // so that the last to arm knows what is unsent
    if (!lost_) return server_->threads.arm(*this, !unsent_.empty());
  }
  close();
}

// Until a call has arrived or there is nothing to read. False if the connection has ended.
bool ServerConnection::receive() {
  const std::lock_guard lock(read_mutex_);
  try {
    while (true) {
      const ssize_t size =
          recv(socket_.descriptor(), buffer_.data(), buffer_.size(), MSG_DONTWAIT | MSG_TRUNC);
      if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return true;
      if (size <= 0 || static_cast<std::size_t>(size) > buffer_.size()) return false;
      const Packet packet = parse_packet(std::span(buffer_).first(static_cast<std::size_t>(size)));
      if (!handle(packet)) return false;
      if (packet.kind == PacketKind::kRequest) return true;  // this thread may run it
    }
  } catch (const std::exception&) {  // a damaged packet, or no memory
    return false;
  }
}

// False for what a caller does not send.
bool ServerConnection::handle(const Packet& packet) {
  if (packet.kind == PacketKind::kHello) return greet(packet);
  if (!greeted_) return false;
  switch (packet.kind) {
    case PacketKind::kRequest: start(packet); return true;
    case PacketKind::kCancel: cancel(packet.call); return true;
    case PacketKind::kPing: send(packet_prefix({.kind = PacketKind::kPong})); return true;
    default: return false;
  }
}

bool ServerConnection::greet(const Packet& packet) {
  const auto& [credential, caller, announced] = packet.strings;
  if (greeted_ || !same_credential(server_->service.credential, credential)) return false;
  caller_ = caller;
  neighbor_ = neighbor(announced);
  largest_reply_ = packet.limit;
  greeted_ = true;
  return true;
}

void ServerConnection::start(const Packet& packet) {
  std::shared_ptr<void> running = server_->begin();
  if (!running) return refuse(packet.call, "the server stops");
  const auto call =
      std::make_shared<ServedUnixCall>(shared_from_this(), std::move(running), packet);
  const Service& service = server_->service;
  bool has_room = false;
  {
    const std::lock_guard lock(mutex_);
    const auto most = static_cast<std::size_t>(service.options.calls_per_connection);
    has_room = calls_.size() < most && calls_.emplace(packet.call, call).second;
  }
  if (has_room && server_->threads.submit_from_source([call] { call->run(); })) return;
  forget(packet.call);
  reply(packet.call, std::string(packet.strings[0]), service.busy());
}

void ServerConnection::cancel(std::uint64_t call) {
  const std::lock_guard lock(mutex_);
  const auto found = calls_.find(call);
  if (found == calls_.end()) return;
  found->second->cancel();
  calls_.erase(found);  // the caller does not count it any more
}

void ServerConnection::forget(std::uint64_t call) {
  const std::lock_guard lock(mutex_);
  calls_.erase(call);
}

void ServerConnection::refuse(std::uint64_t call, std::string_view why) {
  send(packet_prefix({.kind = PacketKind::kRefusal, .call = call, .strings = {why}}));
}

void ServerConnection::reply(std::uint64_t call, const std::string& method, const Frame& frame) {
  std::string whole = packet_prefix({.kind = PacketKind::kReply, .call = call});
  append_frame(whole, frame);
  if (whole.size() <= kMostPacketBytes) return send(std::move(whole));
  if (!server_->try_to_queue(whole.size())) return reply(call, method, Service::no_memory(method));
  const std::size_t overhead = packet_overhead(PacketKind::kReply);
  std::string_view rest = whole;
  for (rest.remove_prefix(overhead); !rest.empty();) {
    const std::string_view part = rest.substr(0, kMostPacketBytes - overhead);
    rest.remove_prefix(part.size());
    std::string packet = packet_prefix(
        {.kind = rest.empty() ? PacketKind::kReply : PacketKind::kPart, .call = call});
    packet += part;
    send(std::move(packet));
  }
  server_->unqueue(whole.size());  // send() has counted those that wait
}

// Without waiting: what finds no room is sent later.
void ServerConnection::send(std::string packet) {
  const std::lock_guard lock(mutex_);
  if (lost_ || (unsent_.empty() && write(packet))) return;
  server_->queue(packet.size());
  unsent_.push_back(std::move(packet));
  server_->threads.arm(*this, true);
}

// False if the connection has ended.
bool ServerConnection::flush() {
  const std::lock_guard lock(mutex_);
  while (!unsent_.empty() && write(unsent_.front())) {
    server_->unqueue(unsent_.front().size());
    unsent_.pop_front();
  }
  return !lost_;
}

// False if there is no room. REQUIRES: mutex_ is held.
bool ServerConnection::write(const std::string& packet) {
  while (::send(socket_.descriptor(), packet.data(), packet.size(), MSG_DONTWAIT | MSG_NOSIGNAL) <
         0) {
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) return false;
    lost_ = true;
    shutdown(socket_.descriptor(), SHUT_RDWR);  // ready() sees the end
    return true;
  }
  return true;
}

}  // namespace tandem::rpc
