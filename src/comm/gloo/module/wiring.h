// How the ranks of a group connect, before Gloo has a part in it: each rank listens at one door,
// every pair of ranks gets a socket, and who connects has to know the door's key. A rank finds its
// parent's door in the store, and learns the others from its neighbours in a tree.
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

// Where a rank listens, and the secret that those who connect to it have to know. The store of the
// job and the ranks tell it to the ranks alone.
struct Door {
  std::string host = "an unknown host";  // its name
  std::int64_t pid = 0;
  Endpoint endpoint;
  std::string key;  // hexadecimal
};
std::string to_text(const Door& door);
// Throws DataLossError.
Door parse_door(const std::string& text);

// The connection to a rank of the group ended before all were connected.
struct Disconnected {
  int rank;
  std::string reason;
};

// A rank connects to its parent in the tree. Along the tree all ranks learn all doors. Then a rank
// connects to all lower ranks and accepts connections of all higher ones, and the ranks exchange a
// message that they have finished. Connections of strangers are closed; a rank whose
// connection they displaced connects again. For one thread; each call blocks for its limit at most.
class Wiring {
 public:
  // `parent` is the door of TreeExchange::parent_of(rank). REQUIRES: `listener` is that of `mine`.
  Wiring(Socket listener, const Door& mine, int rank, int size, const std::optional<Door>& parent);

  // Gets on for about `limit`. True when every rank is connected with every other one and knows it.
  // Throws Disconnected; ResourceExhaustedError when this process may not open more sockets;
  // DataLossError when a rank sends no doors.
  bool get_on(std::chrono::milliseconds limit);
  // By rank, as far as they are known.
  const std::vector<Door>& doors() const { return doors_; }
  // Ranks that have not connected, or not said that they are through.
  std::vector<int> missing() const;
  // By rank; that of this rank is not open. REQUIRES: get_on() has returned true.
  std::vector<Socket> take_sockets();

 private:
  struct Peer {
    Socket socket;
    enum class Stage {
      kWaiting,
      kConnecting,
      kGreeting,
      kVerdict,
      kConnected,
      kThrough
    } stage = Stage::kWaiting;
    std::string nonce, greeting, received;
    Clock::time_point since, retry_at;
    bool connected() const { return stage >= Stage::kConnected; }
  };
  // At this rank's door.
  struct Guest {
    Socket socket;
    std::string nonce, received;
    bool known = false;  // it has proved that it knows the key
    Clock::time_point since;
  };

  bool knows(int rank) const { return doors_[static_cast<std::size_t>(rank)].endpoint.port != 0; }
  bool finished() const { return through_ && unsent_.empty() && missing().empty(); }
  void knock_at_lower(Clock::time_point now);
  void knock(int rank, Clock::time_point now);
  // Waits for `limit` at most, and does what has come due.
  void wait_and_hear(std::chrono::milliseconds limit);
  void hear(int rank);
  void hear_connected(int rank);
  void hear_guest(Guest& guest);
  // Sends the tree's message, if one is due, and learns the doors once the tree has them all.
  void pass_on_doors();
  // Sends it, or keeps it until the peer is connected and takes it.
  void say(int rank, std::string_view bytes);
  void flush_all();
  void accept_all(Clock::time_point now);
  void sweep(Clock::time_point now);
  // Once all are connected.
  void tell_through();
  // Appends the bytes that have arrived, up to `due` in total. False when the peer has gone.
  static bool receive(const Socket& socket, std::string& received, std::size_t due);

  Socket listener_;
  const std::string key_;
  const int rank_;
  TreeExchange tree_;
  std::vector<Door> doors_;
  std::vector<Peer> peers_;
  std::map<int, std::string> unsent_;  // by rank; not empty
  std::map<int, Guest> guests_;        // in the order of their arrival
  int next_guest_ = 0;
  bool through_ = false;  // and the others have been told
};

}  // namespace tandem::gloo_backend
