#include "comm/gloo/module/connected_context.h"

#include <fcntl.h>
#include <gloo/transport/tcp/pair.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "core/status.h"

namespace tandem::gloo_backend {
namespace {

namespace tcp = gloo::transport::tcp;

constexpr std::chrono::microseconds kPairIsTaken(50);

// The socket of a descriptor, which other code of the process may have closed or replaced.
std::optional<ino_t> socket_of(int descriptor) {
  struct stat status = {};
  if (fstat(descriptor, &status) != 0 || !S_ISSOCK(status.st_mode)) return std::nullopt;
  return status.st_ino;
}

// Gloo creates each pair with a listening socket, to which an unknown process might connect before
// the peer. This class replaces it at once by a socket that is connected to the peer.
class ConnectedPair final : public tcp::Pair {
 public:
  ConnectedPair(tcp::Context* context, GlooDevice& device, int rank,
                std::chrono::milliseconds time_limit, const std::function<void()>& on_event)
      : Pair(context, &device, rank, time_limit), events_(device), on_event_(on_event) {}
  // While the object has this class.
  ~ConnectedPair() override {
    if (settled_) return;
    close();
    events_.pass();
  }
  // It is closed, and the device's thread handles no event of it any more.
  void settle() { settled_ = true; }

  void close() override {
    {
      const std::lock_guard lock(m_);
      if (state_ == CONNECTED && !owns_socket()) return changeState(CLOSED);
    }
    Pair::close();
  }

  // False if an unknown process connected first: the pair may have read from it and is unusable.
  // If the peer has closed the connection, what uses the pair throws.
  bool connect_by(const Socket& socket) {
    const std::lock_guard lock(m_);
    if (state_ != LISTENING) return false;
    // Closing its last descriptor also ends Gloo's polling of the listening socket.
    if (dup3(socket.descriptor(), fd_, O_CLOEXEC) < 0)
      fail<UnavailableError>("[gloo] dup3: {}", std::strerror(errno));
    socket_ = socket_of(fd_);
    try {
      handleConnected();
    } catch (const std::exception& error) {
      // The peer left again, and the socket has no address any more. Gloo would expect that its
      // loop polls the socket, and end the process.
      ::close(fd_);
      fd_ = -1;
      signalException(std::make_exception_ptr(gloo::IoException(error.what())));
    }
    return true;
  }

  // If another thread holds the pair, Gloo's loop retries at once. A sender on the same core would
  // then have to wait until the loop has used up its time slice.
  void handleEvents(int events) override {
    {
      const std::unique_lock lock(m_, std::try_to_lock);
      if (!lock) return std::this_thread::sleep_for(kPairIsTaken);
      if (state_ == CLOSED) return;
    }
    try {
      Pair::handleEvents(events);
    } catch (const std::exception& error) {  // else nothing on the device's thread catches it
      const std::lock_guard lock(m_);
      if (state_ != CLOSED)
        signalException(std::make_exception_ptr(gloo::IoException(error.what())));
    }
    on_event_();
  }

  bool has_unreceived() {
    const std::lock_guard lock(m_);
    int bytes = 0;
    return owns_socket() && ioctl(fd_, SIOCOUTQ, &bytes) == 0 && bytes > 0;
  }
  bool is_lost() {
    const std::lock_guard lock(m_);
    return lost_ || (state_ == CONNECTED && !owns_socket());
  }

 private:
  bool owns_socket() const { return state_ == CONNECTED && socket_ && socket_of(fd_) == socket_; }

  // Gloo would end the process if the socket or the device's descriptor is not its own any more.
  void changeState(state next) noexcept override {
    if (next != CLOSED || state_ != CONNECTED) return Pair::changeState(next);
    if (owns_socket()) {
      events_.forget(fd_);
      ::close(fd_);
    } else {
      lost_ = true;
    }
    fd_ = -1;
    state_ = CLOSED;
    cv_.notify_all();
  }

  GlooDevice& events_;
  const std::function<void()>& on_event_;  // the context's
  std::optional<ino_t> socket_;
  bool lost_ = false, settled_ = false;
};

ConnectedPair* as_connected(const std::unique_ptr<gloo::transport::Pair>& pair) {
  return static_cast<ConnectedPair*>(pair.get());
}

}  // namespace

// The device's thread may still handle events of connections that it, or close(), has closed.
ConnectedContext::~ConnectedContext() {
  close();
  events_->pass();
  for (const auto& pair : pairs_)
    if (pair) as_connected(pair)->settle();
  pairs_.clear();
}

void ConnectedContext::connect(int peer, const Socket& socket) {
  std::unique_ptr<ConnectedPair> pair;
  do pair = std::make_unique<ConnectedPair>(this, *events_, peer, getTimeout(), on_event_);
  while (!pair->connect_by(socket));
  pairs_[static_cast<std::size_t>(peer)] = std::move(pair);
}

bool ConnectedContext::has_unreceived() const {
  return std::any_of(pairs_.begin(), pairs_.end(),
                     [](const auto& pair) { return pair && as_connected(pair)->has_unreceived(); });
}

bool ConnectedContext::lost_by_this_process() const {
  return !events_->hears() || std::any_of(pairs_.begin(), pairs_.end(), [](const auto& pair) {
    return pair && as_connected(pair)->is_lost();
  });
}

void ConnectedContext::close() noexcept {
  for (const auto& pair : pairs_)
    if (pair) pair->close();
}

std::shared_ptr<ConnectedContext> make_connected_context(const std::shared_ptr<GlooDevice>& device,
                                                         int rank, std::vector<Socket> sockets,
                                                         std::chrono::milliseconds time_limit,
                                                         std::function<void()> on_event) {
  const int size = static_cast<int>(sockets.size());
  auto context = std::make_shared<ConnectedContext>(device, rank, size, std::move(on_event));
  context->setTimeout(time_limit);
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    try {
      context->connect(peer, sockets[static_cast<std::size_t>(peer)]);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      fail<ResourceExhaustedError>("[gloo] Gloo cannot take the connection to rank {} of {}: {}",
                                   peer, size, error.what());
    }
    sockets[static_cast<std::size_t>(peer)].close();
  }
  return context;
}

}  // namespace tandem::gloo_backend
