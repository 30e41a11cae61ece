// An announcement: the call that a rank sends to its peers before the data, if they share no
// memory.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>

#include "comm/process/backend.h"

namespace tandem {

struct Announcement {
  std::uint64_t sequence = 0;
  Signature signature;
  std::int64_t step = -1;
  char name[56] = {};  // from the label; truncated
};
static_assert(std::is_trivially_copyable_v<Announcement>);

Announcement announce(const Collective& collective);
// Throws InvalidArgumentError, the same on every rank, when the calls do not match. `all` holds one
// announcement per rank.
void check_announcements(const Collective& collective, std::span<const Announcement> all,
                         const RankNames& names);

// The element counts between each pair of ranks in an all-to-all, at index from * size + to.
struct TransferCounts {
  std::int64_t sent = 0, expected = 0;
};
// Throws InvalidArgumentError, the same on every rank, when a sent and an expected count differ.
void check_counts_match(const Collective& collective, std::span<const TransferCounts> all, int size,
                        const RankNames& names);

// A rank sends this before a message.
struct MessageHeader {
  std::int64_t count = 0;  // elements
  std::int64_t dtype = 0;
};

MessageHeader header_of(const Buffer& message);
// Throws InvalidArgumentError unless `buffer` of rank `receiver` can hold the message of `sender`.
void check_message(const MessageHeader& header, int sender, const Buffer& buffer, int receiver,
                   const RankNames& names);

}  // namespace tandem
