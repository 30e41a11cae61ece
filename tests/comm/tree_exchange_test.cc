// Exchange of addresses between all ranks, without sockets.
#include "comm/rendezvous/tree_exchange.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "tandem/errors.h"

namespace tandem::tree_exchange_test {
namespace {

std::deque<TreeExchange> ranks_of(int size) {
  std::deque<TreeExchange> ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.emplace_back(rank, size, "value " + std::to_string(rank));
  return ranks;
}

// Delivers messages until there are none.
void run(std::deque<TreeExchange>& ranks) {
  for (bool more = true; more;) {
    more = false;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
      while (const auto outgoing = ranks[rank].take_outgoing()) {
        more = true;
        for (const int to : outgoing->to) {
          TreeExchange& peer = ranks[static_cast<std::size_t>(to)];
          ASSERT_TRUE(peer.awaits(static_cast<int>(rank)));
          peer.receive(static_cast<int>(rank), outgoing->message);
        }
      }
  }
}

TEST(TreeExchange, TellsEveryRankAllValues) {
  for (const int size : {1, 2, 3, 4, 7, 8, 33}) {
    std::deque<TreeExchange> ranks = ranks_of(size);
    run(ranks);
    std::vector<std::string> values;
    for (int rank = 0; rank < size; ++rank) values.push_back("value " + std::to_string(rank));
    for (const TreeExchange& rank : ranks) {
      ASSERT_TRUE(rank.complete());
      EXPECT_EQ(rank.values(), values);
    }
  }
}

TEST(TreeExchange, WaitsForItsNeighboursAlone) {
  std::deque<TreeExchange> ranks = ranks_of(8);
  EXPECT_TRUE(ranks[1].awaits(0));
  EXPECT_TRUE(ranks[1].awaits(3));
  EXPECT_TRUE(ranks[1].awaits(4));
  EXPECT_FALSE(ranks[1].awaits(2));
  EXPECT_FALSE(ranks[1].take_outgoing());
  EXPECT_FALSE(ranks[0].take_outgoing());
  EXPECT_TRUE(ranks[7].take_outgoing());
  EXPECT_FALSE(ranks[7].take_outgoing());  // returned once only
}

TreeExchange::Message message(const std::string& bytes) {
  return std::make_shared<const std::string>(bytes);
}

TEST(TreeExchange, RefusesWhatIsNoMessage) {
  for (const std::size_t cut : {1u, 4u, 9u}) {
    std::deque<TreeExchange> ranks = ranks_of(2);
    const std::string good = *ranks[1].take_outgoing()->message;
    EXPECT_THROW(ranks[0].receive(1, message(good.substr(0, good.size() - cut))), DataLossError)
        << cut;
  }
  std::deque<TreeExchange> ranks = ranks_of(2);
  std::string other = *ranks[1].take_outgoing()->message;
  other[0] = 7;  // rank 7 does not exist
  EXPECT_THROW(ranks[0].receive(1, message(other)), DataLossError);
}

TEST(TreeExchange, RefusesANeighbourThatLeavesRanksOut) {
  std::deque<TreeExchange> ranks = ranks_of(3);
  const TreeExchange::Message one = ranks[1].take_outgoing()->message;
  ranks[0].receive(1, one);
  ranks[0].receive(2, message(""));
  EXPECT_THROW(ranks[0].take_outgoing(), DataLossError);
  // One rank appears twice, so that another is missing.
  std::deque<TreeExchange> others = ranks_of(3);
  others[0].receive(1, one);
  others[0].receive(2, one);
  ASSERT_TRUE(others[0].take_outgoing());
  EXPECT_THROW(others[0].values(), DataLossError);
}

}  // namespace
}  // namespace tandem::tree_exchange_test
