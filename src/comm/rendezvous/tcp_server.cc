#include "comm/rendezvous/tcp_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "comm/host_identity.h"
#include "comm/rendezvous/coordinator.h"
#include "comm/rendezvous/handshake.h"
#include "comm/rendezvous/wire.h"
#include "core/log.h"
#include "core/status.h"
#include "core/threads.h"

namespace tandem {
namespace {

constexpr auto kTick = std::chrono::milliseconds(100);
constexpr auto kMessageLimit = std::chrono::seconds(30);  // from a message's first byte to its last
constexpr auto kAfterFailure = std::chrono::seconds(5);   // for late ranks to receive the failure
// per turn, so that no connection blocks others
constexpr std::size_t kReadBytes = std::size_t{64} << 10;
// unsent bytes above which no more requests are read
constexpr std::size_t kPauseBytes = std::size_t{1} << 20;
// unsent bytes above which the peer is disconnected
constexpr std::size_t kDropBytes = std::size_t{64} << 20;

struct ClientConnection {
  Socket socket;
  std::string source;         // the peer's address without its port
  bool known = false;         // it has proved that it knows the secret
  std::string nonce, answer;  // of the handshake
  FrameReader reader;
  std::string out;
  std::size_t sent = 0;     // bytes of `out`
  Clock::time_point since;  // start of the handshake or of the current message
  bool partial = false;     // a message is incomplete
  std::string drop;         // the reason to disconnect it

  std::size_t unsent() const { return out.size() - sent; }
  bool dropping() const { return !drop.empty(); }
};

void flush(ClientConnection& connection) {
  while (connection.unsent() > 0) {
    const ssize_t sent =
        send(connection.socket.descriptor(), connection.out.data() + connection.sent,
             connection.unsent(), MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) connection.drop = "its connection broke";
      return;
    }
    connection.sent += static_cast<std::size_t>(sent);
  }
  connection.out.clear();
  connection.sent = 0;
}

void send_bytes(ClientConnection& connection, std::string_view bytes) {
  if (connection.dropping()) return;
  connection.out.append(bytes);
  flush(connection);
  if (connection.unsent() > kDropBytes) connection.drop = "it does not read what it asked for";
}

}  // namespace

