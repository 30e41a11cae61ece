#include "comm/rendezvous/tree_exchange.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/bytes.h"
#include "core/status.h"

namespace tandem {
namespace {

// The header of a value in a message: its rank and its length.
struct Head {
  std::uint32_t rank, bytes;
};

}  // namespace

TreeExchange::TreeExchange(int rank, int size, const std::string& value)
    : rank_(rank), size_(size), awaited_(children()) {
  if (rank > 0) awaited_.push_back(parent_of(rank));
  const Head head = {static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(value.size())};
  gathered_.append(plain_bytes(head)).append(value);
}

std::vector<int> TreeExchange::children() const {
  std::vector<int> children;
  for (int child = 2 * rank_ + 1; child <= 2 * rank_ + 2 && child < size_; ++child)
    children.push_back(child);
  return children;
}

bool TreeExchange::awaits(int peer) const {
  return std::find(awaited_.begin(), awaited_.end(), peer) != awaited_.end();
}

template <class Use>
void TreeExchange::read(std::string_view message, Use&& use) const {
  ByteReader in("[rendezvous] a list of addresses", message);
  while (in.left() > 0) {
    const auto head = in.number<Head>();
    if (head.bytes == 0 || head.rank >= static_cast<std::uint32_t>(size_))
      in.refuse(fmt::format("expected the address of a rank below {}", size_));
    use(head.rank, in.take(head.bytes));
  }
}

void TreeExchange::receive(int peer, Message message) {
  int count = 0;
  read(*message, [&](std::size_t, std::string_view) { ++count; });
  std::erase(awaited_, peer);
  if (peer < rank_) {
    known_ = count;
    all_ = std::move(message);
  } else {
    known_ += count;
    gathered_ += *message;
  }
}

std::optional<TreeExchange::Outgoing> TreeExchange::take_outgoing() {
  if (phase_ == Phase::kUp) {
    const std::size_t parents = rank_ > 0 ? 1 : 0;
    if (awaited_.size() > parents) return std::nullopt;
    phase_ = Phase::kDown;
    auto mine = std::make_shared<const std::string>(std::move(gathered_));
    if (rank_ > 0) return Outgoing{{parent_of(rank_)}, std::move(mine)};
    all_ = std::move(mine);
  }
  if (phase_ == Phase::kSent || !all_) return std::nullopt;
  if (known_ != size_)
    fail<DataLossError>("[rendezvous] rank {} received the values of {} of {} ranks", rank_, known_,
                        size_);
  phase_ = Phase::kSent;
  if (children().empty()) return std::nullopt;
  return Outgoing{children(), all_};
}

std::vector<std::string> TreeExchange::values() const {
  std::vector<std::string> values(static_cast<std::size_t>(size_));
  read(*all_, [&](std::size_t rank, std::string_view value) { values[rank] = value; });
  for (std::size_t rank = 0; rank < values.size(); ++rank)
    if (values[rank].empty())
      fail<DataLossError>("[rendezvous] rank {} received no value of rank {}", rank_, rank);
  return values;
}

}  // namespace tandem
