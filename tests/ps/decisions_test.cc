#include "ps/decisions.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "ps/in_process.h"
#include "support/tensors.h"

namespace tandem::ps::decisions_test {
namespace {

using Outcome = Decisions::Outcome;
using testing::DirectChannel;
using testing::InProcess;

struct Call final : Closure {
  void cancel(const std::exception_ptr&) noexcept override {}
  bool started() const override { return true; }
};

// A worker and two servers with a row each of v. A call doubles the rows if both are equal.
class Decided : public ::testing::Test {
 protected:
  void decide_by(const Decisions::Rules& rules) {
    std::vector<std::shared_ptr<ServerClient>> clients;
    for (auto& server : run.servers)
      clients.push_back(std::make_shared<ServerClient>(std::make_shared<DirectChannel>(server),
                                                       ServerClient::Limits()));
    decisions.emplace(std::move(clients), rules,
                      [this](const std::shared_ptr<Closure>& call) { superseded.push_back(call); });
  }
  std::uint64_t begin(std::uint64_t closure) {
    const std::uint64_t attempt = decisions->begin(closure, call, function);
    return attempt;
  }
  void compute(std::uint64_t closure, std::uint64_t attempt) {
    run.worker->run({.function = InProcess::kFunction,
                     .closure = closure,
                     .arguments = {ones({})},
                     .attempt = attempt});
  }
  std::uint64_t begun_and_computed(std::uint64_t closure) {
    const std::uint64_t attempt = begin(closure);
    compute(closure, attempt);
    return attempt;
  }
  std::vector<float> rows() const { return run.variable("v").to_vector<float>(); }
  std::uint64_t version(std::size_t server) const {
    return run.stores[server]
        .read(variable_id(static_cast<std::uint32_t>(server), static_cast<std::uint32_t>(server)))
        .version;
  }

