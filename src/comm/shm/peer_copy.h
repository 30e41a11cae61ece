// Copies into memory that a peer will read.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace tandem::shm {

// Copies into memory that another core has read before. An ordinary store must first take the cache
// line from that core. That is cheap if the two share a cache and expensive otherwise. Non-temporal
// stores avoid it, but then the reader waits for memory. The better choice depends on the cores
// that the system runs the two ranks on. PeerCopy therefore measures both kinds now and then, for
// the same piece numbers on all ranks, and uses the faster one. It measures this rank's own work,
// not its waits.
class PeerCopy {
 public:
  // Times the work on a piece of `bytes` bytes during its lifetime. Copies in it use the kind of
  // store that the piece's number selects.
  class TimedWork {
   public:
    TimedWork(PeerCopy& copy, std::uint64_t piece, std::int64_t bytes);
    ~TimedWork();
    TimedWork(const TimedWork&) = delete;
    TimedWork& operator=(const TimedWork&) = delete;

   private:
    PeerCopy& copy_;
    std::int64_t bytes_;
    int trial_;  // the trial that is timed; -1: none
    std::chrono::steady_clock::time_point begin_;
  };

  void copy(void* to, const void* from, std::size_t bytes);
  // Announces `pieces` of `bytes` bytes each. Returns the number of the first among pieces of that
  // size, which is the same on all ranks.
  std::uint64_t expect(std::int64_t bytes, std::uint64_t pieces);

 private:
  // The trial that a piece belongs to: 0 ordinary stores, 1 non-temporal stores, -1 none.
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
  bool past_caches_ = false;  // of the current piece
  bool pending_ = false;      // there are non-temporal stores without a fence after them
};

}  // namespace tandem::shm
