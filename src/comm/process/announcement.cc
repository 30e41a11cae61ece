#include "comm/process/announcement.h"

#include <algorithm>
#include <cstring>

#include "core/status.h"

namespace tandem {

Announcement announce(const Collective& collective) {
  Announcement result{.sequence = collective.sequence,
                      .signature = collective.signature,
                      .step = collective.label.step};
  const std::string& name = collective.label.name;
  std::memcpy(result.name, name.data(), std::min(name.size(), sizeof(result.name) - 1));
  return result;
}

void check_announcements(const Collective& collective, std::span<const Announcement> all,
                         const RankNames& names) {
  if (std::all_of(all.begin(), all.end(), [&](const Announcement& one) {
        return one.sequence == collective.sequence && matches(one.signature, all.front().signature);
      }))
    return;
  std::vector<RankCall> calls;
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    calls.push_back(
        {static_cast<int>(rank), all[rank].signature, {all[rank].name, all[rank].step}});
  throw InvalidArgumentError(describe_mismatch(collective.sequence, calls, names));
}

void check_counts_match(const Collective& collective, std::span<const TransferCounts> all, int size,
                        const RankNames& names) {
  const auto at = [&](int rank, int peer) {
    return all[static_cast<std::size_t>(rank * size + peer)];
  };
  for (int from = 0; from < size; ++from)
    for (int to = 0; to < size; ++to)
      if (at(from, to).sent != at(to, from).expected)
        fail<InvalidArgumentError>(
            "[all_to_all] ranks diverged at collective {}: rank {} sent {} {} to rank {}, which "
            "expected {}",
            collective.sequence, names[from], at(from, to).sent,
            name_of(collective.signature.dtype), names[to], at(to, from).expected);
}

MessageHeader header_of(const Buffer& message) {
  return {message.count, static_cast<std::int64_t>(message.dtype)};
}

void check_message(const MessageHeader& header, int sender, const Buffer& buffer, int receiver,
                   const RankNames& names) {
  const auto dtype = static_cast<DType>(header.dtype);
  if (header.count == buffer.count && dtype == buffer.dtype) return;
  fail<InvalidArgumentError>("[recv] rank {} sent {} {}, rank {} expected {} {}", names[sender],
                             header.count, name_of(dtype), names[receiver], buffer.count,
                             name_of(buffer.dtype));
}

}  // namespace tandem
