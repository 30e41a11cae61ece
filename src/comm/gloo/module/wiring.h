// How the ranks of a group connect, before Gloo has a part in it: each rank listens at one door,
// every pair of ranks gets a socket, and who connects has to know the door's key.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "comm/rendezvous/socket.h"

namespace tandem::gloo_backend {

// Where a rank listens, and the secret that those who connect to it have to know. The store of the
// job tells it to the ranks alone.
struct Door {
  Endpoint endpoint;
  std::string key;  // hexadecimal
};

// The connection to a rank of the group ended before all were connected.
struct Disconnected {
  int rank;
  std::string reason;
};

// A rank connects to all lower ranks and accepts connections of all higher ones; then the ranks
// exchange a message that they have finished. Connections of strangers are closed; a rank whose
// connection they displaced connects again. For one thread; each call blocks for its limit at most.
class Wiring {
 public:
  // `doors` has one for each rank. REQUIRES: `listener` is the one of doors[rank].
  Wiring(Socket listener, std::vector<Door> doors, int rank);

  // Gets on for about `limit`. True when every rank is connected with every other one and knows it.
  // Throws Disconnected; ResourceExhaustedError when this process may not open more sockets.
  bool get_on(std::chrono::milliseconds limit);
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

  void knock(int rank, Clock::time_point now);
  void hear(int rank);
  void hear_guest(Guest& guest);
  void accept_all(Clock::time_point now);
  void sweep(Clock::time_point now);
  // Once all are connected.
  void tell_through();
  // Appends the bytes that have arrived, up to `due` in total. False when the peer has gone.
  static bool receive(const Socket& socket, std::string& received, std::size_t due);

  Socket listener_;
  const std::vector<Door> doors_;
  const int rank_;
  std::vector<Peer> peers_;
  std::map<int, Guest> guests_;  // in the order of their arrival
  int next_guest_ = 0;
  bool through_ = false;  // and the others have been told
};

}  // namespace tandem::gloo_backend
