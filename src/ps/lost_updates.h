// Which acknowledged updates the parameter servers have lost, as the chief knows it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "ps/proto/server_calls.pb.h"

namespace tandem::ps {

// The updates of a call on one server.
struct AppliedUpdates {
  std::size_t server = 0;
  proto::ServerLife life;
  std::vector<std::uint64_t> numbers;  // ParameterStore::Applied; 0: not known, and not lost
};

// The numbers of updates, as ranges: nearly all follow each other, so that memory grows with the
// calls that have not returned, and not with the updates.
class UpdateNumbers {
 public:
  static constexpr std::size_t kRanges = 1 << 14;  // at most; 1 MiB

  // If there are too many ranges, half of them are joined with their neighbours, where the fewest
  // numbers are missing. These are in it from then on.
  void insert(std::uint64_t number);
  // These two return how many numbers they have removed.
  std::int64_t erase_above(std::uint64_t number);
  std::int64_t erase_up_to(std::uint64_t number);
  std::size_t num_ranges() const { return ranges_.size(); }

 private:
  void join_nearest();

  std::map<std::uint64_t, std::uint64_t> ranges_;  // first -> last, with gaps between them
};

// Compares the numbers of the updates of calls that have returned with those with which their
// servers continued after restarts. Each loss is logged. Thread-safe.
//
// Numbers are kept until the server has them in its older snapshot. A server that writes none,
// because its disk is full, say, may have so many calls that never return that the counts are upper
// bounds.
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
    UpdateNumbers updates;                // that the next restart may lose
    std::int64_t lost = 0;

    bool has(std::size_t restarts_before, std::uint64_t number) const;
  };

  static void learn(Server& server, const proto::ServerLife& life);
  static void add(Server& server, std::int64_t lost);

  mutable std::mutex mutex_;  // guards the following
  std::vector<Server> servers_;
};

}  // namespace tandem::ps
