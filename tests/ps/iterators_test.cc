// Datasets of the workers: closures that take elements from iterators, and workers that are
// restarted in the middle. Each worker is a server in this process.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "data/description.h"
#include "data/pipelines.h"
#include "ps/in_process.h"
#include "ps/local_cluster.h"
#include "support/expects.h"
#include "support/tensors.h"

namespace tandem::ps::iterators_test {
namespace {

using namespace std::chrono_literals;
using data::Dataset;
using data::describe;
using data::Example;
using tandem::testing::elements_of;
using tandem::testing::expect_error;
using tandem::testing::numbers;
using testing::LocalCluster;

// One server and two workers, and the function that returns the next element and adds 1 to v.
class WorkersIterators : public ::testing::Test {
 protected:
  static constexpr std::size_t kWorkers = 2;

  void SetUp() override {
    TANDEM_REQUIRE(rpc::has_grpc(), "grpc");
    cluster.emplace(1, kWorkers);
    Variable v(constant(0.0f), {.name = "v"});
    data::Iterator elements = numbers(1).iterate();
    tandem::detail::FunctionTraces traces({.name = "step"});
    tandem::detail::FunctionCall call;
    call.passes = {elements.pass()};
    const auto traced = traces.trace(call, [&](const std::vector<Tensor>&) {
      v.assign_add(ones({}));
      return std::vector<Tensor>{elements.next()[0] + 0};
    });
    function_ = split(*traced, testing::variable_3);
    store().create(3, "v", zeros({}));
    store().add_update(0, 0, function_.message.updates(0).part());
  }

  ParameterStore& store() { return *cluster->stores[0]; }
  std::unique_ptr<Coordinator> coordinator(std::size_t workers = kWorkers,
                                           std::size_t closures_per_worker = 1) {
    std::vector<Coordinator::WorkerTask> tasks = cluster->tasks();
    tasks.resize(workers);
    auto made = std::make_unique<Coordinator>(
        std::move(tasks), cluster->clients(),
        Coordinator::Options{.closures_per_worker = closures_per_worker});
    made->add_function(0, function_.message);
    return made;
  }
  static std::shared_ptr<RemoteResult> take(Coordinator& from, std::uint64_t iterator = 7) {
    return from.schedule({.function = 0, .iterators = {iterator}});
  }
  static int value(const std::shared_ptr<RemoteResult>& result) {
    return result->wait(20s)[0].item<std::int32_t>();
  }
  static std::vector<std::int32_t> take_some(Coordinator& from, int count) {
    std::vector<std::int32_t> values;
    for (int i = 0; i < count; ++i) values.push_back(value(take(from)));
    return values;
  }

