#include "tandem/data_loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "data/pipelines.h"
#include "support/tensors.h"
#include "tandem/datasets.h"
#include "tandem/errors.h"
#include "tandem/names.h"
#include "tandem/random.h"

namespace tandem::data_loader_test {
namespace {

using data::DataLoader;
using data::DistributedSampler;
using data::Example;
using data::IndexedDataset;
using data::RandomSampler;
using data::Sampler;
using data::SequentialSampler;
using testing::batches_of;
using testing::elements_of;
using testing::expect_error;
using testing::values_of;

using Indices = std::vector<std::int64_t>;
using Values = std::vector<std::int32_t>;

// The examples 0, 10, 20, ..., as rows of a tensor or made by a function.
IndexedDataset tens(std::int64_t size) {
  Values values(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int32_t>(10 * i);
  return IndexedDataset::from_tensor_slices(constant(values));
}
IndexedDataset made_tens(std::int64_t size) {
  return {size,
          [](std::int64_t i) { return Example(constant(static_cast<std::int32_t>(10 * i))); }};
}

Indices sorted(Indices indices) {
  std::sort(indices.begin(), indices.end());
  return indices;
}

Indices up_to(std::int64_t size) {
  Indices indices(static_cast<std::size_t>(size));
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

// The examples 0, 10, 20, ...
struct OwnTens : data::MapDataset {
  explicit OwnTens(std::size_t size) : size_(size) {}
  Example get(std::size_t index) const override {
    return Example(constant(static_cast<std::int32_t>(10 * index)));
  }
  std::size_t size() const override { return size_; }

 private:
  std::size_t size_;
};
// The same with a function that changes the object, as in libtorch.
struct CountingTens : data::MapDataset {
  Example get(std::size_t index) override {
    ++calls;
    return Example(constant(static_cast<std::int32_t>(10 * index)));
  }
  std::size_t size() const override { return 4; }
  int calls = 0;
};
struct IncompleteDataset : data::MapDataset {
  std::size_t size() const override { return 1; }
};

TEST(MapDataset, IsLoadedByValueAndByPointer) {
  const OwnTens tens(5);
  const DataLoader by_value(tens, {.batch_size = 2});
  EXPECT_EQ(by_value.size(), 3);
  Values values;
  for (const Example& batch : by_value)
    for (std::int32_t value : batch.to_vector<std::int32_t>()) values.push_back(value);
  EXPECT_EQ(values, (Values{0, 10, 20, 30, 40}));
  const auto counting = std::make_shared<CountingTens>();
  for (const Example& batch : DataLoader(counting, {.batch_size = 4}))
    EXPECT_EQ(batch.to_vector<std::int32_t>(), (Values{0, 10, 20, 30}));
  EXPECT_EQ(counting->calls, 4);
  const std::shared_ptr<data::MapDataset> base = counting;
  EXPECT_EQ(IndexedDataset(base)[2].item<std::int32_t>(), 20);
  expect_error<UnimplementedError>(
      [] { static_cast<void>(IndexedDataset(IncompleteDataset())[0]); },
      "expected a class with td::data::Example get(std::size_t index)");
}

TEST(Samplers, TakeTheirSizesFromDatasets) {
  const OwnTens tens(7);
  EXPECT_EQ(SequentialSampler(tens).indices(0), up_to(7));
  EXPECT_EQ(SequentialSampler(std::make_shared<OwnTens>(3)).size(), 3);
  EXPECT_EQ(sorted(RandomSampler(tens).indices(0)), up_to(7));
  EXPECT_EQ(RandomSampler(made_tens(6), {.num_samples = 2}).size(), 2);
  const data::TensorDataset rows(constant({{1, 2}, {3, 4}, {5, 6}}));
  EXPECT_EQ(DistributedSampler(rows, {.num_replicas = 2, .rank = 1, .shuffle = false}).indices(0),
            (Indices{1, 0}));
}

TEST(DataLoader, TakesAPointerToASampler) {
  DistributedSampler sampler(tens(4), {.num_replicas = 2, .rank = 0, .shuffle = true});
  const DataLoader loader(tens(4), {.batch_size = 2, .sampler = &sampler});
  const auto order_of = [&] {
    Values order;
    for (const Example& batch : loader) order = batch.to_vector<std::int32_t>();
    return order;
  };
  // The loader follows set_epoch() of the sampler at that address.
  for (std::uint64_t epoch = 0; epoch < 8; ++epoch) {
    sampler.set_epoch(epoch);
    Values expected;
    for (std::int64_t index : sampler.indices(0))
      expected.push_back(static_cast<std::int32_t>(10 * index));
    EXPECT_EQ(order_of(), expected);
  }
  const auto shared = std::make_shared<SequentialSampler>(3);
  EXPECT_EQ(DataLoader(tens(4), {.sampler = shared}).size(), 3);
  const SequentialSampler* none = nullptr;
  expect_error<InvalidArgumentError>([&] { Sampler sampler(none); }, "got a null pointer");
}

TEST(TensorDataset, HasTheRowsOfTheTensors) {
  const data::TensorDataset dataset(constant({{1, 2}, {3, 4}, {5, 6}}), constant({7, 8, 9}));
  EXPECT_EQ(dataset.size(), 3);
  const auto [x, y] = dataset[1];
  EXPECT_EQ(x.to_vector<std::int32_t>(), (Values{3, 4}));
  EXPECT_EQ(y.item<std::int32_t>(), 8);
  const data::TensorDataset copy = dataset;
  Values sums;
  for (const auto& [xs, ys] : DataLoader(copy, {.batch_size = 2}))
    sums.push_back(xs[0].to_vector<std::int32_t>()[0] + ys[0].item<std::int32_t>());
  EXPECT_EQ(sums, (Values{1 + 7, 5 + 9}));
  EXPECT_THROW(data::TensorDataset(constant({1, 2}), constant({1})), InvalidArgumentError);
}

// --- samplers ---

TEST(SequentialSampler, ReturnsIndicesInOrder) {
  EXPECT_EQ(SequentialSampler(4).indices(3), up_to(4));
}

TEST(RandomSampler, IsAPermutationOfEachEpoch) {
  const RandomSampler sampler(50, {.seed = 1});
  EXPECT_EQ(sorted(sampler.indices(0)), up_to(50));
  EXPECT_NE(sampler.indices(0), up_to(50));
  EXPECT_NE(sampler.indices(0), sampler.indices(1));
  EXPECT_EQ(sampler.indices(1), RandomSampler(50, {.seed = 1}).indices(1));
  EXPECT_NE(sampler.indices(0), RandomSampler(50, {.seed = 2}).indices(0));
}

TEST(RandomSampler, ReturnsTheRequestedNumberOfSamples) {
  const Indices twice = RandomSampler(5, {.num_samples = 10, .seed = 3}).indices(0);
  EXPECT_EQ(sorted({twice.begin(), twice.begin() + 5}), up_to(5));
  EXPECT_EQ(sorted({twice.begin() + 5, twice.end()}), up_to(5));
  const Indices few = RandomSampler(50, {.num_samples = 7, .seed = 3}).indices(0);
  EXPECT_EQ(few.size(), 7u);

  const Indices sampled =
      RandomSampler(4, {.replacement = true, .num_samples = 4000, .seed = 3}).indices(0);
  std::map<std::int64_t, int> counts;
  for (std::int64_t i : sampled) ++counts[i];
  ASSERT_EQ(counts.size(), 4u);
  for (const auto& [index, count] : counts) EXPECT_NEAR(count, 1000, 150) << index;
}

TEST(RandomSampler, TakesItsSeedFromTheProcess) {
  random::set_seed(11);
  const Indices first = RandomSampler(20).indices(0);
  random::set_seed(11);
  EXPECT_EQ(RandomSampler(20).indices(0), first);
  random::set_seed(12);
  EXPECT_NE(RandomSampler(20).indices(0), first);
}

TEST(DistributedSampler, PartitionsAPermutation) {
  for (const int ranks : {1, 2, 3, 4}) {
    Indices all;
    for (int rank = 0; rank < ranks; ++rank) {
      const DistributedSampler sampler(24, {.num_replicas = ranks, .rank = rank, .seed = 5});
      EXPECT_EQ(sampler.size(), 24 / ranks);
      const Indices mine = sampler.indices(0);
      all.insert(all.end(), mine.begin(), mine.end());
    }
    EXPECT_EQ(sorted(all), up_to(24)) << ranks;
  }
}

TEST(DistributedSampler, TakesEveryNthAndFillsUpFromTheFront) {
  const auto indices = [](std::int64_t size, int ranks, int rank, bool drop_last) {
    return DistributedSampler(
               size,
               {.num_replicas = ranks, .rank = rank, .shuffle = false, .drop_last = drop_last})
        .indices(0);
  };
  EXPECT_EQ(indices(10, 4, 0, false), (Indices{0, 4, 8}));
  EXPECT_EQ(indices(10, 4, 1, false), (Indices{1, 5, 9}));
  EXPECT_EQ(indices(10, 4, 2, false), (Indices{2, 6, 0}));
  EXPECT_EQ(indices(10, 4, 3, false), (Indices{3, 7, 1}));
  EXPECT_EQ(indices(10, 4, 3, true), (Indices{3, 7}));
  // More ranks than twice the examples: the whole list is repeated.
  EXPECT_EQ(indices(2, 7, 6, false), (Indices{0}));
  EXPECT_EQ(indices(2, 7, 5, false), (Indices{1}));
  EXPECT_TRUE(indices(2, 7, 5, true).empty());
  EXPECT_TRUE(indices(0, 2, 1, false).empty());
}

TEST(DistributedSampler, ChangesItsOrderWithSetEpochAlone) {
  DistributedSampler sampler(30, {.num_replicas = 2, .rank = 1});
  const Indices first = sampler.indices(0);
  EXPECT_EQ(sampler.indices(1), first);
  DistributedSampler copy = sampler;
  copy.set_epoch(1);
  EXPECT_NE(sampler.indices(0), first);
  sampler.set_epoch(0);
  EXPECT_EQ(sampler.indices(7), first);
}

TEST(DistributedSampler, RejectsARankOutOfRange) {
  const auto make = [](int ranks, int rank) {
    return [=] { DistributedSampler(10, {.num_replicas = ranks, .rank = rank}); };
  };
  expect_error<InvalidArgumentError>(make(2, 2),
                                     "Invalid rank 2, rank should be in the interval [0, 1]");
  expect_error<InvalidArgumentError>(make(2, -1),
                                     "Invalid rank -1, rank should be in the interval [0, 1]");
  expect_error<InvalidArgumentError>(
      make(0, 0), "[DistributedSampler] expected num_replicas of at least 1, got 0");
}

TEST(Sampler, RejectsAnOrderOfAnotherLength) {
  const Sampler sampler(3, [](std::uint64_t) { return Indices{1, 2}; });
  expect_error<InvalidArgumentError>([&] { sampler.indices(4); },
                                     "[Sampler] expected 3 indices for epoch 4, got 2");
  EXPECT_THROW(Sampler(-1, [](std::uint64_t) { return Indices(); }), InvalidArgumentError);
  EXPECT_THROW(Sampler(1, nullptr), InvalidArgumentError);
}

// --- indexed datasets ---

TEST(IndexedDataset, ReturnsExamplesByIndex) {
  EXPECT_EQ(tens(5)[3][0].item<std::int32_t>(), 30);
  EXPECT_EQ(made_tens(5)[3][0].item<std::int32_t>(), 30);
  expect_error<OutOfRangeError>([] { tens(5)[5]; },
                                "[IndexedDataset] expected an index of [0, 5), got 5");
  EXPECT_THROW(made_tens(5)[-1], OutOfRangeError);
  EXPECT_THROW(IndexedDataset(-1, [](std::int64_t) { return Example(); }), InvalidArgumentError);
}

// --- loaders ---

TEST(DataLoader, BatchesInTheOrderOfItsSampler) {
  for (const int workers : {0, 1, 3})
    for (const IndexedDataset& examples : {tens(5), made_tens(5)}) {
      const Sampler backwards(5, [](std::uint64_t) { return Indices{4, 3, 2, 1, 0}; });
      const DataLoader loader(examples,
                              {.batch_size = 2, .sampler = backwards, .num_workers = workers});
      EXPECT_EQ(loader.size(), 3);
      EXPECT_EQ(batches_of(loader.dataset().iterate()),
                (std::vector<Values>{{40, 30}, {20, 10}, {0}}));
      const DataLoader full(
          examples,
          {.batch_size = 2, .sampler = backwards, .num_workers = workers, .drop_last = true});
      EXPECT_EQ(full.size(), 2);
      EXPECT_EQ(batches_of(full.dataset().iterate()), (std::vector<Values>{{40, 30}, {20, 10}}));
    }
}

TEST(DataLoader, ReshufflesEachEpoch) {
  const DataLoader loader(tens(40), {.batch_size = 8, .shuffle = true, .num_workers = 1});
  const auto epoch = [&] {
    Values values;
    for (const Example& batch : loader) {
      const Values more = testing::values_in(batch);
      values.insert(values.end(), more.begin(), more.end());
    }
    return values;
  };
  const Values first = epoch(), second = epoch();
  EXPECT_NE(first, second);
  EXPECT_TRUE(std::is_permutation(first.begin(), first.end(), second.begin(), second.end()));
  EXPECT_EQ(first.size(), 40u);
}

TEST(DataLoader, FollowsSetEpochOfItsSampler) {
  DistributedSampler sampler(16, {.num_replicas = 2, .rank = 0});
  const DataLoader loader(tens(16), {.batch_size = 4, .sampler = sampler});
  const auto once = elements_of(loader.dataset(), 0);
  EXPECT_EQ(elements_of(loader.dataset(), 1), once);
  sampler.set_epoch(1);
  EXPECT_NE(elements_of(loader.dataset(), 1), once);
}

TEST(DataLoader, ContinuesFromAnIteratorPosition) {
  const DataLoader loader(made_tens(12), {.batch_size = 2, .shuffle = true});
  auto iterator = loader.dataset().iterate({.epoch = 2});
  iterator.next();
  iterator.next();
  auto continued = loader.dataset().iterate(iterator.position());
  EXPECT_EQ(batches_of(iterator), batches_of(continued));
}

TEST(DataLoader, TakesLabelledImages) {
  const auto digits = datasets::synthetic_digits({.train = 10, .test = 1, .seed = 1});
  const DataLoader loader(digits.train, {.batch_size = 4});
  std::int64_t examples = 0;
  for (const Example& batch : loader) {
    EXPECT_EQ(batch[0].shape().dims().size(), 4);
    EXPECT_EQ(batch[0].dim(0), batch[1].dim(0));
    examples += batch[0].dim(0);
  }
  EXPECT_EQ(examples, 10);
}

TEST(DataLoader, RejectsInvalidOptions) {
  const auto load = [](data::DataLoaderArguments options) {
    return [options] { DataLoader(tens(4), options); };
  };
  expect_error<InvalidArgumentError>(load({.batch_size = 0}),
                                     "[batch] expected a batch size of at least 1, got 0");
  expect_error<InvalidArgumentError>(load({.num_workers = -1}),
                                     "[DataLoader] expected num_workers of at least 0, got -1");
  expect_error<InvalidArgumentError>(
      load({.prefetch_factor = 0}), "[DataLoader] expected a prefetch_factor of at least 1, got 0");
  expect_error<InvalidArgumentError>(load({.shuffle = true, .sampler = SequentialSampler(4)}),
                                     "[DataLoader] expected either a sampler or shuffle");
  expect_error<InvalidArgumentError>(
      [] {
        const DataLoader loader(tens(4),
                                {.sampler = Sampler(1, [](std::uint64_t) { return Indices{4}; })});
        elements_of(loader.dataset());
      },
      "[DataLoader] expected the sampler to return indices of [0, 4), got 4");
}

TEST(DistributedSampler, TakesRanksAsArguments) {
  const DistributedSampler by_options(10, {.num_replicas = 3, .rank = 1}), sampler(10, 3, 1);
  EXPECT_EQ(sampler.indices(0), by_options.indices(0));
  const data::TensorDataset pairs({constant({1, 2}), constant({3, 4})});
  EXPECT_EQ(DistributedSampler(pairs, 2, 0).size(), 1);
  EXPECT_EQ(pairs[1][1].item<std::int32_t>(), 4);
}

// A dataset of libtorch's kind.
struct Squares : data::datasets::Dataset<Squares> {
  Example get(std::size_t index) override {
    const auto i = static_cast<std::int32_t>(index);
    return {constant(i), constant(i * i)};
  }
  std::optional<std::size_t> size() const override { return 5; }
};
struct Endless : Squares {
  std::optional<std::size_t> size() const override { return std::nullopt; }
};

TEST(MakeDataLoader, LoadsADatasetOfLibtorchsKind) {
  const auto loader = data::make_data_loader(Squares(), {.batch_size = 2});
  Values seen, squares;
  for (const auto& batch : *loader) {
    for (const auto x : batch.data.to_vector<std::int32_t>()) seen.push_back(x);
    for (const auto x : batch.target.to_vector<std::int32_t>()) squares.push_back(x);
  }
  EXPECT_EQ(seen, (Values{0, 1, 2, 3, 4}));
  EXPECT_EQ(squares, (Values{0, 1, 4, 9, 16}));
  int batches = 0;
  const auto random = data::make_data_loader<data::samplers::RandomSampler>(Squares(), 3);
  for (const auto& [x, y] : *random) {
    EXPECT_EQ(x.dim(0), y.dim(0));
    ++batches;
  }
  EXPECT_EQ(batches, 2);
  const auto alone = data::make_data_loader(tens(2), 2);
  EXPECT_FALSE((*alone->begin()).target.defined());
  expect_error<InvalidArgumentError>([] { data::make_data_loader(Endless(), 2); },
                                     "expected a dataset whose size() is known");
}

TEST(MakeDataLoader, VisitsExamplesInRandomOrderByDefault) {
  const auto order = [](const std::unique_ptr<DataLoader>& loader) {
    Values seen;
    for (const auto& batch : *loader)
      for (const auto x : batch.data.to_vector<std::int32_t>()) seen.push_back(x);
    return seen;
  };
  random::set_seed(1);
  const Values in_order = order(data::make_data_loader(tens(20), {.batch_size = 4}));
  for (const auto& loader :
       {order(data::make_data_loader(tens(20), 4)),
        order(data::make_data_loader(tens(20), data::DataLoaderOptions(4).workers(2)))}) {
    EXPECT_NE(loader, in_order);
    EXPECT_EQ(sorted(Indices(loader.begin(), loader.end())),
              Indices(in_order.begin(), in_order.end()));
  }
  using data::samplers::SequentialSampler;
  EXPECT_EQ(order(data::make_data_loader<SequentialSampler>(tens(20), 4)), in_order);
  EXPECT_EQ(order(data::make_data_loader(tens(20), SequentialSampler(20),
                                         data::DataLoaderOptions().batch_size(4))),
            in_order);
}

TEST(MakeDataLoader, TakesLibtorchsOptions) {
  const auto loader = data::make_data_loader<SequentialSampler>(
      tens(10),
      data::DataLoaderOptions().batch_size(4).workers(2).drop_last(true).enforce_ordering(true));
  EXPECT_EQ(loader->size(), 2);
  expect_error<InvalidArgumentError>(
      [] { data::make_data_loader(tens(10), data::DataLoaderOptions().workers(-1)); },
      "[DataLoader] expected num_workers of at least 0, got -1");
}

// Images of two channels, whose elements are the index, as examples with names.
struct Images : data::datasets::Dataset<Images, data::LoadedExample> {
  data::LoadedExample get(std::size_t index) override {
    const auto value = static_cast<double>(index);
    data::LoadedExample example;
    example.data = full({2, 1, 2}, value, float32);
    example.target = constant(static_cast<std::int64_t>(index), {.dtype = int64});
    return example;
  }
  std::optional<std::size_t> size() const override { return 3; }
};

TEST(Transforms, AreAppliedByMap) {
  namespace transforms = data::transforms;
  Images images;
  const auto dataset =
      images.map(transforms::Normalize<>({1.0, 0.0}, {2.0, 0.5})).map(transforms::Stack<>());
  EXPECT_EQ(dataset.size().value(), 3u);
  EXPECT_EQ(values_of(dataset.get(2).data), (std::vector<double>{0.5, 0.5, 4.0, 4.0}));
  const auto loader =
      data::make_data_loader<SequentialSampler>(dataset, data::DataLoaderOptions(2));
  const data::LoadedExample batch = *loader->begin();
  EXPECT_EQ(batch.data.shape(), Shape({2, 2, 1, 2}));
  EXPECT_EQ(values_of(batch.target), (std::vector<double>{0.0, 1.0}));
  EXPECT_EQ(values_of(batch[1]), values_of(batch.target));
  // One mean for all channels, of a dataset that is moved, and a function.
  const auto others = Images()
                          .map(transforms::Normalize<>(1.0, 2.0))
                          .map(transforms::Lambda<>([](data::LoadedExample example) {
                            example.target = example.target + 10;
                            return example;
                          }))
                          .map([](const Example& example) {
                            return Example{example[0] * 2, example[1]};
                          });
  EXPECT_EQ(values_of(others.get(2).data), (std::vector<double>{1.0, 1.0, 1.0, 1.0}));
  EXPECT_EQ(others.get(2).target.item<std::int64_t>(), 12);
  expect_error<OutOfRangeError>([&] { others.get(3); }, "[IndexedDataset] expected an index");
}

TEST(Transforms, RefuseOtherData) {
  using data::transforms::Normalize;
  expect_error<InvalidArgumentError>(
      [] {
        Normalize<>({1.0, 2.0}, {1.0});
      },
      "[Normalize] expected a mean and a standard deviation for each channel, got 2 and 1");
  const auto three = Images().map(Normalize<>({1.0, 2.0, 3.0}, {1.0, 1.0, 1.0}));
  expect_error<InvalidArgumentError>(
      [&] { three.get(0); }, "[Normalize] expected data of 3 channels, got shape (2, 1, 2)");
  const auto integers = Squares().map(Normalize<>(0.0, 1.0));
  expect_error<InvalidArgumentError>([&] { integers.get(0); },
                                     "[Normalize] expected floating-point data, got int32");
}

TEST(RandomSplit, TakesEachExampleOnce) {
  random::set_seed(1);
  const auto [train, test] = data::random_split(tens(10), {7, 3});
  EXPECT_EQ(train.size(), 7);
  EXPECT_EQ(test.size(), 3);
  Indices all;
  for (const auto& part : {train, test})
    for (std::int64_t i = 0; i < part.size(); ++i)
      all.push_back(part.get(i)[0].item<std::int32_t>() / 10);
  EXPECT_EQ(sorted(all), (Indices{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_NE(all, sorted(all));
  expect_error<InvalidArgumentError>(
      [] {
        data::random_split(tens(10), {7, 2});
      },
      "expected lengths that sum to 10, got 9");
  const data::Subset some(tens(5), {4, 0});
  EXPECT_EQ(some[0][0].item<std::int32_t>(), 40);
  expect_error<OutOfRangeError>([&] { some[2]; }, "expected an index of [0, 2)");
}

}  // namespace
}  // namespace tandem::data_loader_test