class TcpServer::Loop {
 public:
  explicit Loop(TcpServerOptions options)
      : options_(std::move(options)),
        listener_(listen_on({options_.host, options_.port},
                            options_.outside ? kOutsideServer : "rank 0")),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!wake_.is_open()) fail<ResourceExhaustedError>("[rendezvous] cannot open an eventfd");
    begin_job(0);
    first_job_.missing = coordinator_->alive();
    thread_ = start_thread([this] { run(); });
  }

  ~Loop() {
    const bool ends_by_itself = [this] {
      const std::scoped_lock lock(mutex_);
      return last_word_until_.has_value();
    }();
    if (!ends_by_itself) stopping_.store(true);
    eventfd_write(wake_.descriptor(), 1);
    thread_.join();
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  std::uint16_t port() const { return port_of(listener_); }

  bool wait_until_deserted(Clock::time_point deadline) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, deadline, [this] { return deserted_; });
  }

  void wait_for_first_job(const TimeLimit& for_joining) const {
    std::unique_lock lock(mutex_);
    const auto has_ended = [this] { return first_job_.over || !broken_.empty(); };
    if (!changed_.wait_until(lock, for_joining.end,
                             [&] { return first_job_.missing.number == 0 || has_ended(); }))
      fail<DeadlineExceededError>(
          "[rendezvous] {}",
          describe_missing(first_job_.missing, options_.size, for_joining.length));
    changed_.wait(lock, has_ended);
    if (!broken_.empty()) fail<UnavailableError>("[rendezvous] the server has failed: {}", broken_);
    if (!first_job_.failure.empty()) fail<AbortedError>("[rendezvous] {}", first_job_.failure);
  }

  void rank_ended(int rank) {
    const std::scoped_lock lock(mutex_);
    ended_.push_back(rank);
  }

  void report_failed_start(std::chrono::milliseconds limit) {
    const std::scoped_lock lock(mutex_);
    last_word_until_ = Clock::now() + limit;
    eventfd_write(wake_.descriptor(), 1);
  }

 private:
  // The state of the first job, for wait_for_first_job().
  struct FirstJobState {
    WireMessage missing;  // kAlive
    bool over = false;
    std::string failure;
  };

  // An exception here must not end the process: the ranks notice that the server is gone.
  void run() {
    try {
      serve();
    } catch (const std::exception& error) {
      logging::error("[rendezvous] the server of the job ends: {}", error.what());
      listener_.close();
      connections_.clear();
      const std::scoped_lock lock(mutex_);
      broken_ = error.what();
    }
    const std::scoped_lock lock(mutex_);
    deserted_ = true;
    changed_.notify_all();
  }

  void begin_job(int number) {
    std::optional<OutsideHost> outside;
    if (options_.outside) outside = {.pid = getpid(), .name = host_name()};
    coordinator_.emplace(
        CoordinatorOptions{.size = options_.size, .job = number, .outside = std::move(outside)},
        [this](int connection, const WireMessage& message) {
          const auto found = connections_.find(connection);
          if (found != connections_.end()) send_bytes(found->second, encode(message));
        });
    job_ = number;
    next_job_at_.reset();
  }

  // If the job failed before all ranks had joined, late ranks must receive the failure.
  bool job_is_over(Clock::time_point now) {
    if (!coordinator_->deserted()) return false;
    if (!coordinator_->assembling()) return true;
    if (!coordinator_->reports_failed_start()) return false;
    if (!next_job_at_) next_job_at_ = now + kAfterFailure;
    return now >= *next_job_at_;
  }

  // Remaining connections belong to the finished job; its processes may connect again.
  void end_job(Clock::time_point now) {
    for (auto& [id, connection] : connections_)
      if (connection.known) connection.drop = "the job is over";
    begin_job(job_ + 1);
    sweep(now);
  }

  void tell_progress(Clock::time_point now) {
    const bool over = options_.outside && job_is_over(now);
    {
      const std::scoped_lock lock(mutex_);
      deserted_ = coordinator_->deserted();
      if (options_.outside && job_ == 0)
        first_job_ = {coordinator_->alive(), over, over ? coordinator_->failure() : ""};
    }
    changed_.notify_all();
    if (over) end_job(now);
  }

  void serve() {
    while (!stopping_.load() && !said_last_word()) turn(kTick);
    listener_.close();
    turn(std::chrono::milliseconds(0));  // handles the report that rank 0 has just sent
    coordinator_->close();
    const Clock::time_point end = Clock::now() + std::chrono::seconds(1);
    while (unsent() && Clock::now() < end) turn(std::chrono::milliseconds(20));
  }

  // Whether the failed start has been reported long enough, if that was requested.
  bool said_last_word() {
    std::optional<Clock::time_point> until;
    {
      const std::scoped_lock lock(mutex_);
      until = last_word_until_;
    }
    if (!until) return false;
    turn(std::chrono::milliseconds(0));  // handles rank 0's last messages and its disconnection
    if (coordinator_->assembling()) coordinator_->abort("it has ended before all ranks were there");
    return Clock::now() >= *until || !coordinator_->reports_failed_start();
  }

  bool unsent() const {
    return std::any_of(connections_.begin(), connections_.end(),
                       [](const auto& each) { return each.second.unsent() > 0; });
  }

  void turn(std::chrono::milliseconds limit) {
    polled_.clear();
    polled_.push_back({wake_.descriptor(), POLLIN, 0});
    // negative when closed, which poll() ignores
    polled_.push_back({listener_.descriptor(), POLLIN, 0});
    for (const auto& [id, connection] : connections_) {
      const int reads = connection.unsent() > kPauseBytes ? 0 : POLLIN;
      const int writes = connection.unsent() > 0 ? POLLOUT : 0;
      polled_.push_back({connection.socket.descriptor(), static_cast<short>(reads | writes), 0});
    }
    poll(polled_.data(), polled_.size(), static_cast<int>(limit.count()));
    const Clock::time_point now = Clock::now();
    // Handles arrived data before judging anyone's silence: this thread, too, may not have run for
    // a while.
    std::size_t i = 2;
    for (auto& [id, connection] : connections_) {
      const short events = polled_[i++].revents;
      if ((events & POLLOUT) != 0) {
        flush(connection);
        handle_messages(id, connection, now);  // messages for whose answers there was no room
      }
      if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) receive(id, connection, now);
    }
    coordinator_->tick(now);
    {
      const std::scoped_lock lock(mutex_);
      for (const int rank : ended_) coordinator_->ended(rank);
    }
    sweep(now);
    if ((polled_[1].revents & POLLIN) != 0) accept_all(now);
    tell_progress(now);
  }

  void receive(int id, ClientConnection& connection, Clock::time_point now) {
    read_buffer_.resize(kReadBytes);
    const ssize_t count =
        recv(connection.socket.descriptor(), read_buffer_.data(), read_buffer_.size(), 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) {
      connection.drop = "its connection closed without goodbye";
      return;
    }
    std::string_view bytes(read_buffer_.data(), static_cast<std::size_t>(count));
    if (!connection.known) bytes = handshake(connection, bytes);
    if (!connection.known) return;
    connection.reader.append(bytes);
    handle_messages(id, connection, now);
  }

  // Returns the bytes after the handshake.
  std::string_view handshake(ClientConnection& connection, std::string_view bytes) {
    const std::size_t count = std::min(bytes.size(), kClientBytes - connection.answer.size());
    connection.answer.append(bytes.substr(0, count));
    bytes.remove_prefix(count);
    if (connection.answer.size() < kClientBytes) return bytes;
    const std::string verdict = judge(options_.secret, connection.nonce, connection.answer);
    send_bytes(connection, verdict);
    if (verdict == kRefusal) {
      connection.drop = "it does not know the secret";
      coordinator_->refused(connection.source);
    } else {
      connection.known = true;
    }
    return bytes;
  }

  // Answers no more requests of a peer that does not read its answers.
  void handle_messages(int id, ClientConnection& connection, Clock::time_point now) {
    try {
      bool handled = false;
      while (!connection.dropping()) {
        if (connection.unsent() > kPauseBytes) {
          connection.since = now;
          return;
        }
        const auto message = connection.reader.next();
        if (!message) break;
        handled = true;
        if (!coordinator_->handle(id, *message, now)) connection.drop = "it broke the protocol";
      }
      if (handled || !connection.partial) connection.since = now;
      connection.partial = connection.reader.partial();
    } catch (const Error& error) {
      connection.drop = error.what();
    }
  }

  void sweep(Clock::time_point now) {
    for (auto it = connections_.begin(); it != connections_.end();) {
      ClientConnection& connection = it->second;
      if (!connection.known && now - connection.since > options_.greeting_limit)
        connection.drop = "it did not say who it is";
      if (connection.partial && now - connection.since > kMessageLimit)
        connection.drop = "it stopped amid a message";
      if (!connection.dropping()) {
        ++it;
        continue;
      }
      const int id = it->first;
      const std::string reason = connection.drop;
      it = connections_.erase(it);
      // sends to other connections, and may mark them for disconnection
      coordinator_->dropped(id, reason);
    }
  }

  void accept_all(Clock::time_point now) {
    while (true) {
      Socket socket;
      try {
        socket = accept_from(listener_);
      } catch (const ResourceExhaustedError& error) {
        if (drop_stranger()) continue;
        coordinator_->abort(fmt::format("it cannot take in more ranks: {}", error.what()));
        std::this_thread::sleep_for(kTick / 10);  // retries, but not in a busy loop
        return;
      }
      if (!socket.is_open()) return;
      if (strangers() >= max_strangers()) drop_stranger();
      if (connections_.size() >= max_strangers() + 16 * static_cast<std::size_t>(options_.size))
        continue;
      ClientConnection& connection = connections_[next_id_++];
      connection.source = peer_of(socket);
      connection.socket = std::move(socket);
      connection.since = now;
      connection.nonce = random_bytes(kNonceBytes);
      send_bytes(connection, std::string(kGreeting) + connection.nonce);
    }
  }

  std::size_t strangers() const {
    return static_cast<std::size_t>(
        std::count_if(connections_.begin(), connections_.end(),
                      [](const auto& each) { return !each.second.known; }));
  }

  // Disconnects the oldest connection in its handshake, from the host that has most of them: a host
  // that floods the server does not displace ranks on other hosts. False if there is none.
  bool drop_stranger() {
    std::map<std::string_view, int> counts;
    for (const auto& [id, connection] : connections_)
      if (!connection.known) ++counts[connection.source];
    const auto most = std::max_element(
        counts.begin(), counts.end(),
        [](const auto& one, const auto& other) { return one.second < other.second; });
    if (most == counts.end()) return false;
    connections_.erase(std::find_if(
        connections_.begin(), connections_.end(),
        [&](const auto& each) { return !each.second.known && each.second.source == most->first; }));
    return true;
  }

  // The limit of connections in their handshake. All ranks may connect at the same moment.
  std::size_t max_strangers() const { return 64 + 2 * static_cast<std::size_t>(options_.size); }

  const TcpServerOptions options_;
  Socket listener_, wake_;
  std::map<int, ClientConnection> connections_;  // in the order of their arrival
  int next_id_ = 0;
  std::optional<Coordinator> coordinator_;  // of the current job
  int job_ = 0;                             // its number
  std::optional<Clock::time_point> next_job_at_;
  std::vector<pollfd> polled_;
  std::vector<char> read_buffer_;
  std::atomic<bool> stopping_ = false;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool deserted_ = true;
  FirstJobState first_job_;
  std::string broken_;  // why the server ended without a request
  std::optional<Clock::time_point> last_word_until_;
  std::vector<int> ended_;  // ranks whose processes have ended
  std::thread thread_;
};

TcpServer::TcpServer(TcpServerOptions options)
    : loop_(std::make_unique<Loop>(std::move(options))) {}

TcpServer::~TcpServer() = default;

std::uint16_t TcpServer::port() const { return loop_->port(); }

void TcpServer::wait_for_first_job(const TimeLimit& for_joining) const {
  loop_->wait_for_first_job(for_joining);
}

void TcpServer::rank_ended(int rank) { loop_->rank_ended(rank); }

void TcpServer::report_failed_start(std::chrono::milliseconds limit) {
  loop_->report_failed_start(limit);
}

bool TcpServer::wait_until_deserted(Clock::time_point deadline) const {
  return loop_->wait_until_deserted(deadline);
}

}  // namespace tandem