  std::optional<LocalCluster> cluster;
  SplitFunction function_;
};

Dataset shuffled() { return numbers(12).shuffle(5, {.seed = 3}).repeat(3); }

TEST_F(WorkersIterators, EveryWorkerTakesAllElementsInOrder) {
  constexpr int kElements = 200;
  const auto coordinated = coordinator();
  coordinated->add_iterator(7, describe(numbers(kElements).repeat()));
  std::vector<std::shared_ptr<RemoteResult>> results;
  for (int i = 0; i < kElements; ++i) results.push_back(take(*coordinated));
  std::map<int, int> times;
  for (const auto& result : results) ++times[value(result)];
  // Element 0 to n-1 of one worker and 0 to m-1 of the other.
  int seen = 0;
  for (const auto& [element, count] : times) {
    EXPECT_LE(count, 2);
    seen += count;
  }
  EXPECT_EQ(seen, kElements);
  EXPECT_EQ(times.begin()->first, 0);
  EXPECT_EQ(times.rbegin()->first, static_cast<int>(times.size()) - 1);
}

TEST_F(WorkersIterators, RestartedWorkerContinuesWhereItWas) {
  const auto coordinated = coordinator(1);
  coordinated->add_iterator(7, describe(shuffled()));
  std::vector<std::int32_t> taken = take_some(*coordinated, 7);
  cluster->restart_worker(0);
  for (const int element : take_some(*coordinated, 13)) taken.push_back(element);
  cluster->restart_worker(0);
  for (const int element : take_some(*coordinated, 16)) taken.push_back(element);
  EXPECT_EQ(taken, elements_of(shuffled()));
  take(*coordinated);
  expect_error<OutOfRangeError>([&] { coordinated->join(); }, "[step] End of sequence");
}

// The worker dies when it has taken the element, and before it has sent the update.
TEST_F(WorkersIterators, ElementOfALostClosureIsTakenAgain) {
  const auto coordinated = coordinator(1);
  coordinated->add_iterator(7, describe(shuffled()));
  std::vector<std::int32_t> taken = take_some(*coordinated, 4);
  cluster->stop_server(0);
  const auto lost = take(*coordinated);
  std::this_thread::sleep_for(
      50ms);  // probably enough: else it takes no element, which is the same
  cluster->stop_worker(0);
  cluster->start_server(0);
  cluster->start_worker(0);
  taken.push_back(value(lost));
  for (const int element : take_some(*coordinated, 5)) taken.push_back(element);
  std::vector<std::int32_t> expected = elements_of(shuffled());
  expected.resize(taken.size());
  EXPECT_EQ(taken, expected);
  EXPECT_EQ(store().read(3).value.item<float>(), static_cast<float>(taken.size()));
}

class ClosuresWithIterators : public WorkersIterators,
                              public ::testing::WithParamInterface<std::size_t> {};

// Each worker's closures have consecutive elements, whatever happens.
TEST_P(ClosuresWithIterators, RestartsLeaveOutAndRepeatNoElement) {
  constexpr int kClosures = 300;
  const auto coordinated = coordinator(kWorkers, GetParam());
  coordinated->add_iterator(7, describe(numbers(kClosures)));
  std::vector<std::shared_ptr<RemoteResult>> results;
  for (int i = 0; i < kClosures; ++i) {
    results.push_back(take(*coordinated));
    if (i % 60 == 30) {
      while (coordinated->counts().finished < i - 20) std::this_thread::sleep_for(1ms);
      cluster->restart_worker(static_cast<std::size_t>(i / 60) % kWorkers);
    }
  }
  std::map<int, int> times;
  for (const auto& result : results) ++times[value(result)];
  int both = 0, one = 0;  // elements of both workers, and of one
  while (times.contains(both) && times[both] == 2) ++both;
  while (times.contains(both + one) && times[both + one] == 1) ++one;
  EXPECT_EQ(2 * both + one, kClosures);
  EXPECT_EQ(static_cast<int>(times.size()), both + one);
  EXPECT_EQ(store().read(3).value.item<float>(), static_cast<float>(kClosures));
  EXPECT_GE(coordinated->counts().lost_workers, 3);
}

INSTANTIATE_TEST_SUITE_P(All, ClosuresWithIterators, ::testing::Values(1, 3));

TEST_F(WorkersIterators, FunctionsOfAPipelineTravelWithIt) {
  const Dataset dataset = numbers(20)
                              .shuffle(20, {.seed = 2})
                              .filter([](const Example& e) { return e[0] > 3; })
                              .map(
                                  [](const Example& e) {
                                    return Example(e[0] * 100 + random::uniform_int({}, 0, 100));
                                  },
                                  {.num_parallel_calls = 2})
                              .prefetch(3);
  const auto coordinated = coordinator(1);
  coordinated->add_iterator(7, describe(dataset));
  std::vector<std::int32_t> taken = take_some(*coordinated, 9);
  cluster->restart_worker(0);
  for (const int element : take_some(*coordinated, 7)) taken.push_back(element);
  EXPECT_EQ(taken, elements_of(dataset));
}

std::vector<std::int32_t> taken_by(int worker, const Dataset& dataset) {
  const data::DatasetDescription own = data::for_worker(describe(dataset), worker);
  return elements_of(data::dataset_of(own.message, own.tensors, {}));
}

// Else two workers of the same speed would compute the gradients of the same batches.
TEST_F(WorkersIterators, WorkersHaveTheirOwnRandomNumbersUnlessSeedsAreGiven) {
  const Dataset shuffled = numbers(20).shuffle(20), seeded = numbers(20).shuffle(20, {.seed = 2});
  const Dataset mapped = seeded.map(
      [](const Example& e) { return Example(e[0] * 0 + random::uniform_int({}, 0, 1000)); });
  for (const Dataset& dataset : {shuffled, mapped}) {
    EXPECT_EQ(taken_by(0, dataset), elements_of(dataset));
    EXPECT_EQ(taken_by(1, dataset), taken_by(1, dataset));
    EXPECT_NE(taken_by(1, dataset), taken_by(0, dataset));
    EXPECT_NE(taken_by(1, dataset), taken_by(2, dataset));
  }
  EXPECT_EQ(taken_by(1, seeded), elements_of(seeded));
  data::register_dataset("shuffled",
                         [](const distribute::InputContext&) { return numbers(20).shuffle(20); });
  data::register_dataset("nested", [](const distribute::InputContext&) {
    return data::registered_dataset("shuffled");
  });
  for (const char* name : {"shuffled", "nested"})
    for (const int worker : {0, 1, 2})
      EXPECT_EQ(taken_by(worker, data::registered_dataset(name)), taken_by(worker, shuffled));
}

TEST_F(WorkersIterators, RestartedWorkersKeepTheirOwnOrders) {
  constexpr int kClosures = 24;
  const auto coordinated = coordinator();
  const Dataset shuffled = numbers(kClosures).shuffle(kClosures);
  coordinated->add_iterator(7, describe(shuffled));
  const std::vector<std::int32_t> first = taken_by(0, shuffled), second = taken_by(1, shuffled);
  std::vector<std::int32_t> taken;
  for (int half = 0; half < 2; ++half) {
    for (const int element : take_some(*coordinated, kClosures / 2)) taken.push_back(element);
    for (std::size_t i = 0; i < kWorkers; ++i) cluster->restart_worker(i);
  }
  // An interleaving of the beginnings of both orders: try all ways.
  std::set<std::size_t> of_first = {0};
  for (std::size_t i = 0; i < taken.size(); ++i) {
    std::set<std::size_t> next;
    for (const std::size_t from : of_first) {
      if (first[from] == taken[i]) next.insert(from + 1);
      if (second[i - from] == taken[i]) next.insert(from);
    }
    of_first = std::move(next);
  }
  EXPECT_FALSE(of_first.empty());
}

TEST_F(WorkersIterators, StartAtAPositionOfAnEpoch) {
  const auto coordinated = coordinator(1);
  const Dataset dataset = numbers(12).shuffle(12, {.seed = 9});
  coordinated->add_iterator(7, describe(dataset), {.epoch = 4, .skip = 2});
  EXPECT_EQ(take_some(*coordinated, 10), elements_of(dataset.iterate({.epoch = 4, .skip = 2})));
}

TEST_F(WorkersIterators, RegisteredDatasetIsThatOfTheWorkersProgram) {
  std::atomic<int> made = 0;
  data::register_dataset("squares", [&](const distribute::InputContext& context) {
    EXPECT_EQ(context.num_input_pipelines, 1);
    EXPECT_EQ(context.input_pipeline_id, 0);
    ++made;
    return numbers(20).map([](const Example& e) { return Example(e[0] * e[0]); });
  });
  const auto coordinated = coordinator(1);
  coordinated->add_iterator(
      7, describe(data::registered_dataset("squares", {{int32, Shape::scalar()}})));
  EXPECT_EQ(take_some(*coordinated, 3), (std::vector<std::int32_t>{0, 1, 4}));
  cluster->restart_worker(0);
  EXPECT_EQ(take_some(*coordinated, 2), (std::vector<std::int32_t>{9, 16}));
  EXPECT_EQ(made, 2);
  coordinated->add_iterator(
      8, describe(data::registered_dataset("cubes", {{int32, Shape::scalar()}})));
  take(*coordinated, 8);
  expect_error<NotFoundError>([&] { coordinated->join(); }, "no dataset 'cubes' is registered");
}

TEST_F(WorkersIterators, RemovedIteratorLeavesTheWorker) {
  const auto coordinated = coordinator(1);
  coordinated->add_iterator(7, describe(numbers(4)));
  coordinated->add_iterator(8, describe(numbers(4)));
  const auto queued = take(*coordinated);
  coordinated->remove_iterator(7);
  EXPECT_EQ(value(queued), 0);
  expect_error<NotFoundError>([&] { take(*coordinated); }, "iterator 7 was not added");
  EXPECT_EQ(value(take(*coordinated, 8)), 0);
  const FunctionRun run{.function = 0, .iterators = {7}};
  expect_error<NotFoundError>([&] { cluster->worker(0).run(run); }, "there is no iterator 7 here");
}

TEST_F(WorkersIterators, AreNotMadeInATracedFunction) {
  const auto coordinated = coordinator(1);
  const auto dataset = describe(numbers(4));
  const auto f = function([&](const Tensor& x) {
    coordinated->add_iterator(7, dataset);
    return x + 1.0;
  });
  expect_error<FailedPreconditionError>([&] { f(zeros({})); },
                                        "is not supported inside of td::function or in graph mode");
}

TEST_F(WorkersIterators, CallWithADamagedDescriptionIsAnError) {
  WorkerClient client(cluster->channel_to_worker(0));
  const rpc::CallOptions limit{.limit = 20s, .wait_for_server = true};
  data::DatasetDescription description = describe(numbers(4).batch(2));
  description.tensors.clear();
  expect_error<InvalidArgumentError>([&] { client.add_iterator(1, description, {}, limit); },
                                     "expected a tensor below 0, got 0");
  description = describe(numbers(4).batch(2));
  expect_error<InvalidArgumentError>(
      [&] { client.add_iterator(1, description, {.skip = -3}, limit); },
      "expected to skip at least 0 elements, got -3");
  client.add_iterator(1, description, {.skip = 1}, limit);
}

}  // namespace
}  // namespace tandem::ps::iterators_test
