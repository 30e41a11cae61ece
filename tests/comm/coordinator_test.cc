// The messages that the rendezvous server handles and sends, without sockets.
#include "comm/rendezvous/coordinator.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <utility>

#include "comm/rendezvous/wire.h"
#include "tandem/errors.h"

namespace tandem::coordinator_test {
namespace {

using namespace std::chrono_literals;

TEST(Frames, CarryEveryField) {
  const WireMessage message = {.type = MessageType::kJoin,
                               .rank = -7,
                               .number = INT64_MIN,
                               .key = std::string("k\0y", 3),
                               .value = "value"};
  FrameReader reader;
  reader.append(encode(message) + encode({.type = MessageType::kGet}));
  const auto first = reader.next();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->type, message.type);
  EXPECT_EQ(first->rank, message.rank);
  EXPECT_EQ(first->number, message.number);
  EXPECT_EQ(first->key, message.key);
  EXPECT_EQ(first->value, message.value);
  EXPECT_EQ(reader.next()->type, MessageType::kGet);
  EXPECT_FALSE(reader.partial());
  EXPECT_FALSE(reader.next());
}

TEST(Frames, AreTakenFromAnyPieces) {
  const std::string bytes = encode({.key = "key", .value = "value"});
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
    FrameReader reader;
    reader.append(bytes.substr(0, cut));
    EXPECT_FALSE(reader.next());
    EXPECT_EQ(reader.partial(), cut > 0);
    reader.append(bytes.substr(cut));
    EXPECT_EQ(reader.next()->value, "value");
  }
}

TEST(Frames, OfInvalidSizesAreRefusedBeforeAllocation) {
  const std::string good = encode({.key = "key", .value = "value"});
  const auto refuses = [&](std::size_t at, char byte) {
    std::string bytes = good;
    bytes[at] = byte;
    FrameReader reader;
    reader.append(bytes);
    EXPECT_THROW(reader.next(), DataLossError) << at;
  };
  refuses(0, 3);       // shorter than a header
  refuses(3, '\x7f');  // 2 GiB
  refuses(4, '\0');    // undefined types
  refuses(4, '\x63');
  refuses(17, '\x40');  // a key that exceeds the message
  refuses(20, '\x01');
  EXPECT_THROW(encode({.key = std::string(kMaxKeyBytes + 1, 'k')}), InvalidArgumentError);
  EXPECT_THROW(encode({.value = std::string(kMaxValueBytes + 1, 'v')}), InvalidArgumentError);
}

TEST(Silence, NamesTheLimitOfAHostWithTooManyThreads) {
  EXPECT_EQ(describe_silence(3s, 4.0), "no message was received for 3000 ms");
  EXPECT_EQ(describe_silence(30s, 240.4),
            "no message was received for 30000 ms; 240 threads compete for each core of this host: "
            "use fewer ranks, or set TANDEM_SILENCE_LIMIT to more seconds");
}

TEST(JoinTerms, SurviveSerialisation) {
  const std::string text = encode(JoinTerms{.size = 8, .silence = 5s});
  EXPECT_EQ(text, "8 5000");
  const auto terms = decode_join_terms(text);
  ASSERT_TRUE(terms);
  EXPECT_EQ(terms->size, 8);
  EXPECT_EQ(terms->silence, 5s);
  // More than a clock can add to the current time.
  EXPECT_EQ(decode_join_terms("8 9223372036854775807")->silence, 1'000'000'000'000ms);
  for (const char* none : {"", "8", "8 ", "8 0", "8 -1", "8 5000 ", "8  5000", "8 0 5000",
                           "8 99999999999999999999", "eight 5000"})
    EXPECT_FALSE(decode_join_terms(none)) << none;
}

const std::string kThreeWorkers = encode(JoinTerms{.size = 3, .silence = 5s});

class CoordinatorOfThree : public ::testing::Test {
 protected:
  explicit CoordinatorOfThree(std::optional<OutsideHost> outside = std::nullopt)
      : coordinator_({.size = 3, .outside = std::move(outside)},
                     [this](int connection, const WireMessage& message) {
                       sent_[connection].push_back(message);
                     }) {}

