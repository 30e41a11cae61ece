#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <sstream>
#include <tuple>
#include <utility>

#include "data/pipelines.h"
#include "support/tensors.h"
#include "tandem/data_loader.h"
#include "tandem/device.h"
#include "tandem/errors.h"
#include "tandem/function.h"
#include "tandem/math.h"
#include "tandem/random.h"

namespace tandem::dataset_test {
namespace {

using data::Dataset;
using data::Example;
using namespace testing;

using Values = std::vector<std::int32_t>;

Example add_one(const Example& e) { return {e[0] + 1.0}; }

// --- sources ---

TEST(FromTensors, YieldsOneElement) {
  const Dataset dataset = Dataset::from_tensors({constant({1, 2}), constant(3)});
  EXPECT_EQ(dataset.cardinality(), 1);
  int count = 0;
  for (const Example& e : dataset) {
    ++count;
    EXPECT_EQ(e.size(), 2u);
    EXPECT_EQ(values_in(e), (Values{1, 2}));
  }
  EXPECT_EQ(count, 1);
}

TEST(FromTensorSlices, YieldsOneElementPerRow) {
  const Dataset dataset =
      Dataset::from_tensor_slices({constant({{1, 2}, {3, 4}, {5, 6}}), constant({7, 8, 9})});
  EXPECT_EQ(dataset.cardinality(), 3);
  EXPECT_EQ(elements_of(dataset), (Values{1, 2, 3, 4, 5, 6}));
  auto iterator = dataset.iterate();
  iterator.next();
  const auto second = iterator.next();
  EXPECT_EQ(second[1].item<std::int32_t>(), 8);
  const auto spec = dataset.element_spec();
  ASSERT_TRUE(spec);
  EXPECT_EQ((*spec)[0].shape, Shape({2}));
  EXPECT_EQ((*spec)[1].shape, Shape::scalar());
  EXPECT_EQ((*spec)[1].dtype, int32);
}

// A symbolic tensor has no elements, and a dataset that holds it would form a reference cycle with
// the graph.
TEST(FromTensorSlices, RejectsSymbolicTensors) {
  const auto refuse = [](const auto& make) {
    const auto traced = function([&](const Tensor& x) {
      make(x * 2.0);
      return x;
    });
    expect_error<InvalidArgumentError>(
        [&] {
          traced(constant({1.0f, 2.0f}));
        },
        "expected tensors with elements, got one that td::function");
  };
  refuse([](const Tensor& x) { Dataset::from_tensor_slices({constant({1, 2}), x}); });
  refuse([](const Tensor& x) { Dataset::from_tensors(x); });
  refuse([](const Tensor& x) { data::IndexedDataset::from_tensor_slices(x); });
  refuse([](const Tensor& x) {
    elements_of(numbers(2).map([x](const Example& e) { return Example{cast(e[0], float32) + x}; }));
  });
}

// Pipelines run eagerly, also while a function is traced.
TEST(Dataset, IteratesInsideATrace) {
  const Dataset dataset = numbers(3).map(add_one).cache();
  const auto sum = function([&](Tensor x) {
    for (const Example& e : dataset) x = x + e[0];
    return x;
  });
  EXPECT_EQ(sum(constant(10)).item<std::int32_t>(), 16);
  EXPECT_EQ(sum(constant(20)).item<std::int32_t>(), 26);
  EXPECT_EQ(elements_of(dataset), (Values{1, 2, 3}));
}

// --- files ---

Dataset tens(const std::string& file) {
  const int first = 10 * std::stoi(file);
  return numbers(3).map([first](const Example& e) { return Example{e[0] + first}; });
}

TEST(FromFiles, YieldsOneFileAfterTheOther) {
  std::vector<std::string> opened;
  const Dataset dataset = Dataset::from_files({"1", "2", "0"}, [&](const std::string& file) {
    opened.push_back(file);
    return tens(file);
  });
  EXPECT_EQ(dataset.cardinality(), data::kUnknownCardinality);
  auto iterator = dataset.iterate();
  EXPECT_TRUE(opened.empty());
  EXPECT_EQ(iterator.next()[0].item<std::int32_t>(), 10);
  EXPECT_EQ(opened, std::vector<std::string>{"1"});
  EXPECT_EQ(elements_of(iterator), (Values{11, 12, 20, 21, 22, 0, 1, 2}));
  EXPECT_EQ(elements_of(dataset), (Values{10, 11, 12, 20, 21, 22, 0, 1, 2}));
}

TEST(FromFiles, ContinuesFromAPosition) {
  const Dataset dataset =
      Dataset::from_files({"1", "2", "3"}, tens).shuffle(4, {.seed = 3}).batch(2);
  const auto all = elements_of(dataset, 5);
  for (std::int64_t skip = 0; skip <= 5; ++skip)
    EXPECT_EQ(elements_of(dataset.iterate({.epoch = 5, .skip = skip})),
              Values(all.begin() + std::min<std::ptrdiff_t>(2 * skip, 9), all.end()));
  EXPECT_EQ(elements_of(Dataset::from_files({"1", "2"}, tens).iterate({.skip = 4})),
            (Values{21, 22}));
}

TEST(FromFiles, RejectsAnEmptyListAndPropagatesReaderErrors) {
  expect_error<InvalidArgumentError>([] { Dataset::from_files({}, tens); },
                                     "[from_files] expected at least one file, got none");
  expect_error<InvalidArgumentError>([] { Dataset::from_files({"1"}, nullptr); }, "[from_files]");
  const Dataset dataset = Dataset::from_files({"1", "2"}, [](const std::string& file) {
    if (file == "2") throw NotFoundError("no " + file);
    return tens(file);
  });
  expect_error<NotFoundError>([&] { elements_of(dataset.prefetch(1)); }, "no 2");
}

TEST(FromTensorSlices, NamesFirstAxesThatDiffer) {
  expect_error<InvalidArgumentError>(
      [] {
        Dataset::from_tensor_slices({zeros({3, 2}), zeros({4})});
      },
      "[from_tensor_slices] expected first axes of one size, got 3 (component 0, shape (3, 2)) and "
      "4 (component 1, "
      "shape (4,))");
  expect_error<InvalidArgumentError>([] { Dataset::from_tensor_slices(constant(1)); },
                                     "got a scalar as component 0");
  EXPECT_THROW(Dataset::from_tensor_slices(Example()), InvalidArgumentError);
}

TEST(Dataset, Reduces) {
  const Dataset numbers = Dataset::range(1, 101);
  const Tensor sum =
      numbers.reduce(constant(0, {.dtype = int64}),
                     [](const Tensor& state, const Example& e) { return state + e[0]; });
  EXPECT_EQ(sum.item<std::int64_t>(), 5050);
  EXPECT_EQ(numbers.batch(32).reduce(
                0.0, [](double count, const Tensor& x) { return count + double(x.dim(0)); }),
            100.0);
  EXPECT_EQ(numbers.take(0).reduce(3, [](int state, const Example&) { return state + 1; }), 3);
  const Dataset pairs = Dataset::zip(numbers, numbers);
  EXPECT_THROW(pairs.reduce(0, [](int state, const Tensor&) { return state; }),
               InvalidArgumentError);
}

TEST(Dataset, HasOptions) {
  const Dataset dataset =
      Dataset::range(3).with_options({.auto_shard_policy = data::AutoShardPolicy::OFF});
  EXPECT_EQ(dataset.auto_shard_policy(), data::AutoShardPolicy::kOff);
  data::DatasetOptions options;
  options.experimental_distribute.auto_shard_policy = data::AutoShardPolicy::DATA;
  EXPECT_EQ(dataset.with_options(options).auto_shard_policy(), data::AutoShardPolicy::kData);
}

TEST(Dataset, ThrowsIfItIsUndefined) {
  EXPECT_FALSE(Dataset().defined());
  EXPECT_THROW(Dataset().batch(1), FailedPreconditionError);
  EXPECT_THROW(data::Iterator().next(), FailedPreconditionError);
}

// --- transformations of rows of tensors, and of elements of a generator ---

class Steps : public ::testing::TestWithParam<bool> {
 protected:
  static Dataset source(int count) { return GetParam() ? numbers(count) : generated(count); }
};
INSTANTIATE_TEST_SUITE_P(, Steps, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "Rows" : "Elements"; });

TEST_P(Steps, TakeAndSkipDivideTheElements) {
  EXPECT_EQ(elements_of(source(5).take(3)), count_up(0, 3));
  EXPECT_EQ(elements_of(source(5).take(9)), count_up(0, 5));
  EXPECT_EQ(elements_of(source(5).take(-1)), count_up(0, 5));
  EXPECT_EQ(elements_of(source(5).take(0)), Values());
  EXPECT_EQ(elements_of(source(5).skip(2)), count_up(2, 5));
  EXPECT_EQ(elements_of(source(5).skip(9)), Values());
  EXPECT_EQ(elements_of(source(9).skip(2).take(3).skip(1)), count_up(3, 5));
}

TEST_P(Steps, ShardTakesEveryNthElement) {
  EXPECT_EQ(elements_of(source(10).shard(3, 0)), (Values{0, 3, 6, 9}));
  EXPECT_EQ(elements_of(source(10).shard(3, 2)), (Values{2, 5, 8}));
  EXPECT_EQ(elements_of(source(2).shard(4, 3)), Values());
  EXPECT_EQ(elements_of(source(5).shard(1, 0)), count_up(0, 5));
}

TEST(Datasets, RandomTransformationsDifferBetweenShards) {
  const auto numbers = [](std::int64_t shard, bool skips) {
    random::set_seed(3);
    data::Dataset data = data::Dataset::from_tensor_slices({range(32)});
    data = skips ? data.skip(shard) : data.shard(4, shard);
    std::vector<double> values;
    data = data.take(8).map(
        [](const data::Example&) { return data::Example(random::normal({}, 0.0, 1.0)); });
    for (const data::Example& example : data)
      values.push_back(static_cast<double>(example[0].item<float>()));
    return values;
  };
  const auto whole = numbers(0, true);
  EXPECT_EQ(numbers(0, false), whole) << "shard 0 has the numbers of a whole pipeline";
  EXPECT_EQ(numbers(3, true), whole) << "skip() is no shard";
  for (const std::int64_t shard : {1, 2, 3}) {
    EXPECT_EQ(numbers(shard, false), numbers(shard, false));
    for (std::int64_t other = 0; other < shard; ++other) {
      const auto mine = numbers(shard, false), theirs = numbers(other, false);
      for (std::size_t i = 0; i < mine.size(); ++i) EXPECT_NE(mine[i], theirs[i]);
    }
  }
}

TEST_P(Steps, RepeatYieldsTheElementsAgain) {
  EXPECT_EQ(elements_of(source(3).repeat(2)), (Values{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(elements_of(source(3).repeat(0)), Values());
  EXPECT_EQ(elements_of(source(3).repeat().take(7)), (Values{0, 1, 2, 0, 1, 2, 0}));
  EXPECT_EQ(elements_of(source(0).repeat()), Values());
}

TEST_P(Steps, BatchKeepsOrDropsTheLastOne) {
  EXPECT_EQ(batches_of(source(5).batch(2).iterate()), (std::vector<Values>{{0, 1}, {2, 3}, {4}}));
  EXPECT_EQ(batches_of(source(5).batch(2, {.drop_remainder = true}).iterate()),
            (std::vector<Values>{{0, 1}, {2, 3}}));
  EXPECT_EQ(batches_of(source(4).batch(2).batch(2).iterate()), (std::vector<Values>{{0, 1, 2, 3}}));
  EXPECT_EQ(batches_of(source(3).repeat(2).batch(4).iterate()),
            (std::vector<Values>{{0, 1, 2, 0}, {1, 2}}));
  EXPECT_EQ(batches_of(source(3).batch(1'000'000'000'000).iterate()),
            (std::vector<Values>{{0, 1, 2}}));
  EXPECT_EQ(batches_of(source(600).batch(600).iterate()), (std::vector<Values>{count_up(0, 600)}));
  EXPECT_EQ(source(3).batch(2).iterate().next()[0].shape(), Shape({2}));
}

TEST_P(Steps, ShuffleIsAPermutationOfEachEpoch) {
  const Dataset dataset = source(100).shuffle(100, {.seed = 7});
  const Values first = elements_of(dataset, 0), second = elements_of(dataset, 1);
  EXPECT_NE(first, count_up(0, 100));
  EXPECT_NE(first, second);
  EXPECT_EQ(elements_of(dataset, 0), first);
  for (Values values : {first, second}) {
    std::sort(values.begin(), values.end());
    EXPECT_EQ(values, count_up(0, 100));
  }
  const Dataset fixed = source(100).shuffle(100, {.seed = 7, .reshuffle_each_iteration = false});
  EXPECT_EQ(elements_of(fixed, 0), elements_of(fixed, 5));
  EXPECT_NE(elements_of(source(100).shuffle(100, {.seed = 8})), first);
}

TEST_P(Steps, ShuffleSamplesFromItsBuffer) {
  const Values values = elements_of(source(100).shuffle(10, {.seed = 3}));
  // Element i can be chosen only after it has entered the buffer.
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_LE(values[i], static_cast<std::int32_t>(i) + 9);
  EXPECT_EQ(elements_of(source(20).shuffle(1, {.seed = 3})), count_up(0, 20));
}

TEST_P(Steps, RepeatShufflesEachRepetition) {
  const Values values = elements_of(source(50).shuffle(50, {.seed = 1}).repeat(2));
  EXPECT_NE(Values(values.begin(), values.begin() + 50), Values(values.begin() + 50, values.end()));
  // Repetitions of later epochs have new orders, too.
  EXPECT_NE(elements_of(source(50).shuffle(50, {.seed = 1}).repeat(2), 1), values);
}

TEST_P(Steps, FilterAndCacheKeepTheOrder) {
  const auto odd = [](const Example& e) { return e[0].item<std::int32_t>() % 2 == 1; };
  EXPECT_EQ(elements_of(source(7).filter(odd)), (Values{1, 3, 5}));
  const Dataset cached = source(7).filter(odd).cache();
  EXPECT_EQ(elements_of(cached), (Values{1, 3, 5}));
  EXPECT_EQ(elements_of(cached, 1), (Values{1, 3, 5}));
  EXPECT_EQ(elements_of(cached.iterate({.skip = 2})), (Values{5}));
}

TEST_P(Steps, ZipEndsWithItsShortestInput) {
  const Dataset zipped = Dataset::zip({source(3), source(9).skip(4)});
  auto iterator = zipped.iterate();
  const auto first = iterator.next();
  ASSERT_EQ(first->size(), 2u);
  EXPECT_EQ(first[0].item<std::int32_t>(), 0);
  EXPECT_EQ(first[1].item<std::int32_t>(), 4);
  EXPECT_EQ(elements_of(zipped), count_up(0, 3));
  EXPECT_EQ(elements_of(zipped.iterate({.skip = 2})), (Values{2}));
}

TEST_P(Steps, SkippingEqualsReading) {
  const auto plus = [](Dataset d) { return d.map(add_one); };
  const Dataset pipelines[] = {
      source(23),
      source(23).take(17),
      source(23).skip(3),
      source(23).shard(4, 1),
      source(23).shuffle(7, {.seed = 5}),
      source(23).repeat(3),
      source(23).shuffle(23, {.seed = 5}).repeat(),
      source(23).batch(4),
      source(23).batch(4, {.drop_remainder = true}),
      plus(source(23)).batch(5),
      plus(source(23).shuffle(9, {.seed = 2})).batch(3).prefetch(2),
      source(23).map(add_one, {.num_parallel_calls = 3}).batch(2),
      source(23).map(add_one, {.num_parallel_calls = 3}).batch(2).prefetch(1).shard(3, 1),
      source(23).map(add_one, {.num_parallel_calls = 3}).skip(2).shard(2, 1).shard(3, 1),
      source(23).batch(2).prefetch(1).shard(3, 1),
      source(23).cache().shuffle(5, {.seed = 1}),
      source(23).batch(4).repeat(2).prefetch(1),
      plus(source(23)).shard(3, 1).repeat(2).skip(2).batch(3),
      Dataset::zip({source(23), source(23).repeat()}),
      source(23)
          .filter([](const Example& e) { return e[0].item<std::int32_t>() % 3 != 0; })
          .batch(2),
  };
  for (const Dataset& dataset : pipelines) {
    const Dataset finite =
        dataset.cardinality() == data::kInfiniteCardinality ? dataset.take(60) : dataset;
    const auto all = batches_of(finite.iterate({.epoch = 2}));
    for (std::size_t skip = 0; skip <= all.size() + 1; ++skip) {
      const auto rest =
          batches_of(finite.iterate({.epoch = 2, .skip = static_cast<std::int64_t>(skip)}));
      const std::vector<Values> expected(
          all.begin() + static_cast<std::ptrdiff_t>(std::min(skip, all.size())), all.end());
      EXPECT_EQ(rest, expected) << "pipeline " << (&dataset - pipelines) << ", skipping " << skip;
    }
  }
}

TEST(Cardinality, IsKnownWithoutIterating) {
  const auto ten = numbers(10);
  EXPECT_EQ(ten.take(3).cardinality(), 3);
  EXPECT_EQ(ten.skip(3).cardinality(), 7);
  EXPECT_EQ(ten.skip(30).cardinality(), 0);
  EXPECT_EQ(ten.shard(4, 1).cardinality(), 3);
  EXPECT_EQ(ten.shard(4, 3).cardinality(), 2);
  EXPECT_EQ(ten.batch(4).cardinality(), 3);
  EXPECT_EQ(ten.batch(4, {.drop_remainder = true}).cardinality(), 2);
  EXPECT_EQ(ten.repeat(3).cardinality(), 30);
  EXPECT_EQ(ten.repeat().cardinality(), data::kInfiniteCardinality);
  EXPECT_EQ(ten.repeat().take(-1).cardinality(), data::kInfiniteCardinality);
  EXPECT_EQ(ten.repeat().take(25).batch(10).cardinality(), 3);
  EXPECT_EQ(ten.map(add_one).shuffle(3).prefetch(2).cache().cardinality(), 10);
  EXPECT_EQ(ten.filter([](const Example&) { return true; }).cardinality(),
            data::kUnknownCardinality);
  EXPECT_EQ(Dataset::zip({ten, ten.repeat()}).cardinality(), 10);
  EXPECT_EQ(Dataset::zip({ten, generated(3)}).cardinality(), data::kUnknownCardinality);
  EXPECT_EQ((*ten.batch(4).element_spec())[0].shape, Shape({-1}));
  EXPECT_EQ((*ten.batch(5).element_spec())[0].shape, Shape({5}));
}

// --- examples ---

Dataset pairs_of(std::int64_t count) { return Dataset::zip({numbers(count), numbers(count)}); }

TEST(Map, PassesTheComponents) {
  const auto sums = [](const Dataset& dataset) {
    Values values;
    for (const Example& e : dataset)
      values.push_back(e[0].item<std::int32_t>() * 100 + e[1].item<std::int32_t>());
    return values;
  };
  const Values expected = {0, 102, 204};
  const auto twice = [](const Tensor& x, const Tensor& y) { return Example{x, y * 2}; };
  EXPECT_EQ(sums(pairs_of(3).map(twice)), expected);
  EXPECT_EQ(sums(pairs_of(3).map(twice, {.num_parallel_calls = 2})), expected);
  EXPECT_EQ(sums(pairs_of(3).map(twice, data::kAutotune)), expected);
  EXPECT_EQ(sums(pairs_of(3).map([](Tensor x, Tensor y) {
              return std::pair{x, y * 2};
            })),
            expected);
  EXPECT_EQ(sums(pairs_of(3).map([](auto x, auto y) { return std::make_tuple(x, y * 2); })),
            expected);
  EXPECT_EQ(sums(pairs_of(3).map([](auto x, auto y) {
              return std::vector<Tensor>{x, y * 2};
            })),
            expected);
  EXPECT_EQ(sums(pairs_of(3).map([](const Example& e) {
              return std::pair{e[0], e[1] * 2};
            })),
            expected);
  const std::function<Example(Tensor, Tensor)> held = twice;
  EXPECT_EQ(sums(pairs_of(3).map(held)), expected);
  EXPECT_EQ(elements_of(numbers(3).map([](Tensor x) { return x + 1; })), (Values{1, 2, 3}));
  EXPECT_EQ(elements_of(pairs_of(3).map([](Tensor x, Tensor y) { return x + y; })),
            (Values{0, 2, 4}));
  EXPECT_EQ(elements_of(Dataset::zip(numbers(2), numbers(2), numbers(2))
                            .map([](Tensor x, Tensor y, Tensor z) { return x + y + z; })),
            (Values{0, 3}));
}

TEST(Map, OfAnotherNumberOfTensorsThrows) {
  const auto sum = [](Tensor x, Tensor y) { return x + y; };
  expect_error<InvalidArgumentError>([&] { numbers(3).map(sum).iterate().next(); },
                                     "[map] the function takes 2 tensors, got an element of 1 "
                                     "components");
  expect_error<InvalidArgumentError>(
      [&] { pairs_of(3).map([](Tensor x) { return x; }).iterate().next(); },
      "expected one component where a tensor is expected, got 2");
  EXPECT_THROW(numbers(3).map(std::function<Tensor(Tensor, Tensor)>()), InvalidArgumentError);
}

TEST(Filter, PassesTheComponents) {
  const Dataset pairs = Dataset::zip({numbers(6), numbers(6)});
  const auto firsts = [](const Dataset& dataset) {
    return elements_of(dataset.map([](Tensor x, Tensor) { return x; }));
  };
  EXPECT_EQ(firsts(pairs.filter([](Tensor x, Tensor) { return x > 3; })), (Values{4, 5}));
  EXPECT_EQ(firsts(pairs.filter([](Tensor, Tensor y) { return y.item<std::int32_t>() % 2 == 1; })),
            (Values{1, 3, 5}));
  EXPECT_EQ(elements_of(numbers(6).filter([](const Tensor& x) { return x < 2; })), (Values{0, 1}));
  EXPECT_EQ(elements_of(numbers(6).filter([](const auto& x) { return x < 2; })), (Values{0, 1}));
  EXPECT_THROW(pairs.filter(std::function<bool(Tensor, Tensor)>()), InvalidArgumentError);
}

std::vector<std::int64_t> longs_of(const Dataset& dataset, std::int64_t skip = 0) {
  std::vector<std::int64_t> values;
  for (const auto& n : dataset.iterate({.skip = skip})) values.push_back(n.item<std::int64_t>());
  return values;
}

TEST(Range, CountsAsInPython) {
  using Longs = std::vector<std::int64_t>;
  EXPECT_EQ(longs_of(Dataset::range(4)), (Longs{0, 1, 2, 3}));
  EXPECT_EQ(longs_of(Dataset::range(2, 9, 3)), (Longs{2, 5, 8}));
  EXPECT_EQ(longs_of(Dataset::range(5, 0, -2)), (Longs{5, 3, 1}));
  EXPECT_EQ(longs_of(Dataset::range(5, 0)), Longs());
  EXPECT_EQ(longs_of(Dataset::range(2, 9, 3), 1), (Longs{5, 8}));
  EXPECT_EQ(Dataset::range(2, 9, 3).cardinality(), 3);
  EXPECT_EQ(Dataset::range(2, 8, 3).size(), 2);
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(longs_of(Dataset::range(kMost).skip(kMost - 2)), (Longs{kMost - 2, kMost - 1}));
  EXPECT_EQ(Dataset::range(-kMost, kMost, kMost).size(), 2);
  expect_error<InvalidArgumentError>([&] { Dataset::range(-kMost, kMost); }, "less than 2^63");
  expect_error<InvalidArgumentError>([] { Dataset::range(0, 3, 0); }, "a step other than 0");
}

TEST(Concatenate, YieldsOneAfterTheOther) {
  const Dataset both = numbers(3).concatenate(generated(2));
  EXPECT_EQ(elements_of(both), (Values{0, 1, 2, 0, 1}));
  for (const std::int64_t skip : {0, 2, 3, 4, 5, 9}) {
    Values expected = {0, 1, 2, 0, 1};
    expected.erase(expected.begin(), expected.begin() + std::min<std::int64_t>(skip, 5));
    EXPECT_EQ(elements_of(both.iterate({.skip = skip})), expected) << skip;
  }
  EXPECT_EQ(both.cardinality(), data::kUnknownCardinality);
  EXPECT_EQ(numbers(3).concatenate(numbers(2)).size(), 5);
  EXPECT_EQ(numbers(3).concatenate(numbers(2).repeat()).cardinality(), data::kInfiniteCardinality);
  EXPECT_EQ(numbers(4).batch(2).concatenate(numbers(3).batch(3)).element_spec()[0].shape,
            Shape({-1}));
  EXPECT_FALSE(numbers(4).concatenate(Dataset::range(3)).element_spec());
}

TEST(Enumerate, AddsTheNumberOfTheElement) {
  std::vector<std::int64_t> found;
  for (const auto& [i, x] : numbers(3).skip(1).enumerate(10)) {
    found.push_back(i.item<std::int64_t>());
    found.push_back(x.item<std::int32_t>());
  }
  EXPECT_EQ(found, (std::vector<std::int64_t>{10, 1, 11, 2}));
  EXPECT_EQ(numbers(3).enumerate().cardinality(), 3);
  EXPECT_EQ(numbers(3).repeat().enumerate().cardinality(), data::kInfiniteCardinality);
  auto later = numbers(3).enumerate().iterate({.skip = 2});
  EXPECT_EQ(later.next()[0].item<std::int64_t>(), 2);
}

TEST(ElementSpec, IsPrintedAlsoIfUnknown) {
  std::ostringstream out;
  out << pairs_of(4).batch(3).element_spec() << ' ' << numbers(2).map(add_one).element_spec();
  EXPECT_EQ(out.str(), "(int32 (?,), int32 (?,)) unknown");
  expect_error<FailedPreconditionError>(
      [] { static_cast<void>(numbers(2).map(add_one).element_spec().value()); },
      "are not known before one is produced");
}

TEST(Size, OfAnUnknownNumberOfElementsThrows) {
  expect_error<FailedPreconditionError>([] { static_cast<void>(numbers(2).repeat().size()); },
                                        "got one that is infinite");
  expect_error<FailedPreconditionError>([] { static_cast<void>(generated(2).size()); }, "unknown");
}

TEST(Options, ArePositionalToo) {
  EXPECT_EQ(numbers(10).batch(4, true).size(), 2);
  EXPECT_EQ(elements_of(numbers(10).shuffle(10, 3)),
            elements_of(numbers(10).shuffle(10, {.seed = 3})));
  EXPECT_EQ(elements_of(numbers(4).prefetch(data::kAutotune)), count_up(0, 4));
}

TEST(StepArguments, InvalidOnesAreRefused) {
  const auto ten = numbers(10);
  expect_error<InvalidArgumentError>([&] { ten.batch(0); },
                                     "[batch] expected a batch size of at least 1, got 0");
  expect_error<InvalidArgumentError>([&] { ten.batch(-2); }, "got -2");
  expect_error<InvalidArgumentError>([&] { ten.shuffle(0); },
                                     "[shuffle] expected a buffer of at least 1 element, got 0");
  expect_error<InvalidArgumentError>([&] { ten.repeat(-2); },
                                     "[repeat] expected a count of at least 0");
  expect_error<InvalidArgumentError>([&] { ten.take(-2); },
                                     "[take] expected a count of at least 0");
  expect_error<InvalidArgumentError>([&] { ten.skip(-1); },
                                     "[skip] expected a count of at least 0, got -1");
  expect_error<InvalidArgumentError>([&] { ten.shard(0, 0); },
                                     "[shard] expected at least 1 shard, got 0");
  expect_error<InvalidArgumentError>([&] { ten.shard(2, 2); },
                                     "[shard] expected an index of [0, 2), got 2");
  expect_error<InvalidArgumentError>([&] { ten.prefetch(0); },
                                     "[prefetch] expected a buffer of at least 1 element");
  expect_error<InvalidArgumentError>([&] { ten.map(add_one, {.num_parallel_calls = 0}); },
                                     "[map] expected");
  expect_error<InvalidArgumentError>([&] { ten.iterate({.skip = -1}); }, "got -1");
  EXPECT_THROW(ten.map(nullptr), InvalidArgumentError);
  EXPECT_THROW(ten.filter(data::FilterFn()), InvalidArgumentError);
  EXPECT_THROW(ten.filter(data::TensorFilterFn()), InvalidArgumentError);
  EXPECT_THROW(Dataset::zip({}), InvalidArgumentError);
  EXPECT_THROW(Dataset::from_generator(nullptr), InvalidArgumentError);
}

TEST(Batch, NamesTheElementThatDiffers) {
  const auto ragged = generated(5).map([](const Example& e) {
    const int i = e[0].item<std::int32_t>();
    return Example{constant(i), zeros({i < 3 ? 2 : 4, 3})};
  });
  auto iterator = ragged.batch(2).iterate();
  EXPECT_TRUE(iterator.next());
  expect_error<InvalidArgumentError>([&] { iterator.next(); },
                                     "[batch] expected elements of one shape and dtype: component "
                                     "1 is float32 (2, 3) in the first element of the batch "
                                     "and float32 (4, 3) in element 1");
  EXPECT_FALSE(iterator.next());
  const auto growing = generated(3).map([](const Example& e) {
    return e[0].item<std::int32_t>() < 2 ? e : Example{e[0], e[0]};
  });
  expect_error<InvalidArgumentError>(
      [&] { growing.batch(3).iterate().next(); },
      "expected elements of 1 components, got one of 2 (element 2 of the batch)");
}

TEST(Batch, SharesConsecutiveRows) {
  const DeviceScope on_cpu("/cpu:0");
  const Tensor x = zeros({64, 16});
  auto iterator = Dataset::from_tensor_slices(x).batch(16).iterate();
  EXPECT_EQ(iterator.next()[0].data<float>(), x.data<float>());
  EXPECT_EQ(iterator.next()[0].data<float>(), x.data<float>() + 16 * 16);
}

}  // namespace
}  // namespace tandem::dataset_test
