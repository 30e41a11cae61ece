#include "rpc/unix_socket/unix_server.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <utility>

#include "core/log.h"
#include "core/status.h"

namespace tandem::rpc {

class UnixServer::Listener final : public Source {
 public:
  Listener(std::shared_ptr<ServerCalls> server, Socket socket)
      : server_(std::move(server)), socket_(std::move(socket)) {}

  int descriptor() const override { return socket_.descriptor(); }

  void ready() override {
    const std::lock_guard lock(mutex_);
    while (!closed_) {
      Socket socket = accept_from_own_user(socket_);
      if (socket.is_open()) {
        add(std::move(socket));
        continue;
      }
      if (errno == ECONNABORTED || errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return server_->threads.arm(*this, false);
      logging::warn("[rpc] further tasks of this host call over TCP: {}", std::strerror(errno));
      end();  // it would be ready again at once
    }
  }

  // Accepts nothing from now on.
  void close() {
    const std::lock_guard lock(mutex_);
    end();
  }

  void close_connections() {
    const std::lock_guard lock(mutex_);
    for (const auto& each : connections_)
      if (const auto connection = each.lock()) connection->close();
    connections_.clear();
  }

 private:
  // Connections that have not proved that they belong to the job.
  static constexpr std::ptrdiff_t kMostStrangers = 64;

  // Those who have not been accepted see the end of their connections. REQUIRES: mutex_ is held.
  void end() {
    if (std::exchange(closed_, true)) return;
    server_->threads.forget(*this);
    socket_.close();
  }

  void add(Socket socket) {
    std::erase_if(connections_, [](const auto& each) { return each.expired(); });
    const auto is_stranger = [](const auto& each) {
      const auto connection = each.lock();
      return connection && !connection->greeted();
    };
    if (std::count_if(connections_.begin(), connections_.end(), is_stranger) >= kMostStrangers) {
      const auto oldest = std::find_if(connections_.begin(), connections_.end(), is_stranger);
      if (const auto connection = oldest->lock()) connection->close();
    }
    auto connection = std::make_shared<ServerConnection>(server_, std::move(socket));
    connections_.push_back(connection);
    try {
      server_->threads.watch(std::move(connection));
    } catch (const ResourceExhaustedError& error) {
      logging::warn("{}", error.what());
    }
  }

  const std::shared_ptr<ServerCalls> server_;
  std::mutex mutex_;  // guards the following
  Socket socket_;
  bool closed_ = false;
  std::vector<std::weak_ptr<ServerConnection>> connections_;
};

UnixServer::UnixServer(Service& service, HandlerThreads& threads)
    : calls_(std::make_shared<ServerCalls>(service, threads)),
      address_(UnixAddress::make(service.options.calls_per_connection)),
      listener_(std::make_shared<Listener>(calls_, listen_on(address_))) {
  threads.watch(listener_);
}

UnixServer::~UnixServer() {
  begin_to_stop(Clock::now());
  wait();
  listener_->close_connections();
}

void UnixServer::begin_to_stop(Clock::time_point end) {
  calls_->stop_at(end);
  listener_->close();
}

void UnixServer::wait() { calls_->wait(); }

}  // namespace tandem::rpc