  // Connection 10 + rank.
  bool join(int rank, int size = 3) {
    return handle(10 + rank, {.type = MessageType::kJoin,
                              .rank = rank,
                              .number = 100 + rank,
                              .key = "host",
                              .value = encode(JoinTerms{size, 5s})});
  }
  void join_all() {
    for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(join(rank));
    sent_.clear();
  }
  bool handle(int connection, const WireMessage& message) {
    return coordinator_.handle(connection, message, now_);
  }
  // The last message that was sent to a connection.
  const WireMessage& last(int connection) { return sent_[connection].back(); }

  Coordinator::TimePoint now_ = {};
  std::map<int, std::vector<WireMessage>> sent_;
  Coordinator coordinator_;
};

TEST_F(CoordinatorOfThree, StartWhenAllAreThere) {
  EXPECT_TRUE(join(2));
  EXPECT_EQ(last(12).type, MessageType::kAlive);
  EXPECT_EQ(last(12).value, "0, 1");
  EXPECT_TRUE(join(0));
  EXPECT_TRUE(handle(12, {.type = MessageType::kHeartbeat}));
  EXPECT_EQ(last(12).value, "1");
  EXPECT_EQ(last(12).number, 1);
  EXPECT_TRUE(join(1));
  for (const int connection : {10, 11, 12}) {
    EXPECT_EQ(last(connection).type, MessageType::kStarted);
    EXPECT_EQ(last(connection).number, 100);
    EXPECT_EQ(last(connection).key, "host");
  }
}

TEST_F(CoordinatorOfThree, RefuseUnknownProcesses) {
  EXPECT_TRUE(join(0));
  EXPECT_TRUE(join(1, 4));
  EXPECT_EQ(last(11).type, MessageType::kRefused);
  EXPECT_EQ(last(11).value, "rank 1 expects a job of 4 ranks, rank 0 one of 3");
  EXPECT_TRUE(join(7));
  EXPECT_EQ(last(17).value, "there is no rank 7 in a job of 3 ranks");
  EXPECT_TRUE(join(-1));
  EXPECT_EQ(last(9).value, "there is no rank -1 in a job of 3 ranks");
  EXPECT_TRUE(handle(99, {.type = MessageType::kJoin, .rank = 0, .value = kThreeWorkers}));
  EXPECT_EQ(last(99).value, "rank 0 (process 100 on host) is in the job already");
  EXPECT_FALSE(join(0));  // the connection has joined already
}

TEST_F(CoordinatorOfThree, ADroppedConnectionIsADeadRankForTheOthers) {
  join_all();
  coordinator_.dropped(12, "its connection closed without goodbye");
  EXPECT_EQ(sent_[10].size(), 1u);
  EXPECT_EQ(last(10).type, MessageType::kFailed);
  EXPECT_EQ(last(10).rank, 2);
  EXPECT_EQ(last(10).number, 0);
  EXPECT_EQ(last(11).value,
            "rank 2 (process 102 on host) is gone: its connection closed without goodbye");
  EXPECT_TRUE(handle(50, {.type = MessageType::kJoin, .rank = 2, .value = kThreeWorkers}));
  EXPECT_EQ(last(50).type, MessageType::kFailed);  // a late rank receives the first failure
  EXPECT_EQ(last(50).value, last(11).value);
  EXPECT_FALSE(coordinator_.deserted());
}

TEST_F(CoordinatorOfThree, ASilentRankCountsAsDead) {
  join_all();
  now_ += 4s;
  handle(10, {.type = MessageType::kHeartbeat});
  handle(11, {.type = MessageType::kHeartbeat});
  coordinator_.tick(now_);
  EXPECT_TRUE(sent_[12].empty());
  now_ += 2s;
  coordinator_.tick(now_);
  EXPECT_TRUE(last(10).value.starts_with(
      "rank 2 (process 102 on host) is gone: no message was received for 5000 ms"));
  EXPECT_EQ(last(12).rank, 2);  // the failed rank itself, which may only be disconnected
  const std::size_t count = sent_[10].size();
  coordinator_.tick(now_ + 1s);
  EXPECT_EQ(sent_[10].size(), count);  // not sent again
}

