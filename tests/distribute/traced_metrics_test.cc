// Metrics that traced functions update.
#include <gtest/gtest.h>

#include <string>

#include "distribute/multi_worker_training.h"
#include "support/gpus.h"
#include "support/strategies.h"
#include "support/tensors.h"
#include "support/workers.h"
#include "tandem/tandem.h"

namespace tandem::traced_metrics_test {
namespace {

using distribute::PerReplica;
using distribute::Strategy;
using testing::cpus;
using testing::expect_error;
using testing::uneven;

class Largest : public metrics::Metric {
 public:
  Largest() : Metric("share_of_large") {
    large_ = add_weight("large");
    all_ = add_weight("all");
  }
  void update_state(const Tensor& y_true, const Tensor& y_pred) override {
    large_.assign_add(reduce_sum(cast(reduce_max(y_pred, {.axis = {1}}) > 0.5, float32)));
    all_.assign_add(reduce_sum(ones_like(cast(y_true, float32))));
  }
  Tensor result() override { return large_.value() / (all_.value() + 1e-6); }

 private:
  Variable large_, all_;
};

struct Measures {
  metrics::Mean mean{"mean"};
  metrics::SparseCategoricalAccuracy accuracy;
  metrics::SparseTopKCategoricalAccuracy top_2{2};
  metrics::MeanAbsoluteError error;
  metrics::AUC auc;
  metrics::Metric own = Largest();  // holds a copy

