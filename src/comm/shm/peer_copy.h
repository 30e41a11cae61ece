// Writing what a peer will read.
#pragma once

#include <cstddef>

namespace tandem::shm {

// Copies into memory that another core has read before. A store has to take the line away from that
// core first, which costs a few nanoseconds where the two share a cache and ten times as many where
// they do not; stores past the caches do without, but the reader then waits for memory. Which is
// better depends on where the system runs the two, so this measures, now and then.
class PeerCopy {
 public:
  void copy(void* to, const void* from, std::size_t bytes);
  // A flag that is raised after this tells of what was copied before.
  void finish();

 private:
  void probe(std::byte*& to, const std::byte*& from, std::size_t& bytes);

  bool past_caches_ = false;
  bool pending_ = false;         // stores that a later one may overtake
  std::size_t until_probe_ = 0;  // bytes
};

}  // namespace tandem::shm