TEST_F(CoordinatorOfThree, ReportAnAbortedRankToTheOthers) {
  join_all();
  handle(11, {.type = MessageType::kReport, .value = "out of memory"});
  EXPECT_EQ(last(10).number, 1);
  EXPECT_EQ(last(12).value, "rank 1 (process 101 on host) aborted: out of memory");
  ASSERT_EQ(sent_[11].size(), 1u);
  EXPECT_EQ(last(11).type, MessageType::kReported);
  coordinator_.dropped(11, "its connection closed without goodbye");
  EXPECT_EQ(sent_[10].size(), 1u);  // only the expected message
}

// Otherwise the failure of all ranks of a job would take a quadratic number of messages.
TEST_F(CoordinatorOfThree, OnlyTheFirstFailureIsAnnounced) {
  join_all();
  coordinator_.dropped(12, "its connection closed without goodbye");
  coordinator_.dropped(11, "its connection closed without goodbye");
  EXPECT_EQ(sent_[10].size(), 1u);
  EXPECT_EQ(last(10).rank, 2);
  EXPECT_EQ(sent_[11].size(), 1u);
}

TEST_F(CoordinatorOfThree, InvalidTermsBreakTheProtocol) {
  EXPECT_FALSE(handle(11, {.type = MessageType::kJoin, .rank = 1, .value = "3 0"}));
}

TEST_F(CoordinatorOfThree, SetTheirSilenceLimits) {
  EXPECT_TRUE(join(0));
  EXPECT_TRUE(join(1));
  EXPECT_TRUE(handle(12, {.type = MessageType::kJoin, .rank = 2, .value = "3 9000"}));
  for (const auto at : {4s, 8s, 10s}) {
    now_ = Coordinator::TimePoint(at);
    handle(10, {.type = MessageType::kHeartbeat});
    handle(11, {.type = MessageType::kHeartbeat});
    coordinator_.tick(now_);
    EXPECT_EQ(last(10).type, at < 9s ? MessageType::kAlive : MessageType::kFailed);
  }
  EXPECT_TRUE(last(10).value.starts_with("rank 2 is gone: no message was received for 9000 ms"));
}

TEST_F(CoordinatorOfThree, ARankThatSaysGoodbyeHasNotFailed) {
  join_all();
  handle(12, {.type = MessageType::kGoodbye});
  EXPECT_EQ(last(12).type, MessageType::kFarewell);
  coordinator_.dropped(12, "its connection closed without goodbye");
  EXPECT_TRUE(sent_[10].empty());
  handle(11, {.type = MessageType::kGoodbye});
  EXPECT_FALSE(coordinator_.deserted());
  handle(10, {.type = MessageType::kGoodbye});
  EXPECT_TRUE(coordinator_.deserted());
  // A rank of the next job must retry once this server has ended.
  EXPECT_FALSE(handle(50, {.type = MessageType::kJoin, .rank = 1, .value = kThreeWorkers}));
}

TEST_F(CoordinatorOfThree, RankZeroThatLeavesFirstEndsTheServer) {
  join_all();
  handle(10, {.type = MessageType::kGoodbye});
  coordinator_.close();
  EXPECT_EQ(last(11).value,
            "rank 0 (process 100 on host) is gone: it left the job and shut down "
            "its rendezvous server");
}

// A job of three ranks that another process than rank 0 hosts.
class OutsideCoordinatorOfThree : public CoordinatorOfThree {
 protected:
  OutsideCoordinatorOfThree() : CoordinatorOfThree(OutsideHost{.pid = 99, .name = "login"}) {}
};

TEST_F(OutsideCoordinatorOfThree, LearnTheirHost) {
  EXPECT_TRUE(join(0));
  EXPECT_TRUE(join(1));
  EXPECT_TRUE(join(2));
  EXPECT_EQ(last(12).type, MessageType::kStarted);
  EXPECT_EQ(last(12).number, 99);
  EXPECT_EQ(last(12).key, "login");
}

