// DistributedDataParallel: ranks that differ, diverge or fail.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "parallel/ddp_models.h"
#include "support/errors.h"
#include "support/process_groups.h"
#include "support/tensors.h"
#include "support/waiting.h"
#include "tandem/ddp.h"

namespace tandem::ddp_faults_test {
namespace {

using parallel::DistributedDataParallel;
using namespace testing;

Sequential dense(std::int64_t units, const std::string& name = "dense") {
  return Sequential({layers::Dense(units, {.input_shape = {3}, .name = name})});
}

void train_step(const DistributedDataParallel& model) {
  const auto data = examples(4);
  loss_of(model(data.x), data.y).backward();
}

TEST(DistributedDataParallelFaults, ModelsThatDiffer) {
  expect_group({.size = 3}, [](int rank) {
    const auto error = [&](const Sequential& model) {
      return error_of<InvalidArgumentError>([&] { DistributedDataParallel ddp(model); });
    };
    const std::string mine = rank == 2 ? "this process" : "process 2";
    const std::string sizes = error(dense(rank == 2 ? 5 : 4));
    expect_parts(sizes,
                 {"[DistributedDataParallel] params[0] in ",
                  "with sizes (3, 5) appears not to match sizes of the same param in process "
                  "0",
                  "'dense/kernel'"});
    EXPECT_NE(sizes.find("in " + mine + " with sizes"), std::string::npos) << sizes;
    expect_parts(error(dense(4, rank == 1 ? "other" : "dense")),
                 {"appears not to match", "'dense/kernel'", "'other/kernel'"});
    const Sequential two({layers::Dense(4, {.input_shape = {3}}), layers::Dense(2)});
    expect_parts(error(rank == 0 ? two : dense(4)),
                 {"expects same model across all ranks, but Rank 0 has 4 params, while rank 1 has "
                  "inconsistent 2 params."});
    DistributedDataParallel ddp(dense(4));  // the group is still usable
    EXPECT_EQ(comm::all_reduce(constant(1)).item<std::int32_t>(), 3);
  });
}

TEST(DistributedDataParallelFaults, ErrorsInASubgroupNameRanksOfTheJob) {
  expect_group({.size = 3}, [](int rank) {
    const comm::ProcessGroup group = comm::new_group({1, 2});
    if (rank == 0) return;
    const auto error = [&](const Sequential& model) {
      return error_of<InvalidArgumentError>(
          [&] { DistributedDataParallel ddp(model, {.process_group = group}); });
    };
    expect_parts(
        error(dense(rank == 2 ? 5 : 4)),
        {rank == 2 ? "in this process with sizes (3, 5)" : "in process 2 with sizes (3, 5)",
         "of the same param in process 1:", "in process 2 'dense/kernel'"});
    const Sequential two({layers::Dense(4, {.input_shape = {3}}), layers::Dense(2)});
    expect_parts(error(rank == 1 ? two : dense(4)),
                 {"Rank 1 has 4 params, while rank 2 has inconsistent 2 params."});

    const auto used = std::make_shared<TwoHeads::Used>();
    const DistributedDataParallel model(Model(Layer(std::make_shared<TwoHeads>(used))),
                                        {.process_group = group, .strict = true});
    used->second = rank == 1;
    const std::string unused = error_of<RuntimeError>([&] {
      reduce_sum(model(ones({2, 4}))).backward();
    });
    expect_parts(unused, {"rank 2: ", "second/kernel'"});
    EXPECT_EQ(unused.find("rank 1:"), std::string::npos) << unused;
  });
}

// Eager and traced. Rank 1 has another learning rate from the third step on.
TEST(DistributedDataParallelFaults, RanksThatDivergeAreNamed) {
  for (const bool traced : {false, true})
    expect_group({.size = 3}, [&](int rank) {
      const DistributedDataParallel model(perceptron(1), {.parameter_check_steps = 5});
      auto optimizer = optimizers::SGD(0.1, model.parameters());
      const auto data = examples(4);
      const std::function<Tensor(const Tensor&)> step = [&](const Tensor& x) {
        optimizer.zero_grad();
        const Tensor loss = loss_of(model(x), data.y);
        loss.backward();
        optimizer.step();
        return loss;
      };
      const auto program = function(step);
      const auto run = [&] { return traced ? program(data.x) : step(data.x); };
      for (int i = 0; i < 12; ++i) run();
      if (rank == 1) optimizer.set_learning_rate(0.2);
      for (int i = 12; i < 14; ++i) run();
      const std::string text = error_of<InvalidArgumentError>(run);
      expect_parts(text, {"[DistributedDataParallel] 6 of 6 parameters differ between rank 1 and "
                          "ranks 0 and 2 in step 15, the first is "});
      if (traced) return;
      EXPECT_NE(error_of<FailedPreconditionError>(run).find(text), std::string::npos);
    });
}

TEST(DistributedDataParallelFaults, WeightsThatOneRankHasLoadedAreNamed) {
  expect_group({.size = 2}, [](int rank) {
    const DistributedDataParallel model(dense(4), {.parameter_check_steps = 1});
    const DistributedDataParallel unchecked(dense(4), {.parameter_check_steps = 0});
    const auto step = [](const DistributedDataParallel& of) {
      reduce_sum(of(ones({2, 3}))).backward();
    };
    step(model);
    step(unchecked);
    if (rank == 1)
      for (const auto& each : {model, unchecked}) {
        Variable bias = each.parameters()[1];
        bias.assign(ones({4}));
      }
    EXPECT_EQ(error_of<InvalidArgumentError>([&] { step(model); })
                  .find("[DistributedDataParallel] 1 of 2 parameters differ between rank 1 and "
                        "rank 0 in step 2, the first is 'dense/bias'"),
              0u);
    step(unchecked);
  });
}

TEST(DistributedDataParallelFaults, ModelsThatCannotBeWrapped) {
  EXPECT_EQ(error_of<FailedPreconditionError>([] { DistributedDataParallel ddp(dense(2)); }),
            "[DistributedDataParallel] Default process group has not been initialized, please make "
            "sure to call init_process_group.");
  EXPECT_EQ(error_of<FailedPreconditionError>([] {
              DistributedDataParallel ddp(Sequential({layers::Dense(2)}));
            }).substr(0, 60),
            "[DistributedDataParallel] Modules with uninitialized paramet");
  EXPECT_EQ(error_of<InvalidArgumentError>([] {
              DistributedDataParallel ddp(Sequential({layers::Flatten({.input_shape = {2}})}));
            }),
            "[DistributedDataParallel] DistributedDataParallel is not needed when a module doesn't "
            "have any parameter that requires a gradient.");
}

TEST(DistributedDataParallelFaults, StrictNamesUnusedParametersInTheSameStep) {
  expect_group({.size = 2}, [](int rank) {
    const auto used = std::make_shared<TwoHeads::Used>();
    const DistributedDataParallel model(Model(Layer(std::make_shared<TwoHeads>(used))),
                                        {.strict = true});
    const auto step = [&] { reduce_sum(model(ones({2, 4}))).backward(); };
    step();
    used->second = rank == 0;
    const std::string text = error_of<RuntimeError>(step);
    expect_parts(text, {"Expected to have finished reduction", "rank 1: ", "second/kernel'",
                        "second/bias'"});
    EXPECT_EQ(text.find("first/"), std::string::npos) << text;
    EXPECT_EQ(text.find("rank 0:"), std::string::npos) << text;
    if (rank == 1) expect_parts(text, {"second/kernel' (not used in forward)"});
    used->second = true;
    step();  // training continues
    // Used in forward, but not in the loss.
    EXPECT_NE(error_of<RuntimeError>([&] {
                const Tensor out = model(ones({2, 4}));
                const Variable kernel = model.parameters()[0];
                reduce_sum(kernel * (rank == 0 ? 1.0 : 2.0) + 0.0 * kernel).backward();
              }).find("used in forward, but the loss does not depend on it"),
              std::string::npos);
  });
}

TEST(DistributedDataParallelFaults, UnusedParametersAreSentAsZeros) {
  for (const bool look : {false, true})
    expect_group({.size = 2}, [&](int rank) {
      const auto used = std::make_shared<TwoHeads::Used>();
      const DistributedDataParallel model(Model(Layer(std::make_shared<TwoHeads>(used))),
                                          {.find_unused_parameters = look});
      const auto parameters = model.parameters();  // first's kernel and bias, second's
      for (int round = 0; round < 3; ++round) {
        for (Variable parameter : parameters) parameter.zero_grad();
        used->first = rank == 0;
        used->second = false;
        if (rank == 1) used->second = round == 1;
        if (rank == 1 && round != 1) used->first = true;
        reduce_sum(model(ones({2, 4}))).backward();
        const float first = round == 1 ? 1.0f : 2.0f;  // sums over 2 examples, averaged over ranks
        EXPECT_EQ(parameters[1].grad().to_vector<float>(), std::vector<float>(2, first));
        if (round == 1) {
          EXPECT_EQ(parameters[3].grad().to_vector<float>(), std::vector<float>(2, 1.0f));
        } else {
          EXPECT_FALSE(parameters[3].grad().defined());  // no rank had a gradient
        }
      }
    });
}

// Rank 1 dies when all have finished five steps: a rank that still waits for the others' parts of
// the last step learns of a death in that step. The survivors leave only after both have seen the
// error; a rank that left earlier would be reported, too.
TEST(DistributedDataParallelFaults, ARankIsKilledInMidTraining) {
  for (const std::string backend : {"shm", "gloo"}) {
    if (backend == "gloo") TANDEM_REQUIRE(has_gloo(), "gloo");
    const Arrivals trained, reported;
    const ExitCodes codes = testing::run_group({.size = 3, .backend = backend}, [&](int rank) {
      const DistributedDataParallel model(perceptron(5));
      int steps = 0;
      const std::string text = error_of<Error>([&] {
        for (; steps < 1000; ++steps) {
          if (steps == 5) trained.meet(3);
          if (rank == 1 && steps == 5) kill(getpid(), SIGKILL);
          train_step(model);
        }
      });
      EXPECT_EQ(steps, 5);
      expect_parts(text, {"rank 1"});
      expect_parts(error_of<FailedPreconditionError>([&] { train_step(model); }),
                   {"an earlier step has failed", "rank 1"});
      reported.meet(2);
      _exit(::testing::Test::HasFailure()
                ? 1
                : 0);  // skips the exit handlers, which would wait for the others
    });
    EXPECT_EQ(codes, (ExitCodes{0, 128 + SIGKILL, 0}));
  }
}

TEST(DistributedDataParallelFaults, ARankThatEndsEarlyWithoutJoin) {
  const ExitCodes codes = testing::run_group({.size = 2}, [](int rank) {
    const DistributedDataParallel model(perceptron(5));
    train_step(model);
    if (rank == 1) return;
    expect_parts(error_of<Error>([&] {
                   for (int i = 0; i < 3; ++i) train_step(model);
                 }),
                 {"rank 1"});
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  });
  EXPECT_EQ(codes[0], 0);
}

TEST(DistributedDataParallelFaults, ARankThatIsLateIsNamed) {
  const Arrivals reported;
  const ExitCodes codes =
      testing::run_group({.size = 2, .timeout = std::chrono::seconds(5)}, [&](int rank) {
        const DistributedDataParallel model(perceptron(5));
        train_step(model);
        if (rank == 0) {
          expect_parts(error_of<DeadlineExceededError>([&] { train_step(model); }),
                       {"rank 1 did not reach", "within 5000 ms"});
          reported.arrive();
        } else {
          reported.wait_for(1);
        }
        _exit(::testing::Test::HasFailure() ? 1 : 0);
      });
  EXPECT_EQ(codes, ExitCodes(2, 0));
}

TEST(DistributedDataParallelFaults, EarlyTerminationThrowsIfEnabled) {
  expect_group({.size = 2}, [](int rank) {
    const DistributedDataParallel model(perceptron(5));
    const std::string text = error_of<RuntimeError>([&] {
      model.join(
          [&] {
            for (int i = 0; i < 3 + rank; ++i) train_step(model);
          },
          {.throw_on_early_termination = true});
    });
    expect_parts(text, {rank == 0 ? "Rank 0 exhausted all inputs."
                                  : "Detected at least one rank that exhausted inputs. Throwing "
                                    "across all ranks."});
  });
}

TEST(DistributedDataParallelFaults, APassThatFails) {
  expect_group({.size = 1}, [](int) {
    const DistributedDataParallel model(dense(2));
    model.parameters()[0].impl();
    const Tensor loss = reduce_sum(model(ones({1, 3})));
    loss.backward();
    EXPECT_THROW(loss.backward(), RuntimeError);  // a second time: before any gradient
    reduce_sum(model(ones({1, 3}))).backward();
  });
}

TEST(DistributedDataParallelFaults, StepsThatCannotBeTracedThrow) {
  expect_group({.size = 1}, [](int) {
    const DistributedDataParallel model(dense(2));
    const auto step = function([&](const Tensor& x) {
      for (Variable parameter : model.parameters()) parameter.zero_grad();
      const Tensor loss = reduce_sum(model(x));
      loss.backward();
      return loss;
    });
    expect_parts(error_of<UnimplementedError>([&] { model.join([&] {
                                                      step(ones({1, 3}));
                                                    }); }),
                 {"expected eager steps inside join(), got a traced one"});
    step(ones({1, 3}));
    expect_parts(error_of<FailedPreconditionError>([&] {
                   model.join([&] { step(ones({1, 3})); });
                 }),
                 {"join()"});
  });
}

}  // namespace
}  // namespace tandem::ddp_faults_test
