// What the rendezvous server does with messages: the store, and who is in the job and alive. Knows
// connections by number and no sockets.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "comm/membership.h"
#include "comm/rendezvous/key_values.h"
#include "comm/rendezvous/wire.h"

namespace tandem {

// A process that hosts a job and is none of its ranks.
struct OutsideHost {
  std::int64_t pid = 0;
  std::string name;
};

struct CoordinatorOptions {
  int size = 1;                          // of the job. REQUIRES: >= 1
  int job = 0;                           // its number, of those that the server has in turn
  std::optional<OutsideHost> outside{};  // not given: rank 0 hosts the job
};

// Not thread-safe: belongs to the server's thread.
class Coordinator {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  // May be called for a connection that has gone.
  using Send = std::function<void(int connection, const Message&)>;

  Coordinator(CoordinatorOptions options, Send send);

  // False: the connection is to be dropped, it said what no client says.
  bool handle(int connection, const Message& message, TimePoint now);
  // The connection has gone. A rank that goes without goodbye is dead.
  void dropped(int connection, const std::string& reason);
  // Looks for ranks that are silent.
  void tick(TimePoint now);
  // The server ends: the ranks that are still there learn that it was no crash.
  void close();
  // Not all ranks have joined yet.
  bool assembling() const { return !missing_.empty(); }
  // kAlive: which ranks have not.
  Message alive() const;
  // No rank is there that has joined and not left.
  bool deserted() const;
  // A process was refused because it does not know the secret. Its rank is unknown, and it may be
  // a stranger: the job goes on, but the errors of ranks that wait in vain mention it.
  void refused(const std::string& address);
  // The job ends, unless it has failed before: for `reason`, which is its host's.
  void give_up(const std::string& reason);
  // Before all ranks were there the job has failed, and not all have come to hear it.
  bool has_last_word() const { return failure_ && assembling(); }
  // Of a job that is over: its first failure, unless a rank has left it in good order.
  std::string failure() const;

 private:
  enum class State { kMissing, kPresent, kLeft, kFailed };
  struct Member {
    State state = State::kMissing;
    int connection = -1;
    std::string host;
    std::int64_t pid = 0;
    TimePoint heard;
    std::chrono::milliseconds silence{};  // after which it is dead
    Role role = Role::kWorker;
    bool told = false;  // of a failure, since it has last gone on
  };

  bool handle_store(int connection, const Message& message);
  void answer_waiting(const std::string& key);
  void forget_waiting(int connection);
  bool join(int connection, const Message& message, TimePoint now);
  bool handle_member(int rank, const Message& message);
  void start();
  // Tells every rank that is there, and those that come later. A rank that cannot go on is told no
  // more until it does: where all ranks fail one after the other, telling all of each would take
  // messages by the square of the ranks.
  void announce_failure(int rank, bool gave_up, const std::string& reason);
  // To those that cannot go on without a process of this role; to all where there is none.
  void announce(Message message, std::optional<Role> role);
  Message workers() const;
  std::string describe(int rank) const;
  int host() const { return options_.outside ? kOutside : 0; }

  static constexpr int kOutside = -1;  // in place of a rank

  const CoordinatorOptions options_;
  Send send_;
  KeyValues values_;
  std::unordered_map<std::string, std::vector<int>> waiting_;  // key: connections
  std::unordered_map<int, std::string> waits_for_;             // connection: key
  std::vector<Member> members_;
  std::unordered_map<int, int> rank_of_;  // connection: rank
  std::int64_t epoch_ = 0;
  std::set<int> missing_;           // ranks that have not come
  std::optional<Message> failure_;  // the first one
  int refused_ = 0;                 // processes without the secret
  std::string refused_at_;          // where the first was
};

}  // namespace tandem