TEST_F(OutsideCoordinatorOfThree, TreatRankZeroAsAnyOther) {
  join_all();
  coordinator_.dropped(10, "its connection closed without goodbye");
  EXPECT_EQ(last(11).value,
            "rank 0 (process 100 on host) is gone: its connection closed without goodbye");
  EXPECT_EQ(last(12).type, MessageType::kFailed);
}

TEST_F(OutsideCoordinatorOfThree, ContinueWhenRankZeroLeavesFirst) {
  join_all();
  handle(10, {.type = MessageType::kGoodbye});
  EXPECT_EQ(sent_[11].size(), 0u);
  EXPECT_FALSE(coordinator_.deserted());
}

TEST_F(OutsideCoordinatorOfThree, AllLearnThatTheServerIsClosed) {
  join_all();
  coordinator_.close();
  for (const int rank : {10, 11, 12}) {
    EXPECT_EQ(last(rank).type, MessageType::kFailed);
    EXPECT_EQ(last(rank).rank, -1);
    EXPECT_EQ(last(rank).value,
              "the rendezvous server (process 99 on login) is gone: it was closed");
  }
}

TEST_F(OutsideCoordinatorOfThree, RefuseAnotherSizeInTheServersName) {
  EXPECT_TRUE(join(1, 4));
  EXPECT_EQ(last(11).value, "rank 1 expects a job of 4 ranks, the rendezvous server one of 3");
}

// A process that failed before all had joined is informed once, and then joins the next job.
TEST_F(OutsideCoordinatorOfThree, ComeAgainForTheNextJob) {
  EXPECT_TRUE(join(0));
  EXPECT_TRUE(join(1));
  coordinator_.dropped(10, "its connection closed without goodbye");
  coordinator_.dropped(11, "its connection closed without goodbye");
  EXPECT_TRUE(coordinator_.reports_failed_start());
  EXPECT_FALSE(handle(50, {.type = MessageType::kJoin, .rank = 0, .value = kThreeWorkers}));
  EXPECT_TRUE(join(2));
  EXPECT_EQ(last(12).value,
            "rank 0 (process 100 on host) is gone: its connection closed without goodbye");
  EXPECT_FALSE(coordinator_.assembling());
  EXPECT_EQ(coordinator_.failure(), last(12).value);
}

TEST_F(OutsideCoordinatorOfThree, HaveFailedUnlessOneLeavesInGoodOrder) {
  join_all();
  coordinator_.dropped(10, "its connection closed without goodbye");
  coordinator_.dropped(11, "its connection closed without goodbye");
  EXPECT_NE(coordinator_.failure(), "");
  handle(12, {.type = MessageType::kGoodbye});
  EXPECT_EQ(coordinator_.failure(), "");
}

TEST(Coordinator, TakesNoRequestOfAnEarlierJob) {
  WireMessage last;
  Coordinator coordinator({.size = 1, .job = 2, .outside = OutsideHost()},
                          [&](int, const WireMessage& message) { last = message; });
  EXPECT_TRUE(coordinator.handle(
      1, {.type = MessageType::kJoin, .rank = 0, .value = encode(JoinTerms())}, {}));
  EXPECT_EQ(last.type, MessageType::kStarted);
  EXPECT_EQ(last.rank, 2);
  EXPECT_FALSE(coordinator.handle(2, {.type = MessageType::kSet, .rank = 1, .key = "k"}, {}));
  EXPECT_TRUE(coordinator.handle(2, {.type = MessageType::kSet, .rank = 2, .key = "k"}, {}));
}

TEST(Coordinator, NamesFewOfManyThatAreMissing) {
  WireMessage last;
  Coordinator coordinator({.size = 100}, [&](int, const WireMessage& message) { last = message; });
  coordinator.handle(
      1, {.type = MessageType::kJoin, .rank = 3, .value = encode(JoinTerms{.size = 100})}, {});
  EXPECT_EQ(last.number, 99);
  EXPECT_EQ(last.value, "0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 and 83 more");
  EXPECT_EQ(last.rank, 3) << "the first that waits, which warns for all";
}

}  // namespace
}  // namespace tandem::coordinator_test
