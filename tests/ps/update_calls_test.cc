#include "ps/update_calls.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "ps/in_process.h"
#include "support/tensors.h"

namespace tandem::ps::update_calls_test {
namespace {

using tandem::testing::expect_error;
using testing::trace;

// Two variables, 3 and 4, and an update of each: v += value.
class Updates : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const VariableId id : {3, 4}) store.create(id, "v", zeros({2}));
    Variable v(zeros({2}), {.name = "v"});
    const auto traced = trace(
        [&](const auto& inputs) {
          v.assign_add(inputs[0]);
          return std::vector<Tensor>();
        },
        {zeros({2})});
    for (const std::uint32_t index : {0u, 1u}) {
      const SplitFunction function = split(*traced, [&](const Resource& variable) {
        return one_shard(3 + index, variable.spec().shape);
      });
      store.add_update(0, index, function.message.updates(0).part());
    }
  }

  static UpdateCalls::Updates adding(std::uint64_t closure, double value) {
    return {.closure = closure,
            .updates = {{.index = 0, .inputs = {full({2}, value)}, .read_version = 0},
                        {.index = 1, .inputs = {full({2}, value)}, .read_version = 0}}};
  }
  UpdateCalls::Committed commit(std::uint64_t closure,
                                std::vector<UpdateCalls::Contribution> contributions) {
    return calls.commit(
        {.closure = closure, .indices = {0, 1}, .contributions = std::move(contributions)});
  }
  std::vector<float> values() const {
    return {store.read(3).value.to_vector<float>()[0], store.read(4).value.to_vector<float>()[0]};
  }

  ParameterStore store;
  UpdateCalls calls{store};
};

TEST_F(Updates, AreAppliedAllOrNone) {
  UpdateCalls::Updates wrong = adding(0, 1);
  wrong.updates[1].inputs = {ones({7})};
  EXPECT_THROW(calls.apply(wrong), InvalidArgumentError);
  EXPECT_THROW(calls.stage(wrong, 1), InvalidArgumentError);
  EXPECT_EQ(values(), (std::vector<float>{0, 0}));
  EXPECT_FALSE(calls.apply(adding(0, 1))[1].repeated);
  EXPECT_TRUE(calls.apply(adding(0, 1))[1].repeated);
  EXPECT_EQ(values(), (std::vector<float>{1, 1}));
}

TEST_F(Updates, AreKeptUntilTheirCommitAndAppliedOnce) {
  calls.stage(adding(5, 1), 1);
  EXPECT_EQ(values(), (std::vector<float>{0, 0}));
  const UpdateCalls::Committed committed = commit(5, {{5, 1}});
  EXPECT_TRUE(committed.missing.empty());
  EXPECT_EQ(committed.measured, 2u);
  EXPECT_EQ(committed.numbers, (std::vector<std::uint64_t>{1, 2}));
  const UpdateCalls::Committed again = commit(5, {{5, 1}});  // its reply was lost
  EXPECT_TRUE(again.missing.empty());
  EXPECT_EQ(again.numbers, committed.numbers);
  EXPECT_EQ(values(), (std::vector<float>{1, 1}));
}

TEST_F(Updates, ACommitIsTheMeanOfItsContributions) {
  calls.stage(adding(5, 1), 1);
  calls.stage(adding(6, 2), 2);
  calls.stage(adding(7, 100), 3);
  EXPECT_TRUE(commit(6, {{5, 1}, {6, 2}}).missing.empty());
  EXPECT_EQ(values(), (std::vector<float>{1.5, 1.5}));
  EXPECT_EQ(store.read(3).version, 1u);
}

TEST_F(Updates, ALaterAttemptReplacesAnEarlierOne) {
  calls.stage(adding(5, 2), 2);
  calls.stage(adding(5, 1), 1);  // late
  EXPECT_EQ(commit(5, {{5, 1}}).missing, (std::vector<std::uint64_t>{5}));
  commit(5, {{5, 2}});
  EXPECT_EQ(values(), (std::vector<float>{2, 2}));
}

TEST_F(Updates, ACommitWithoutAContributionChangesNothing) {
  calls.stage(adding(5, 1), 1);
  EXPECT_EQ(commit(6, {{5, 1}, {6, 2}}).missing, (std::vector<std::uint64_t>{6}));
  EXPECT_EQ(values(), (std::vector<float>{0, 0}));
  calls.stage(adding(6, 3), 4);
  EXPECT_TRUE(commit(6, {{5, 1}, {6, 4}}).missing.empty());
  EXPECT_EQ(values(), (std::vector<float>{2, 2}));
}

// As those of a worker that has read before the server continued from a snapshot.
TEST_F(Updates, ACommitThatLacksAnUpdateChangesNothing) {
  EXPECT_THROW(commit(5, {}), InvalidArgumentError);
  UpdateCalls::Updates half = adding(5, 1);
  half.updates.pop_back();
  calls.stage(half, 1);
  EXPECT_THROW(commit(5, {{5, 1}}), InvalidArgumentError);
  EXPECT_EQ(values(), (std::vector<float>{0, 0}));
}

TEST_F(Updates, OfALostStateAreMissing) {
  UpdateCalls::Updates early = adding(5, 1);
  early.updates[1].read_version = 2;
  calls.stage(early, 1);
  EXPECT_EQ(commit(5, {{5, 1}}).missing, (std::vector<std::uint64_t>{5}));
  EXPECT_EQ(values(), (std::vector<float>{0, 0}));
  calls.stage(adding(5, 1), 2);
  EXPECT_TRUE(commit(5, {{5, 2}}).missing.empty());
  EXPECT_EQ(values(), (std::vector<float>{1, 1}));
}

TEST_F(Updates, OfACallAreInASnapshotTogether) {
  std::atomic<bool> ended = false;
  std::thread worker([&] {
    for (std::uint64_t closure = 0; closure < 500; ++closure)
      if (closure % 2 == 0) {
        calls.apply(adding(closure, 1));
      } else {
        calls.stage(adding(closure, 1), closure);
        commit(closure, {{closure, closure}});
      }
    ended = true;
  });
  while (!ended) EXPECT_EQ(store.capture()[0].header.counts().updates() % 2, 0u);
  worker.join();
  EXPECT_EQ(store.updates(), 1000u);
}

TEST_F(Updates, OfClosedClosuresHaveNoEffect) {
  calls.apply(adding(1, 1));
  calls.stage(adding(2, 2), 1);
  calls.stage(adding(3, 3), 2);
  const std::vector<std::uint64_t> asked = {1, 2};
  EXPECT_EQ(calls.close_below(5, asked, [] { return false; }), (std::vector<std::uint64_t>{2, 0}));
  const std::uint64_t waiting = 3;
  calls.drop(testing::finished_below(5), {&waiting, 1});
  EXPECT_TRUE(calls.apply(adding(4, 4))[0].repeated);
  calls.stage(adding(4, 4), 3);
  EXPECT_TRUE(commit(4, {{4, 3}}).missing.empty());
  EXPECT_EQ(values(), (std::vector<float>{1, 1}));
  EXPECT_EQ(commit(6, {{2, 1}}).missing, (std::vector<std::uint64_t>{2}));  // dropped
  commit(6, {{3, 2}});                                                      // kept
  EXPECT_EQ(values(), (std::vector<float>{4, 4}));
}

}  // namespace
}  // namespace tandem::ps::update_calls_test