  Variable v{ones({2, 1}), {.name = "v"}};
  InProcess run{testing::trace(
                    [this](const auto& inputs) {
                      v.assign(matmul(ones({2, 2}), v.value()));
                      return std::vector<Tensor>{inputs[0] + 0.0};
                    },
                    {ones({})}),
                2, 2};
  const std::shared_ptr<const Decisions::Function> function =
      std::make_shared<Decisions::Function>(InProcess::kFunction, run.message());
  const std::shared_ptr<Closure> call = std::make_shared<Call>();
  std::vector<std::shared_ptr<Closure>> superseded;
  std::optional<Decisions> decisions;
};

TEST_F(Decided, WithABoundOfZeroOnlyOneOfTwoCallsAtATimeHappens) {
  decide_by({.max_staleness = 0});
  const std::uint64_t a = begun_and_computed(0), b = begun_and_computed(1);
  EXPECT_EQ(rows(), (std::vector<float>{1, 1}));  // nothing is decided
  EXPECT_EQ(decisions->decide(b), Outcome::kComplete);
  EXPECT_TRUE(decisions->commit(1, {}).missing.empty());
  EXPECT_EQ(decisions->decide(a), Outcome::kStale);
  EXPECT_EQ(rows(), (std::vector<float>{2, 2}));
  const std::uint64_t again = begun_and_computed(0);
  EXPECT_EQ(decisions->decide(again), Outcome::kComplete);
  EXPECT_EQ(decisions->commit(0, {}).staleness.max, 0u);
  EXPECT_EQ(rows(), (std::vector<float>{4, 4}));
}

TEST_F(Decided, ABoundAllowsAsMuchStaleness) {
  decide_by({.max_staleness = 1});
  std::vector<std::uint64_t> attempts;
  for (std::uint64_t closure = 0; closure < 3; ++closure)
    attempts.push_back(begun_and_computed(closure));
  for (std::uint64_t closure = 0; closure < 2; ++closure) {
    EXPECT_EQ(decisions->decide(attempts[closure]), Outcome::kComplete);
    EXPECT_EQ(decisions->commit(closure, {}).staleness.max, closure);
  }
  EXPECT_EQ(decisions->decide(attempts[2]), Outcome::kStale);
}

TEST_F(Decided, AStepHasTheSameCallsOnAllServers) {
  decide_by({.max_staleness = 0, .calls_per_update = 2});
  std::vector<std::uint64_t> attempts;
  for (std::uint64_t closure = 0; closure < 3; ++closure)
    attempts.push_back(begun_and_computed(closure));
  EXPECT_EQ(decisions->decide(attempts[2]), Outcome::kWaits);
  EXPECT_EQ(decisions->waiting(), (std::vector<std::uint64_t>{2}));
  EXPECT_EQ(decisions->decide(attempts[0]), Outcome::kComplete);
  decisions->commit(0, {});
  EXPECT_EQ(decisions->decide(attempts[1]), Outcome::kStale);
  EXPECT_EQ(rows(), (std::vector<float>{2, 2}));
  EXPECT_EQ(version(0), 1u);
  EXPECT_EQ(version(1), 1u);
  EXPECT_TRUE(decisions->waiting().empty());
}

// A call that would be refused in any case goes to another worker while its first one computes.
TEST_F(Decided, ACallThatWouldBeStaleIsSuperseded) {
  decide_by({.max_staleness = 0});
  const std::uint64_t slow = begin(0), fast = begun_and_computed(1);
  decisions->may_move(slow);
  EXPECT_EQ(decisions->decide(fast), Outcome::kComplete);
  EXPECT_EQ(superseded, (std::vector{call}));
  decisions->commit(1, {});
  const std::uint64_t elsewhere = begun_and_computed(0);
  compute(0, slow);
  EXPECT_EQ(decisions->decide(slow), Outcome::kSuperseded);
  EXPECT_FALSE(decisions->release(slow));
  EXPECT_EQ(decisions->decide(elsewhere), Outcome::kComplete);
  EXPECT_TRUE(decisions->commit(0, {}).missing.empty());
  EXPECT_EQ(rows(), (std::vector<float>{4, 4}));
}

TEST_F(Decided, AnAttemptThatWasLostHasNoEffect) {
  decide_by({.max_staleness = 0});
  const std::uint64_t lost = begun_and_computed(0);
  EXPECT_TRUE(decisions->release(lost));
  const std::uint64_t again = begun_and_computed(0);
  EXPECT_EQ(decisions->decide(again), Outcome::kComplete);
  decisions->commit(0, {});
  EXPECT_EQ(rows(), (std::vector<float>{2, 2}));
}

// A server that was restarted has its variables, and not what it kept.
TEST_F(Decided, AServerThatWasRestartedGetsWhatItHasLost) {
  decide_by({.max_staleness = 0, .calls_per_update = 2});
  const std::uint64_t a = begun_and_computed(0), b = begun_and_computed(1);
  EXPECT_EQ(decisions->decide(a), Outcome::kWaits);
  EXPECT_EQ(decisions->decide(b), Outcome::kComplete);
  serve(run.servers[1], run.stores[1]);
  const Decisions::Committed committed = decisions->commit(1, {});
  ASSERT_EQ(committed.missing.size(), 2u);
  EXPECT_EQ(version(0), 1u);
  EXPECT_EQ(version(1), 0u);
  for (std::uint64_t closure = 0; closure < 2; ++closure)
    compute(closure, committed.missing[closure].attempt);
  EXPECT_TRUE(decisions->commit(1, {}).missing.empty());
  EXPECT_EQ(version(0), 1u);
  EXPECT_EQ(version(1), 1u);
}

// The worker that ran the call again for a server was lost, too.
TEST_F(Decided, ADecisionStaysWhenTheWorkerIsLostAfterIt) {
  decide_by({.max_staleness = 0});
  EXPECT_EQ(decisions->decide(begun_and_computed(0)), Outcome::kComplete);
  serve(run.servers[1], run.stores[1]);
  EXPECT_EQ(decisions->commit(0, {}).missing.size(), 1u);
  EXPECT_EQ(decisions->decide(begun_and_computed(0)), Outcome::kComplete);
  EXPECT_TRUE(decisions->commit(0, {}).missing.empty());
  EXPECT_EQ(version(0), 1u);
  EXPECT_EQ(version(1), 1u);
}

// The first server has a request whose reply was lost.
TEST_F(Decided, ACommitThatIsRepeatedHappensOnce) {
  decide_by({.max_staleness = 0});
  bool lose = true;
  run.servers[0].on_reply = [&](const std::string& method, const rpc::Message&) {
    if (method == kCommit && std::exchange(lose, false))
      throw rpc::PeerUnavailableError("the reply was lost");
  };
  EXPECT_EQ(decisions->decide(begun_and_computed(0)), Outcome::kComplete);
  EXPECT_TRUE(decisions->commit(0, {}).missing.empty());
  EXPECT_FALSE(lose);
  EXPECT_EQ(rows(), (std::vector<float>{2, 2}));
}

}  // namespace
}  // namespace tandem::ps::decisions_test
