// Connects the ranks of a group before Gloo is involved. Each rank listens on one address, each
// pair of ranks gets one socket, and a client must know the listener's key. A rank finds its
// parent's address in the store, and learns the others from its neighbours in a tree.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/rendezvous/socket.h"
#include "comm/rendezvous/tree_exchange.h"

namespace tandem::gloo_backend {

// The address that a rank listens on, and the secret key that clients must know. Only the job's
// ranks can read it from the store.
struct ListenAddress {
  std::string host = "an unknown host";  // host name
  std::int64_t pid = 0;
  Endpoint endpoint;
  std::string key;  // hexadecimal
};
std::string to_string(const ListenAddress& address);
// Throws DataLossError.
ListenAddress parse_listen_address(const std::string& text);

// The connection to a rank of the group ended before all were connected.
struct Disconnected {
  int rank;
  std::string reason;
};

// A rank connects to its parent in the tree, and all addresses are exchanged over the tree. Then it
// connects to all lower ranks and accepts connections from all higher ones. Finally the ranks tell
// each other that they have finished. Connections of unknown processes are closed; a rank that was
// closed for them reconnects. One thread at a time; each call blocks at most for its limit.
class Wiring {
 public:
  // `parent`: the address of TreeExchange::parent_of(rank). REQUIRES: `listener` is that of `mine`.
  Wiring(Socket listener, const ListenAddress& mine, int rank, int size,
         const std::optional<ListenAddress>& parent);

  // Makes progress for about `limit`. Returns true when all pairs of ranks are connected and this
  // rank knows it. Throws Disconnected; ResourceExhaustedError if this process may not open more
  // sockets; DataLossError if a rank sends no addresses.
  bool advance(std::chrono::milliseconds limit);
  // By rank, as far as they are known.
  const std::vector<ListenAddress>& addresses() const { return addresses_; }
  // The ranks that have not connected, or not reported that they have finished.
  std::vector<int> missing() const;
  // By rank; this rank's is not open. REQUIRES: advance() has returned true.
  std::vector<Socket> take_sockets();

 private:
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

  struct Peer {
    Socket socket;
    enum class Stage {
      kWaiting,
      kConnecting,
      kGreeting,
      kVerdict,
      kConnected,
      kFinished
    } stage = Stage::kWaiting;
    std::string nonce, greeting, received;
    Clock::time_point since, retry_at;
    bool connected() const { return stage >= Stage::kConnected; }
  };
  // An accepted connection whose rank is not known yet.
  struct IncomingConnection {
    Socket socket;
    std::string nonce, received;
    bool known = false;  // it has proved that it knows the key
    Clock::time_point since;
  };

  bool knows(int rank) const {
    return addresses_[static_cast<std::size_t>(rank)].endpoint.port != 0;
  }
  bool finished() const { return finished_ && unsent_.empty() && missing().empty(); }
  void connect_to_lower(Clock::time_point now);
  void start_connecting_to(int rank, Clock::time_point now);
  // Waits at most `limit`, and handles the sockets that are ready.
  void poll_sockets(std::chrono::milliseconds limit);
  void read_from(int rank);
  void read_connected(int rank);
  void read_incoming(IncomingConnection& incoming);
  // Sends the tree's message if there is one, and stores the addresses once the tree has them all.
  void forward_addresses();
  // Sends it, or keeps it until the peer is connected and its socket is writable.
  void send_to(int rank, std::string_view bytes);
  void flush_all();
  void accept_all(Clock::time_point now);
  void drop_stranger();
  void close_stale(Clock::time_point now);
  // Called once all ranks are connected.
  void announce_finished();
  // Appends bytes that have arrived, up to `due` in total. False if the peer has disconnected.
  static bool receive(const Socket& socket, std::string& received, std::size_t due);

  Socket listener_;
  const std::string key_;
  const int rank_;
  TreeExchange tree_;
  std::vector<ListenAddress> addresses_;
  std::vector<Peer> peers_;
  std::map<int, std::string> unsent_;           // by rank; not empty
  std::map<int, IncomingConnection> incoming_;  // in the order of their arrival
  int next_incoming_ = 0;
  bool finished_ = false;  // and the others have been informed
};

}  // namespace tandem::gloo_backend