  void update(const data::Example& batch) {
    const Tensor scores = nn::softmax(slice(batch[0], {0, 2}, {-1, 3}));
    mean.update_state(reduce_mean(batch[0]));
    accuracy.update_state(batch[1], scores);
    top_2.update_state(batch[1], scores);
    error.update_state(one_hot(batch[1], 3), scores);
    auc.update_state(equal(batch[1], 0), slice(scores, {0, 0}, {-1, 1}));
    own.update_state(batch[1], scores);
  }
  std::vector<double> results() const {
    return {mean.result(),  accuracy.result(), top_2.result(),
            error.result(), auc.result(),      own.result()};
  }
  void reset() {
    for (metrics::Metric* metric :
         {static_cast<metrics::Metric*>(&mean), static_cast<metrics::Metric*>(&accuracy),
          static_cast<metrics::Metric*>(&top_2), static_cast<metrics::Metric*>(&error),
          static_cast<metrics::Metric*>(&auc), &own})
      metric->reset_state();
  }
};

std::vector<data::Example> five_batches() {
  std::vector<data::Example> batches;
  for (const data::Example& batch : uneven(30, 8)) {
    batches.push_back(batch);
    if (batches.size() == 5) break;
  }
  return batches;
}

TEST(TracedMetrics, EqualTheSameUpdatesInEagerCode) {
  Measures eager, traced;
  const auto update = function([&](const Tensor& x, const Tensor& y) {
    traced.update(data::Example{x, y});
  });
  for (int pass = 0; pass < 2; ++pass) {
    for (const data::Example& batch : five_batches()) {
      eager.update(batch);
      update(batch[0], batch[1]);
      EXPECT_EQ(traced.results(), eager.results());  // every bit
    }
    EXPECT_GT(traced.results()[1], 0.0);
    eager.reset();
    traced.reset();
    EXPECT_EQ(traced.results(), Measures().results());
  }
  EXPECT_EQ(update.num_traces(), 2u);  // the sizes of the batches
}

TEST(TracedMetrics, AddUpWithEagerUpdatesAndOverFunctions) {
  metrics::Mean mean;
  const auto add = function([&](const Tensor& x) { mean.update_state(x); });
  const auto add_twice = function([&](const Tensor& x) {
    mean.update_state(x);
    add(x * 2.0);  // becomes part of this one
  });
  mean.update_state(constant(1.0f));
  add(constant(2.0f));
  add_twice(constant(3.0f));
  EXPECT_EQ(mean.result(), (1.0 + 2.0 + 3.0 + 6.0) / 4);
}

TEST(TracedMetrics, InABranchAndALoopCountWhatRuns) {
  metrics::Mean mean;
  metrics::Sum sum;
  const auto step = function([&](const Tensor& x) {
    const Tensor taken = cond(
        x > 0.0,
        [&] {
          mean.update_state(x);
          return x + 0.0;
        },
        [&] { return x * 2.0; });
    return while_loop([](const Tensor& i) { return i < 3.0; },
                      [&](const Tensor& i) {
                        sum.update_state(i);
                        return i + 1.0;
                      },
                      taken);
  });
  for (float x : {1.0f, -1.0f, 2.0f}) step(constant(x));
  EXPECT_EQ(mean.result(), 1.5);
  EXPECT_EQ(sum.result(), (1.0 + 2) + (-2.0 - 1 + 0 + 1 + 2) + 2.0);
}

// One pass under a strategy, by a traced function around run() or in the replicas.
std::vector<double> measured(const Strategy& strategy, bool around) {
  Measures measures;
  const auto replica_step = [&](const data::Example& batch) { measures.update(batch); };
  const auto traced_step = function(replica_step);
  const auto run =
      function([&](const PerReplica<data::Example>& batch) { strategy.run(replica_step, batch); });
  int steps = 0;
  for (const auto& batch : strategy.experimental_distribute_dataset(uneven(30, 8))) {
    around ? run(batch) : strategy.run(traced_step, batch);
    if (++steps == 5) break;
  }
  return measures.results();
}

TEST(TracedMetrics, OfReplicasEqualOneDevice) {
  config::set_logical_cpus(3);
  Measures alone;
  for (const data::Example& batch : five_batches()) alone.update(batch);
  const auto expect_alone = [&](const Strategy& strategy) {
    for (const bool around : {false, true}) {
      const std::vector<double> results = measured(strategy, around);
      // The mean of the batches' means depends on how they are split.
      for (std::size_t i = 1; i < results.size(); ++i)
        EXPECT_NEAR(results[i], alone.results()[i], 1e-6) << i << around;
    }
  };
  expect_alone(cpus(3));
  expect_alone(distribute::MirroredStrategy({.devices = {"/cpu:1", "/cpu:2"}}));
  expect_alone(distribute::CentralStorageStrategy(
      {.compute_devices = {"/cpu:0", "/cpu:1"}, .parameter_device = "/cpu:2"}));
}

TEST(TracedMetrics, OnEmulatedGpusEqualOneDevice) {
  testing::use_gpus(2, 256);
  const distribute::MirroredStrategy strategy({.devices = {"/gpu:0", "/gpu:1"}});
  const std::vector<double> results = measured(strategy, true);
  EXPECT_EQ(results, measured(strategy, false));
  EXPECT_GT(results[1], 0.0);
}

TEST(TracedMetrics, OfWorkersAreOverAllProcesses) {
  const auto results = testing::run_workers(2, [](int) {
    const distribute::MultiWorkerMirroredStrategy strategy({.timeout = testing::kFarAway});
    metrics::Metric accuracy;
    {
      const auto scope = strategy.scope();
      accuracy = metrics::SparseCategoricalAccuracy();
    }
    const auto step = function([&](const PerReplica<data::Example>& batch) {
      strategy.run(
          [&](const data::Example& part) {
            accuracy.update_state(part[1], slice(part[0], {0, 2}, {-1, 3}));
          },
          batch);
    });
    int steps = 0;
    for (const auto& batch : strategy.experimental_distribute_dataset(uneven(30, 9))) {
      step(batch);
      if (++steps == 4) break;
    }
    return testing::text_of({accuracy.result()});
  });
  metrics::SparseCategoricalAccuracy alone;
  int steps = 0;
  for (const data::Example& batch : uneven(30, 9)) {
    alone.update_state(batch[1], slice(batch[0], {0, 2}, {-1, 3}));
    if (++steps == 4) break;
  }
  EXPECT_EQ(results[0], testing::text_of({alone.result()}));
  EXPECT_EQ(results[1], results[0]);
}

TEST(TracedMetrics, HaveNoValueWhileTheyAreTraced) {
  metrics::Mean mean("loss");
  const Tensor x = constant(1.0f);
  const auto reads = function([&](const Tensor& value) {
    mean.update_state(value);
    return value * static_cast<double>(mean.result());
  });
  expect_error<FailedPreconditionError>(
      [&] { reads(x); },
      "[metric 'loss'] result() was called in a traced function, which updates the metric when it "
      "runs: call result() outside of it");
  const auto resets = function([&](const Tensor& value) {
    mean.reset_state();
    return value;
  });
  expect_error<FailedPreconditionError>([&] { resets(x); },
                                        "[metric 'loss'] reset_state() was called in a traced");
  Graph graph;
  const auto scope = graph.as_default();
  const Tensor fed = placeholder(float32, Shape::scalar());
  expect_error<UnimplementedError>([&] { mean.update_state(fed); }, "in the graph of a session");
}

}  // namespace
}  // namespace tandem::traced_metrics_test
