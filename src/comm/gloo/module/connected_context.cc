#include "comm/gloo/module/connected_context.h"

#include <fcntl.h>
#include <gloo/transport/tcp/pair.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <future>
#include <thread>
#include <utility>

#include "comm/rendezvous/descriptors.h"
#include "core/status.h"

namespace tandem::gloo_backend {
namespace {

namespace tcp = gloo::transport::tcp;

constexpr std::chrono::microseconds kPairIsTaken(50);

// Gloo creates each pair with a listening socket, to which an unknown process might connect before
// the peer. This class replaces it at once by a socket that is connected to the peer.
class ConnectedPair final : public tcp::Pair {
 public:
  ConnectedPair(tcp::Context* context, tcp::Device* device, int rank,
                std::chrono::milliseconds time_limit, const std::function<void()>& on_event,
                LoopTick& tick)
      : Pair(context, device, rank, time_limit), on_event_(on_event), tick_(tick) {}
  // While the object has this class. close() waits for the device's thread only if that has not
  // closed the connection itself.
  ~ConnectedPair() override {
    close();
    tick_.wait();
  }

  // False if an unknown process connected first: the pair may have read from it and is unusable.
  // If the peer has closed the connection, what uses the pair throws.
  bool connect_by(const Socket& socket) {
    const std::lock_guard lock(m_);
    if (state_ != LISTENING) return false;
    // Closing its last descriptor also ends Gloo's polling of the listening socket.
    if (dup3(socket.descriptor(), fd_, O_CLOEXEC) < 0)
      fail<UnavailableError>("[gloo] dup3: {}", std::strerror(errno));
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
    if (!m_.try_lock()) return std::this_thread::sleep_for(kPairIsTaken);
    m_.unlock();
    Pair::handleEvents(events);
    on_event_();
  }

 private:
  const std::function<void()>& on_event_;  // the context's, as is the tick
  LoopTick& tick_;
};

}  // namespace

LoopTick::LoopTick(tcp::Device& device)
    : device_(device), always_readable_(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!always_readable_.is_open()) fail_out_of_descriptors();
}

// The device's thread collects the events of all connections at once, of those only that have not
// been closed, and then handles them. When it handles this one, it is done with earlier ones.
void LoopTick::wait() {
  came_ = std::make_shared<std::promise<void>>();
  std::future<void> tick = came_->get_future();
  device_.registerDescriptor(always_readable_.descriptor(), EPOLLIN, this);
  tick.wait();
}

void LoopTick::handleEvents(int) {
  const auto came = came_;  // this object may be destroyed before set_value() returns
  device_.unregisterDescriptor(always_readable_.descriptor(), this);
  came->set_value();
}

ConnectedContext::~ConnectedContext() { pairs_.clear(); }

void ConnectedContext::connect(int peer, const Socket& socket) {
  std::unique_ptr<ConnectedPair> pair;
  do
    pair =
        std::make_unique<ConnectedPair>(this, device_.get(), peer, getTimeout(), on_event_, tick_);
  while (!pair->connect_by(socket));
  pairs_[static_cast<std::size_t>(peer)] = std::move(pair);
}

void ConnectedContext::close() noexcept {
  for (const auto& pair : pairs_)
    if (pair) pair->close();
}

std::shared_ptr<ConnectedContext> make_connected_context(const std::shared_ptr<tcp::Device>& device,
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
