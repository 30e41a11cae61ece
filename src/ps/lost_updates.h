// Which acknowledged updates the parameter servers have lost, as the chief knows it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ps/proto/server_calls.pb.h"

namespace tandem::ps {

// The updates of a call on one server.
struct AppliedUpdates {
  std::size_t server = 0;
  proto::ServerLife life;
  std::vector<std::uint64_t> numbers;  // ParameterStore::Applied; 0: not known, and not lost
};

// Compares the numbers of the updates of calls that have returned with those with which their
// servers continued after restarts. Each loss is logged. Thread-safe.
class LostUpdates {
 public:
  // `servers`: their names, by index.
  explicit LostUpdates(std::vector<std::string> servers);

  // A call has returned, or a server has applied its part of a step (Decisions). Servers that do
  // not exist are ignored.
  void returned(const AppliedUpdates& updates);
  void heard_of(std::size_t server, const proto::ServerLife& life);
  std::vector<std::int64_t> counts() const;  // by server

 private:
  struct Server {
    std::string name;
    std::vector<std::uint64_t> restarts;  // ServerLife
    std::uint64_t kept = 0;               // the same
    // Those that may still be lost: the number of restarts before it, and its number.
    std::vector<std::pair<std::size_t, std::uint64_t>> updates;
    std::int64_t lost = 0;

    bool has(std::size_t restarts_before, std::uint64_t number) const;
  };

  static void learn(Server& server, const proto::ServerLife& life);
  static void add(Server& server, std::int64_t lost);

  mutable std::mutex mutex_;  // guards the following
  std::vector<Server> servers_;
};

}  // namespace tandem::ps
