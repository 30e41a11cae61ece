// What ranks tell each other of a call before they move data, where they do not share memory.
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
  char name[56] = {};  // of the label; cut off
};
static_assert(std::is_trivially_copyable_v<Announcement>);

Announcement announce(const Collective& collective);
// Throws InvalidArgumentError, the same on every rank, when the ranks' calls are not one
// collective. `all` holds an announcement a rank.
void check_announcements(const Collective& collective, std::span<const Announcement> all,
                         const RankNames& names);

// What ranks send each other in an all-to-all: an element for each pair of ranks, from * size + to.
struct ShareCounts {
  std::int64_t sent = 0, expected = 0;
};
// Throws InvalidArgumentError, the same on every rank, when one expects another count than is sent.
void check_shares_agree(const Collective& collective, std::span<const ShareCounts> all, int size,
                        const RankNames& names);

}  // namespace tandem
