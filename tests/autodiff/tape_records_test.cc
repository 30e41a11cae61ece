// The records of tapes that have ended: they are freed, and nothing goes through them.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <thread>
#include <unordered_set>

#include "op/record.h"
#include "runtime/autocast.h"
#include "support/tensors.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tandem/autograd.h"
#include "tandem/creation.h"
#include "tandem/function.h"
#include "tandem/math.h"
#include "tandem/variable.h"

namespace tandem::tape_records_test {
namespace {

// A tensor keeps this alive through its record.
struct History {
  std::size_t records = 0, saved = 0;
};

History history_of(const Tensor& tensor) {
  std::unordered_set<const GradNodeBase*> seen;
  std::vector<GradEdge> edges{impl_of(tensor).grad};
  History found;
  while (!edges.empty()) {
    const GradEdge edge = edges.back();
    edges.pop_back();
    const auto* node = static_cast<const GradNode*>(edge.node.get());
    if (!node || !node->op || !seen.insert(node).second) continue;
    ++found.records;
    const auto* record = static_cast<const OpNode*>(node);
    for (const OpNode::Input& input : record->inputs) {
      edges.push_back(input.edge);
      found.saved += input.saved.defined();
    }
    for (const OpNode::Output& output : record->outputs) found.saved += output.saved.defined();
  }
  return found;
}

float at(const Tensor& tensor) { return tensor.item<float>(); }

TEST(TapeRecords, DoNotGrowWithTheHistoryOfATensor) {
  for (const bool persistent : {false, true}) {
    Tensor x = constant(1.0), mean = constant(0.0);
    for (int step = 0; step < 200; ++step) {
      GradientTape tape({.persistent = persistent});
      tape.watch(x);
      const Tensor loss = x * x;
      mean = 0.9 * mean + 0.1 * loss;
      x = x - 0.01 * tape.gradient(loss + 0.0 * mean, x);
      EXPECT_LE(history_of(x).records, 24u);
      EXPECT_LE(history_of(mean).records, 24u);
    }
    EXPECT_LE(history_of(x).records, 1u);
    EXPECT_EQ(history_of(x).saved + history_of(mean).saved, 0u);
    EXPECT_NEAR(at(x), std::pow(0.98, 200), 1e-5);
  }
}

// Hidden states, running means and momentum: as TensorFlow, in which they are constants of the next
// step, whether their tape is persistent or not.
TEST(TapeRecords, OfVariablesDoNotGrowEither) {
  for (const bool persistent : {false, true}) {
    const Variable w(constant(0.5)), u(constant(0.25));
    Tensor h = constant(1.0), momentum = constant(0.0), total = constant(0.0);
    for (int step = 0; step < 100; ++step) {
      const float before = at(h);
      GradientTape tape({.persistent = persistent});
      const Tensor next = tanh(h * w + u);
      const Tensor loss = next * next;
      total = total + loss;
      const auto gradients = tape.gradient(loss, {w, u});
      const float y = std::tanh(before * 0.5f + 0.25f), slope = 2 * y * (1 - y * y);
      EXPECT_NEAR(at(gradients[0]), slope * before, 1e-5);
      EXPECT_NEAR(at(gradients[1]), slope, 1e-5);
      momentum = 0.9 * momentum + gradients[0];
      h = tanh(next * w);  // not a part of the loss
      for (const Tensor& kept : {h, momentum, total, loss})
        EXPECT_LE(history_of(kept).records, 24u);
    }
  }
}

TEST(TapeRecords, OfLossesThatAreAddedAfterwardsDoNotGrow) {
  const Variable w(ones({64}));
  Tensor total = constant(0.0);
  for (int step = 0; step < 50; ++step) {
    Tensor loss;
    {
      GradientTape tape;
      loss = reduce_sum(square(w * 3.0));
      tape.gradient(loss, w);
    }
    total = total + loss;
    EXPECT_LE(history_of(total).records, 2u);
    EXPECT_EQ(history_of(total).saved, 0u);
  }
  EXPECT_FLOAT_EQ(at(total), 50 * 64 * 9.0f);
}

// A persistent tape's results may be differentiated by backward() after its end, as those of
// PyTorch's create_graph, so that sums of them have a history. TensorFlow has no backward().
TEST(TapeRecords, OfPersistentTapesHaveAHistoryUnlessTheirResultsAreDetached) {
  constexpr int kSteps = 30;
  for (const bool detached : {false, true}) {
    const Variable w(ones({8}));
    Tensor total = constant(0.0);
    for (int step = 0; step < kSteps; ++step) {
      Tensor loss;
      {
        GradientTape tape({.persistent = true});
        loss = reduce_sum(square(w * 3.0));
        tape.gradient(loss, w);
      }
      total = total + (detached ? loss.detach() : loss);
    }
    EXPECT_FLOAT_EQ(at(total), kSteps * 8 * 9.0f);
    if (detached) {
      EXPECT_EQ(history_of(total).records, 0u);
    } else {
      total.backward();
      EXPECT_EQ(w.grad().to_vector<float>(), std::vector<float>(8, kSteps * 18.0f));
    }
  }
}

TEST(TapeRecords, OfTensorsThatAreKeptHoldNothing) {
  std::vector<Tensor> kept;
  const Tensor x = ones({64});
  for (int step = 0; step < 20; ++step) {
    GradientTape tape({.persistent = true});
    tape.watch(x);
    const Tensor y = reduce_sum(square(x * 3.0 - 1.0));
    kept.push_back(y * reduce_sum(tape.gradient(y, x)));
    EXPECT_GT(history_of(kept.back()).saved, 0u);
  }
  for (const Tensor& tensor : kept) {
    EXPECT_EQ(history_of(tensor).saved, 0u);
    EXPECT_EQ(history_of(tensor).records, 1u);
    EXPECT_FALSE(tensor.requires_grad());
    EXPECT_FLOAT_EQ(at(tensor), 256.0f * 64 * 12);
  }
}

TEST(TapeRecords, LiveAsLongAsAnOuterTape) {
  const Tensor x = constant(3.0);
  Tensor y, first;
  {
    GradientTape outer({.persistent = true});
    outer.watch(x);
    {
      GradientTape inner;
      inner.watch(x);
      y = x * x * x;
      first = inner.gradient(y, x);
    }
    EXPECT_GT(history_of(first).saved, 0u);
    EXPECT_FLOAT_EQ(at(outer.gradient(first, x)), 18.0f);
    EXPECT_FLOAT_EQ(at(outer.gradient(y, x)), 27.0f);
  }
  EXPECT_EQ(history_of(first).saved + history_of(y).saved, 0u);
}

// A tape that begins before the one that it replaces ends.
TEST(TapeRecords, AreFreedWhenTapesOverlap) {
  Tensor x = constant(1.0);
  auto tape = std::make_unique<GradientTape>();
  for (int step = 0; step < 100; ++step) {
    tape->watch(x);
    x = x - 0.1 * tape->gradient(x * x, x);
    tape = std::make_unique<GradientTape>();
    EXPECT_LE(history_of(x).records, 1u);
  }
  EXPECT_NEAR(at(x), std::pow(0.8, 100), 1e-6);
}

TEST(TapeRecords, AreFreedByReset) {
  GradientTape tape;
  Tensor x = constant(2.0);
  for (int step = 0; step < 5; ++step) {
    tape.watch(x);
    x = x - 0.1 * tape.gradient(x * x, x);
    tape.reset();
    EXPECT_LE(history_of(x).records, 1u);
  }
  EXPECT_NEAR(at(x), 2.0 * std::pow(0.8, 5), 1e-6);
}

TEST(TapeRecords, OfBackwardPassesAreNotOfTapesThatBeginLater) {
  Tensor a = constant(2.0);
  a.set_requires_grad();
  const Tensor b = a * a;
  Tensor slope;
  {
    GradientTape tape;
    slope = tape.gradient(b * b, b);
  }
  b.backward();
  EXPECT_FLOAT_EQ(at(slope), 8.0f);
  EXPECT_FLOAT_EQ(at(a.grad()), 4.0f);
}

// A persistent tape records its gradients for backward(), also for one after its end.
TEST(TapeRecords, ThatLeadToOtherLeavesAreKeptForBackward) {
  Tensor a = constant(2.0);
  a.set_requires_grad();
  const Variable w(constant(3.0));
  const auto slope = [&] {
    GradientTape tape({.persistent = true});
    return tape.gradient(a * a * a * w, a);  // 3 a^2 w
  };
  const Tensor sum = slope() + slope() * 2.0;
  sum.backward();
  EXPECT_FLOAT_EQ(at(a.grad()), 3 * 6 * 2.0f * 3.0f);
  EXPECT_FLOAT_EQ(at(w.grad()), 3 * 3 * 4.0f);
}

TEST(TapeRecords, ThatLeadToLeavesOfTheTapeAloneAreConstantsOfBackward) {
  Tensor a = constant(2.0);
  a.set_requires_grad();
  const Tensor x = constant(5.0);
  Tensor y;
  {
    GradientTape tape;
    tape.watch(x);
    y = x * x;
  }
  (a * y).backward();
  EXPECT_FLOAT_EQ(at(a.grad()), 25.0f);
  testing::expect_error<FailedPreconditionError>([&] { (y * 2.0).backward(); },
                                                 "depends on nothing that requires a gradient");
}

// Not silently without a part of the gradient.
TEST(TapeRecords, OfTwoTapesInOneBackwardAreAnError) {
  Tensor a = constant(2.0);
  a.set_requires_grad();
  Tensor first, second, later;
  {
    const GradientTape tape;
    first = a * a * 3.0;
  }
  {
    const GradientTape tape;
    second = first * a;
    later = (first - 1.0) * 2.0;  // depends on the first tape's alone
  }
  const char* message = "whose result was used under a later one";
  testing::expect_error<RuntimeError>([&] { second.backward(); }, message);
  testing::expect_error<RuntimeError>([&] { later.backward(); }, message);
  testing::expect_error<RuntimeError>([&] { (a * 2.0 + later).backward(); }, message);
  testing::expect_error<RuntimeError>(
      [&] { autograd::grad(std::vector{a * 2.0 + later}, std::vector{a}); }, message);
  (a * 2.0 + later.detach() + first).backward();
  EXPECT_FLOAT_EQ(at(a.grad()), 2.0f + 12.0f);
}

TEST(TapeRecords, OfEarlierTapesMayBeWatched) {
  const Variable w(constant(3.0));
  Tensor x = constant(2.0);
  for (int step = 0; step < 4; ++step) {
    const float before = at(x);
    GradientTape tape({.persistent = true});
    tape.watch(x);
    const Tensor y = x * x * w;
    const auto gradients = tape.gradient(y, std::vector<Tensor>{x, w.value()});
    EXPECT_FLOAT_EQ(at(gradients[0]), 6 * before);
    EXPECT_FLOAT_EQ(at(gradients[1]), before * before) << "without what x was computed from";
    x = x - 0.01 * gradients[0];
  }
}

TEST(TapeRecords, MayBeFreedByOtherThreads) {
  const Variable w(ones({16}));
  for (int round = 0; round < 50; ++round) {
    std::vector<Tensor> results;
    GradientTape tape;
    for (int i = 0; i < 20; ++i) results.push_back(reduce_sum(square(w * 2.0)));
    std::thread other([mine = std::move(results)]() mutable { mine.clear(); });
    tape.reset();
    other.join();
  }
}

TEST(TapeRecords, OfATraceStayWithTheFunction) {
  const Variable w(constant(3.0));
  const auto cube = function([&](const Tensor& x) {
    GradientTape tape;
    tape.watch(x);
    return tape.gradient(x * x * x, x) * w;
  });
  for (int call = 0; call < 3; ++call) {
    const Tensor x = constant(2.0);
    GradientTape tape;
    tape.watch(x);
    const Tensor y = cube(x);
    EXPECT_FLOAT_EQ(at(y), 36.0f);
    const auto gradients = tape.gradient(y, std::vector<Tensor>{x, w.value()});
    EXPECT_FLOAT_EQ(at(gradients[0]), 36.0f);
    EXPECT_FLOAT_EQ(at(gradients[1]), 12.0f);
  }
}

// The casts of weights are made anew for each tape.
TEST(TapeRecords, OfCastsAreOfTheirTape) {
  const Variable w(ones({4, 4}));
  const Tensor x = ones({4, 4});
  const AutocastScope autocast(AutocastSettings{});
  for (int step = 0; step < 3; ++step) {
    GradientTape tape;
    const Tensor loss = reduce_sum(matmul(x, w) + matmul(x, w));
    const Tensor gradient = tape.gradient(loss, w);
    ASSERT_TRUE(gradient.defined());
    EXPECT_EQ(gradient.to_vector<float>(), std::vector<float>(16, 8.0f));
  }
}

}  // namespace
}  // namespace tandem::tape_records_test
