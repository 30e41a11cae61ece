#include "rpc/unix_socket/connection.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/status.h"
#include "rpc/shared_memory/shared_memory.h"

namespace tandem::rpc {
namespace {

using std::chrono::milliseconds;

// A cancellation waits that long for room in the socket.
constexpr milliseconds kPatience{1'000};

// The remaining time, rounded up.
int poll_limit(Clock::time_point end) {
  const auto left = std::chrono::ceil<milliseconds>(end - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
}

bool is_full(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS; }

}  // namespace

std::shared_ptr<Connection> Connection::open(const UnixAddress& address, Options options) {
  Socket socket = connect_to(address);
  Socket interrupt(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!socket.is_open() || !interrupt.is_open()) return nullptr;
  const std::string hello =
      packet_prefix({.kind = PacketKind::kHello,
                     .limit = options.largest_reply,
                     .strings = {options.credential, options.caller, announcement()}});
  auto made = std::make_shared<Connection>(std::move(socket), std::move(interrupt), address.calls,
                                           std::move(options));
  return made->send(hello, false) ? made : nullptr;
}

Connection::Connection(Socket socket, Socket interrupt, int most_calls, Options options)
    : socket_(std::move(socket)),
      interrupt_(std::move(interrupt)),
      most_calls_(static_cast<std::size_t>(most_calls)),
      options_(std::move(options)),
      buffer_(kMostPacketBytes) {}

// False if there is no room, after kPatience if it waits, or if the connection is lost. Replies
// that have arrived before are still read then.
bool Connection::send(const std::string& packet, bool waits) {
  const Clock::time_point end = Clock::now() + kPatience;
  while (::send(socket_.descriptor(), packet.data(), packet.size(), MSG_DONTWAIT | MSG_NOSIGNAL) <
         0) {
    if (errno == EINTR) continue;
    if (!is_full(errno)) {
      const std::lock_guard lock(mutex_);
      lost_ = true;
      return false;
    }
    if (!waits || Clock::now() >= end) return false;
    pollfd writable = {socket_.descriptor(), POLLOUT, 0};
    poll(&writable, 1, poll_limit(end));
  }
  return true;
}

std::shared_ptr<Exchange> Connection::add() {
  const std::lock_guard lock(mutex_);
  if (lost_ || calls_.size() >= most_calls_) return nullptr;
  if (calls_.empty()) {
    heard_ = Clock::now();
    pinged_.reset();
  }
  auto exchange = std::make_shared<Exchange>();
  exchange->call = ++last_call_;
  calls_.emplace(exchange->call, exchange);
  return exchange;
}

std::shared_ptr<Exchange> Connection::start(const std::string& method, const Frame& request,
                                            milliseconds limit) {
  Packet packet{.kind = PacketKind::kRequest,
                .limit = static_cast<std::uint64_t>(limit.count()),
                .strings = {method}};
  if (packet_overhead(packet.kind) + method.size() + frame_bytes(request.message) >
      kMostPacketBytes)
    return nullptr;
  std::shared_ptr<Exchange> exchange = add();
  if (!exchange) return nullptr;
  packet.call = exchange->call;
  std::string bytes = packet_prefix(packet);
  append_frame(bytes, request);
  if (send(bytes, false)) return exchange;
  const std::lock_guard lock(mutex_);
  calls_.erase(exchange->call);
  return nullptr;
}

bool Connection::wait(Exchange& exchange, Clock::time_point end) {
  Lock lock(mutex_);
  exchange.waits = true;
  while (exchange.end == Exchange::End::kNone && Clock::now() < end) {
    if (reading_) {
      exchange.changed.wait_until(lock, end);
      continue;
    }
    reading_ = true;
    lock.unlock();
    read(end);
    lock.lock();
    reading_ = false;
  }
  exchange.waits = false;
  hand_over();
  lock.unlock();
  // A reply that has arrived counts, also if the limit has passed before anybody read it.
  return has_ended(exchange);
}

bool Connection::has_ended(Exchange& exchange) {
  Lock lock(mutex_);
  if (exchange.end == Exchange::End::kNone && !reading_) {
    reading_ = true;
    lock.unlock();
    while (receive()) {
    }
    lock.lock();
    reading_ = false;
    hand_over();
  }
  return exchange.end != Exchange::End::kNone;
}

// Another thread that waits reads from now on. REQUIRES: mutex_ is held.
void Connection::hand_over() {
  if (reading_) return;
  const auto next = std::find_if(calls_.begin(), calls_.end(),
                                 [](const auto& call) { return call.second->waits; });
  if (next != calls_.end()) next->second->changed.notify_one();
}

bool Connection::cancel(Exchange& exchange) {
  {
    const std::lock_guard lock(mutex_);
    if (exchange.end != Exchange::End::kNone) return false;
    finish(exchange, Exchange::End::kCancelled);
    const std::uint64_t one = 1;
    if (reading_) [[maybe_unused]]
      const ssize_t written = write(interrupt_.descriptor(), &one, sizeof(one));
  }
  const std::string packet = packet_prefix({.kind = PacketKind::kCancel, .call = exchange.call});
  if (!send(packet, true) && !is_lost()) lose("the server reads nothing");
  return true;
}

bool Connection::is_lost() const {
  const std::lock_guard lock(mutex_);
  return lost_;
}

// REQUIRES: mutex_ is held.
void Connection::finish(Exchange& exchange, Exchange::End end) {
  exchange.end = end;
  exchange.changed.notify_one();
  calls_.erase(exchange.call);
}

// Waits for a packet until `end`, and handles it. For the thread that reads.
void Connection::read(Clock::time_point end) {
  if (receive()) return;
  const Clock::time_point next = check_silence();
  pollfd sources[] = {{socket_.descriptor(), POLLIN, 0}, {interrupt_.descriptor(), POLLIN, 0}};
  poll(sources, 2, poll_limit(std::min(end, next)));
  std::uint64_t count;
  if (sources[1].revents) [[maybe_unused]]
    const ssize_t taken = ::read(interrupt_.descriptor(), &count, sizeof(count));
  if (sources[0].revents) receive();
}

// Whether there was a packet. For the thread that reads.
bool Connection::receive() {
  const ssize_t size =
      recv(socket_.descriptor(), buffer_.data(), buffer_.size(), MSG_DONTWAIT | MSG_TRUNC);
  if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return false;
  if (size <= 0 || static_cast<std::size_t>(size) > buffer_.size()) {
    lose(size < 0 ? std::strerror(errno) : "the server has closed it");
    return false;
  }
  try {
    handle(parse_packet(std::span(buffer_).first(static_cast<std::size_t>(size))));
    return true;
  } catch (const DataLossError& error) {
    lose(error.what());
    return false;
  }
}

void Connection::handle(const Packet& packet) {
  std::shared_ptr<Exchange> exchange;
  {
    const std::lock_guard lock(mutex_);
    heard_ = Clock::now();
    pinged_.reset();
    if (const auto found = calls_.find(packet.call); found != calls_.end())
      exchange = found->second;
  }
  switch (packet.kind) {
    case PacketKind::kPong: return;
    case PacketKind::kPart:
    case PacketKind::kReply:
      if (exchange) return add_reply(*exchange, packet);
      return discard(packet.bytes);  // the call was cancelled after the reply had been sent
    case PacketKind::kRefusal: {
      const std::lock_guard lock(mutex_);
      if (!exchange || exchange->end != Exchange::End::kNone) return;
      exchange->why = packet.strings[0];
      return finish(*exchange, Exchange::End::kLost);
    }
    default:
      fail<DataLossError>("[rpc] a server has sent a packet of kind {}",
                          static_cast<std::uint32_t>(packet.kind));
  }
}

void Connection::add_reply(Exchange& exchange, const Packet& packet) {
  const std::lock_guard lock(mutex_);
  if (exchange.end != Exchange::End::kNone) return;
  exchange.reply.append(reinterpret_cast<const char*>(packet.bytes.data()), packet.bytes.size());
  if (exchange.reply.size() > options_.largest_reply + kMostPacketBytes)
    fail<DataLossError>("[rpc] a server has sent a reply of more than {} bytes",
                        options_.largest_reply);
  if (packet.kind == PacketKind::kReply) finish(exchange, Exchange::End::kReplied);
}

void Connection::discard(std::span<const std::byte> reply) {
  try {
    Frame frame = parse_frame({&reply, 1});
    take_shared(frame, *options_.areas);
  } catch (const DataLossError&) {  // a part of a reply, or the server has taken them back
  }
}

// Returns the next time for this check.
Clock::time_point Connection::check_silence() {
  const milliseconds half = options_.silence_limit / 2;
  const Clock::time_point now = Clock::now();
  bool is_lost = false;
  {
    const std::lock_guard lock(mutex_);
    const Clock::time_point next = pinged_.value_or(heard_) + half;
    if (now < next) return next;
    is_lost = pinged_.has_value();
    pinged_ = now;
  }
  if (is_lost)
    lose(fmt::format("no answer within {} ms", options_.silence_limit.count()));
  else
    send(packet_prefix({.kind = PacketKind::kPing}), false);
  return is_lost ? now : now + half;
}

void Connection::lose(const std::string& why) {
  const std::lock_guard lock(mutex_);
  lost_ = true;
  shutdown(socket_.descriptor(), SHUT_RDWR);  // the server cancels what it runs
  while (!calls_.empty()) {
    const std::shared_ptr<Exchange> exchange = calls_.begin()->second;
    exchange->why = why;
    finish(*exchange, Exchange::End::kLost);
  }
}

}  // namespace tandem::rpc
