// Writing what a peer will read.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace tandem::shm {

// Copies into memory that another core has read before. A store has to take the line away from that
// core first, which costs little where the two share a cache and much where they do not; stores
// past the caches do without, but the reader then waits for memory. Which is better depends on
// where the system runs the two. So this tries both now and then, on pieces of the same numbers on
// all ranks, and stays with the one that took the less time: of this rank's own work, not of its
// waits.
class PeerCopy {
 public:
  // Work on a piece of `bytes` bytes, timed while this lives: copies inside it are of the kind that
  // is the piece's turn.
  class Work {
   public:
    Work(PeerCopy& copy, std::uint64_t piece, std::int64_t bytes);
    ~Work();
    Work(const Work&) = delete;
    Work& operator=(const Work&) = delete;

   private:
    PeerCopy& copy_;
    std::int64_t bytes_;
    int trial_;  // which is timed; -1: none
    std::chrono::steady_clock::time_point begin_;
  };

  void copy(void* to, const void* from, std::size_t bytes);
  // `pieces` of `bytes` bytes each are to come: the number of the first among those of their size,
  // the same on all ranks.
  std::uint64_t expect(std::int64_t bytes, std::uint64_t pieces);

 private:
  // Which trial a piece belongs to: 0 ordinary stores, 1 past the caches, -1 none.
  static int trial_of(std::uint64_t piece);

  struct Cost {
    double nanoseconds = 0, bytes = 0;
  };
  // Pieces of about one size.
  struct Choice {
    Cost costs[2];  // of the trials
    bool past_caches = false;
    std::uint64_t pieces = 0;  // expected so far
  };
  Choice& choice_for(std::int64_t bytes);

  Choice small_, large_;
  bool past_caches_ = false;  // of the piece at hand
  bool pending_ = false;      // stores that a later one may overtake
};

}  // namespace tandem::shm
