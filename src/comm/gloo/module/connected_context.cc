#include "comm/gloo/module/connected_context.h"

#include <fcntl.h>
#include <gloo/transport/tcp/pair.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "core/status.h"

namespace tandem::gloo_backend {
namespace {

namespace tcp = gloo::transport::tcp;

constexpr std::chrono::microseconds kPairIsTaken(50);

// Gloo gives each pair a listening socket when it is made, to which a stranger might connect before
// the peer does. This pair's is replaced at once by a socket that leads to the peer.
class ConnectedPair final : public tcp::Pair {
 public:
  ConnectedPair(tcp::Context* context, tcp::Device* device, int rank,
                std::chrono::milliseconds time_limit, const std::function<void()>& on_event)
      : Pair(context, device, rank, time_limit), on_event_(on_event) {}
  // While there is a pair of this class to call: the device's thread may be about to.
  ~ConnectedPair() override { close(); }

  // False where a stranger was faster: this pair may have read from it, and is of no use.
  bool connect_by(const Socket& socket) {
    const std::lock_guard lock(m_);
    if (state_ != LISTENING) return false;
    // Gloo's thread watches the listening socket no more: its last descriptor has gone.
    if (dup3(socket.descriptor(), fd_, O_CLOEXEC) < 0)
      fail<UnavailableError>("[gloo] dup3: {}", std::strerror(errno));
    handleConnected();
    return true;
  }

  // Where another thread has the pair, Gloo has its loop call this again at once. A sender that
  // shares the core with the loop would wait for it to use up its time slice.
  void handleEvents(int events) override {
    if (!m_.try_lock()) return std::this_thread::sleep_for(kPairIsTaken);
    m_.unlock();
    Pair::handleEvents(events);
    on_event_();
  }

 private:
  const std::function<void()>& on_event_;  // the context's
};

}  // namespace

void ConnectedContext::connect(int peer, const Socket& socket) {
  std::unique_ptr<ConnectedPair> pair;
  do pair = std::make_unique<ConnectedPair>(this, device_.get(), peer, getTimeout(), on_event_);
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
