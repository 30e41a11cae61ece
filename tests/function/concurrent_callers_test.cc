// One function or session that several threads call.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/dispatch.h"
#include "tandem/tandem.h"

namespace tandem::concurrent_callers_test {
namespace {

void run_on_threads(int count, const std::function<void(int)>& call) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(call, i);
  for (std::thread& thread : threads) thread.join();
}

// --- runs happen at the same time ---

struct Meeting {
  std::mutex mutex;
  std::condition_variable changed;
  int arrived = 0;
};
Meeting meeting;

// Returns its input when two runs are in it.
const OpDef kMeet = {.name = "Meet",
                     .infer = [](InferContext& c) { c.add_output(float32, c.shape(0)); },
                     .cpu_kernel =
                         [](KernelContext& c) {
                           std::memcpy(
                               c.outputs[0].data, c.inputs[0].data,
                               static_cast<std::size_t>(c.inputs[0].size()) * sizeof(float));
                           std::unique_lock lock(meeting.mutex);
                           ++meeting.arrived;
                           meeting.changed.notify_all();
                           if (!meeting.changed.wait_for(lock, std::chrono::seconds(60),
                                                         [] { return meeting.arrived >= 2; }))
                             throw RuntimeError("the other caller did not come");
                         },
                     .gpu = false};

Tensor meet(const Tensor& x) { return run(kMeet, {&x}) + 1.0; }

void expect_meeting(const std::function<Tensor(const Tensor&)>& call) {
  meeting.arrived = 0;
  run_on_threads(2, [&](int i) {
    const DeviceScope cpu("/cpu:0");
    const NoGradScope no_grad;
    const auto value = static_cast<float>(i);
    EXPECT_EQ(call(full({100}, value)).to_vector<float>(), std::vector<float>(100, value + 1.0f));
  });
}

TEST(ConcurrentCallers, RunsOfAFunctionHappenAtTheSameTime) { expect_meeting(function(meet)); }

TEST(ConcurrentCallers, RunsOfAFunctionWithUnknownSizesHappenAtTheSameTime) {
  expect_meeting(function(meet, {.input_signature = {{{-1}}}}));
}

TEST(ConcurrentCallers, RunsOfASessionHappenAtTheSameTime) {
  Graph graph;
  Tensor x, y;
  {
    const GraphScope building(graph);
    const DeviceScope cpu("/cpu:0");
    x = placeholder(float32, {100});
    y = meet(x);
  }
  Session session(graph);
  expect_meeting([&](const Tensor& value) { return session.run({{x, value}}, y); });
}

// --- their results are those of one caller ---

Sequential small_model() {
  return Sequential({layers::Dense(32, {.activation = "relu", .input_shape = {16}}),
                     layers::BatchNormalization(), layers::Dense(4)});
}

Tensor batch(int caller, int call) {
  random::Generator generator(static_cast<std::uint64_t>(100 * caller + call + 1));
  return generator.normal({call % 3 + 1, 16});
}

TEST(ConcurrentCallers, AFunctionGivesTheBitsOfOneCaller) {
  const Sequential model = small_model();
  const auto forward = function([&](const Tensor& x) { return nn::softmax(model(x)); });
  std::vector<std::vector<float>> expected;
  for (int i = 0; i < 4 * 30; ++i) {
    const NoGradScope no_grad;
    expected.push_back(forward(batch(i / 30, i % 30)).to_vector<float>());
  }
  run_on_threads(4, [&](int caller) {
    const NoGradScope no_grad;
    for (int call = 0; call < 30; ++call)
      EXPECT_EQ(forward(batch(caller, call)).to_vector<float>(),
                expected[static_cast<std::size_t>(30 * caller + call)]);
  });
}

TEST(ConcurrentCallers, RecordedCallsHaveTheGradientsOfOneCaller) {
  const Variable w(ones({16, 4}));
  const auto loss = function([&](const Tensor& x) { return reduce_sum(tanh(matmul(x, w))); });
  const auto gradient = [&](int caller, int call) {
    GradientTape tape;
    const Tensor x = batch(caller, call);
    tape.watch(x);
    return tape.gradient(loss(x), x).to_vector<float>();
  };
  std::vector<std::vector<float>> expected;
  for (int i = 0; i < 4 * 20; ++i) expected.push_back(gradient(i / 20, i % 20));
  run_on_threads(4, [&](int caller) {
    for (int call = 0; call < 20; ++call)
      EXPECT_EQ(gradient(caller, call), expected[static_cast<std::size_t>(20 * caller + call)]);
  });
}

// No run reads a variable while another one writes it.
TEST(ConcurrentCallers, RunsOfASessionThatWriteAVariableAreAlone) {
  constexpr std::int64_t kSize = 20000;
  Graph graph;
  Tensor read;
  Graph::Operation more;
  {
    const GraphScope building(graph);
    Variable v(zeros({kSize}));
    read = v * 1.0;
    more = graph.updates("more", [&] { v.assign_add(ones({kSize})); });
  }
  Session session(graph, {.initialize_variables = true});
  constexpr int kWrites = 100;
  run_on_threads(3, [&](int caller) {
    float last = 0;
    for (int i = 0; i < kWrites; ++i) {
      if (caller == 0) {
        session.run(more);
        continue;
      }
      const std::vector<float> values = session.run(read).to_vector<float>();
      EXPECT_EQ(values, std::vector<float>(static_cast<std::size_t>(kSize), values[0]));
      EXPECT_GE(values[0], last);
      last = values[0];
    }
  });
  EXPECT_EQ(session.run(read).to_vector<float>()[0], static_cast<float>(kWrites));
}

TEST(ConcurrentCallers, CallsThatUpdateAVariableAreAllCounted) {
  Variable count(zeros({}));
  const auto increment = function([&](const Tensor& by) {
    count.assign_add(by);
    return by * 2.0;
  });
  run_on_threads(4, [&](int) {
    for (int i = 0; i < 50; ++i) increment(ones({}));
  });
  EXPECT_EQ(count.value().item<float>(), 200.0f);
}

TEST(ConcurrentCallers, ASessionIsClosedAfterItsRuns) {
  Graph graph;
  Tensor x, y;
  {
    const GraphScope building(graph);
    x = placeholder(float32, {50, 50});
    y = matmul(x, x);
  }
  for (int round = 0; round < 20; ++round) {
    Session session(graph);
    run_on_threads(3, [&](int caller) {
      if (caller == 0) return session.close();
      for (int i = 0; i < 10; ++i) try {
          EXPECT_EQ(session.run({{x, ones({50, 50})}}, y).to_vector<float>()[0], 50.0f);
        } catch (const RuntimeError& error) {
          EXPECT_STREQ(error.what(), "Attempted to use a closed Session.");
        }
    });
  }
}

}  // namespace
}  // namespace tandem::concurrent_callers_test
