// The state machine of the rendezvous server: the store, the membership, and failures. Connections
// are numbers here; the sockets are in TcpServer.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "comm/rendezvous/key_values.h"
#include "comm/rendezvous/wire.h"

namespace tandem {

// A process that hosts a job without being one of its ranks.
struct OutsideHost {
  std::int64_t pid = 0;
  std::string name;
};

struct CoordinatorOptions {
  int size = 1;                          // number of ranks. REQUIRES: >= 1
  int job = 0;                           // the job's number, among successive jobs of the server
  std::optional<OutsideHost> outside{};  // not given: rank 0 hosts the job
};

// Not thread-safe: for the server's thread.
class Coordinator {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  // May be called for a connection that has been closed.
  using Send = std::function<void(int connection, const WireMessage&)>;

  Coordinator(CoordinatorOptions options, Send send);

  // Returns false if the message is invalid and the connection must be closed.
  bool handle(int connection, const WireMessage& message, TimePoint now);
  // The connection was closed. If its rank has not said goodbye, it counts as dead.
  void dropped(int connection, const std::string& reason);
  // Checks for ranks whose heartbeats are overdue.
  void tick(TimePoint now);
  // The process of a rank has ended. If the rank has not joined, that is a failure for those that
  // wait for it.
  void ended(int rank);
  // The server shuts down: tells the remaining ranks that this is not a crash.
  void close();
  // Whether some ranks have not joined yet.
  bool assembling() const { return !missing_.empty(); }
  // A kAlive message with the ranks that have not joined; later, the first rank that has left.
  WireMessage alive() const;
  // Whether every rank that has joined has left.
  bool deserted() const;
  // A process was refused because it does not know the secret. It may not belong to the job, which
  // continues; but errors about missing ranks mention it.
  void refused(const std::string& address);
  // Aborts the job for `reason`, a failure of its host, unless it has failed already.
  void abort(const std::string& reason);
  // Whether the job failed before all ranks had joined, and some of them have not been informed.
  bool reports_failed_start() const { return failure_ && assembling(); }
  // The first failure of a finished job; empty if a rank has left it in good order.
  std::string failure() const;

 private:
  enum class State { kMissing, kPresent, kLeft, kFailed };
  struct RankRecord {
    State state = State::kMissing;
    int connection = -1;
    std::string host;
    std::int64_t pid = 0;
    TimePoint heard;
    std::chrono::milliseconds silence{};  // until it counts as dead
    bool informed = false;                // of a failure
  };

  bool handle_store(int connection, const WireMessage& message);
  void answer_waiting(const std::string& key);
  void forget_waiting(int connection);
  bool join(int connection, const WireMessage& message, TimePoint now);
  bool handle_member(int rank, const WireMessage& message);
  void start();
  // Informs every rank, present or joining later, of one failure. If all ranks fail in turn,
  // informing all of each failure would take a quadratic number of messages.
  void announce_failure(int rank, bool aborted, const std::string& reason);
  void announce(WireMessage message);
  std::string describe(int rank) const;
  int host() const { return options_.outside ? kOutside : 0; }

  static constexpr int kOutside = -1;  // in place of a rank

  const CoordinatorOptions options_;
  Send send_;
  KeyValues values_;
  std::unordered_map<std::string, std::vector<int>> waiting_;  // key -> connections
  std::unordered_map<int, std::string> waits_for_;             // connection -> key
  std::vector<RankRecord> members_;
  std::unordered_map<int, int> rank_of_;  // connection -> rank
  std::set<int> missing_;                 // ranks that have not joined
  std::optional<WireMessage> failure_;    // the first one
  int left_ = -1;                         // the first rank to leave
  int refused_ = 0;                       // number of processes without the secret
  std::string refused_at_;                // the address of the first
};

}  // namespace tandem
