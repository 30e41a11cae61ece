#include "comm/shm/peer_copy.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cstring>

namespace tandem::shm {
namespace {

using Clock = std::chrono::steady_clock;

// Each period begins with one trial of each kind of store. Only the end of a trial is timed: before
// that, the ring must go round until the cache lines are in the state that this kind produces.
constexpr std::uint64_t kPeriod = 4096, kTrial = 96, kTimed = 32;  // pieces
constexpr std::int64_t kLarge = 16 << 10, kLeastTimed = 2 << 10;   // bytes per piece
constexpr std::size_t kLeast = 1024;  // minimum bytes of a copy for which the choice matters

#ifdef __SSE2__
void copy_past_caches(std::byte* to, const std::byte* from, std::size_t bytes) {
  const std::size_t head = std::min(bytes, (64 - reinterpret_cast<std::uintptr_t>(to) % 64) % 64);
  std::memcpy(to, from, head);
  std::size_t at = head;
  for (; at + 64 <= bytes; at += 64) {
    const auto* source = reinterpret_cast<const __m128i*>(from + at);
    auto* target = reinterpret_cast<__m128i*>(to + at);
    for (int i = 0; i < 4; ++i) _mm_stream_si128(target + i, _mm_loadu_si128(source + i));
  }
  std::memcpy(to + at, from + at, bytes - at);
}
// Makes these copies visible before any later write.
void order_copies() { _mm_sfence(); }
#else  // processors for which there is only one kind of store
void copy_past_caches(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}
void order_copies() {}
#endif

}  // namespace

int PeerCopy::trial_of(std::uint64_t piece) {
  const std::uint64_t place = piece % kPeriod / kTrial;
  return place < 2 ? static_cast<int>(place) : -1;
}

PeerCopy::Choice& PeerCopy::choice_for(std::int64_t bytes) {
  return bytes < kLarge ? small_ : large_;
}

std::uint64_t PeerCopy::expect(std::int64_t bytes, std::uint64_t pieces) {
  Choice& choice = choice_for(bytes);
  choice.pieces += pieces;
  return choice.pieces - pieces;
}

PeerCopy::TimedWork::TimedWork(PeerCopy& copy, std::uint64_t piece, std::int64_t bytes)
    : copy_(copy), bytes_(bytes), trial_(trial_of(piece)) {
  Choice& choice = copy.choice_for(bytes);
  Cost(&costs)[2] = choice.costs;
  if (trial_ < 0 && costs[0].bytes > 0 && costs[1].bytes > 0) {
    choice.past_caches =
        costs[1].nanoseconds / costs[1].bytes < costs[0].nanoseconds / costs[0].bytes;
    costs[0] = costs[1] = {};
  }
  copy.past_caches_ = trial_ < 0 ? choice.past_caches : trial_ == 1;
  if (bytes < kLeastTimed || piece % kPeriod % kTrial < kTrial - kTimed) trial_ = -1;
  if (trial_ >= 0) begin_ = Clock::now();
}

PeerCopy::TimedWork::~TimedWork() {
  if (copy_.pending_) order_copies();  // a flag that is raised after this covers all copies
  copy_.pending_ = false;
  if (trial_ < 0) return;
  Cost& cost = copy_.choice_for(bytes_).costs[trial_];
  cost.nanoseconds += std::chrono::duration<double, std::nano>(Clock::now() - begin_).count();
  cost.bytes += static_cast<double>(bytes_);
}

void PeerCopy::copy(void* to, const void* from, std::size_t bytes) {
  if (past_caches_ && bytes >= kLeast) {
    copy_past_caches(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes);
    pending_ = true;
  } else if (bytes > 0) {
    std::memcpy(to, from, bytes);
  }
}

}  // namespace tandem::shm
