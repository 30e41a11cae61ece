// Datasets made of others: interleave, flat_map, sample_from_datasets, window, unbatch,
// padded_batch and bucket_by_sequence_length, with TensorFlow's results.
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "data/description.h"
#include "data/pipelines.h"
#include "support/expects.h"
#include "support/tensors.h"
#include "tandem/data.h"
#include "tandem/math.h"
#include "tandem/random.h"

namespace tandem::combining_test {
namespace {

using data::Dataset;
using data::Example;
using testing::batches_of;
using testing::count_up;
using testing::elements_of;
using testing::expect_error;
using testing::generated;
using testing::numbers;

using Values = std::vector<std::int32_t>;
using Batches = std::vector<Values>;

// The elements from every position on are the rest of all elements, also of a repeated dataset.
void expect_resumes(const Dataset& dataset) {
  for (const Dataset& any : {dataset, dataset.repeat(2)})
    for (const std::uint64_t epoch : {0u, 2u}) {
      const Batches all = batches_of(any.iterate({.epoch = epoch}));
      for (std::size_t skip = 0; skip <= all.size() + 1; ++skip) {
        const auto from = static_cast<std::ptrdiff_t>(std::min(skip, all.size()));
        EXPECT_EQ(
            batches_of(any.iterate({.epoch = epoch, .skip = static_cast<std::int64_t>(skip)})),
            Batches(all.begin() + from, all.end()))
            << "skip " << skip;
      }
    }
}

// As many elements as cardinality() says, if it says so.
void expect_cardinality(const Dataset& dataset, std::int64_t expected) {
  EXPECT_EQ(dataset.cardinality(), expected);
  if (expected >= 0) {
    EXPECT_EQ(std::ssize(batches_of(dataset.iterate())), expected);
  }
}

Dataset three_times(const Example& element) { return Dataset::from_tensors(element).repeat(3); }

TEST(Interleave, TakesBlocksInTurns) {
  const Dataset dataset =
      numbers(6).skip(1).interleave(three_times, {.cycle_length = 2, .block_length = 2});
  EXPECT_EQ(elements_of(dataset), (Values{1, 1, 2, 2, 1, 2, 3, 3, 4, 4, 3, 4, 5, 5, 5}));
  expect_resumes(dataset);
  expect_cardinality(dataset, data::kUnknownCardinality);
}

TEST(Interleave, OpensNewDatasetsAfterEmptyOnes) {
  const auto make = [](const Example& element) {
    const auto number = element[0].item<std::int32_t>();
    return numbers(number % 3 == 0 ? 0 : number);
  };
  const Dataset dataset = generated(6).interleave(make, {.cycle_length = 3});
  // An empty dataset ends its turn: numbers(1), numbers(2), numbers(4), numbers(5).
  EXPECT_EQ(elements_of(dataset), (Values{0, 0, 1, 0, 0, 1, 1, 2, 2, 3, 3, 4}));
  expect_resumes(dataset);
}

TEST(FlatMap, TakesOneDatasetAfterTheOther) {
  const Dataset dataset = numbers(4).flat_map(
      [](const Example& element) { return numbers(element[0].item<std::int32_t>()); });
  EXPECT_EQ(elements_of(dataset), (Values{0, 0, 1, 0, 1, 2}));
  expect_resumes(dataset);
  expect_resumes(generated(3).flat_map(three_times));
}

TEST(Interleave, RandomNumbersDifferBetweenTheDatasets) {
  const auto noise = [](const Dataset& dataset) {
    std::vector<float> values;
    for (const Example& example : dataset) values.push_back(example[0].item<float>());
    return values;
  };
  const auto with_noise = [](const Example&) {
    return numbers(3).map([](const Example&) { return Example(random::normal({}, 0.0, 1.0)); });
  };
  const auto make = [&] { return numbers(4).interleave(with_noise); };
  const std::vector<float> values = noise(make());
  EXPECT_EQ(std::set<float>(values.begin(), values.end()).size(), 12u);
  EXPECT_EQ(noise(make()), values);  // after a restart
  std::set<float> all(values.begin(), values.end());
  for (const Dataset& other :
       {make().concatenate(make()).skip(12), numbers(8).shard(2, 1).interleave(with_noise),
        Dataset::zip(numbers(12), make()).map([](const Example& pair) {
          return Example(pair[1]);
        })})
    for (const float value : noise(other)) all.insert(value);
  EXPECT_EQ(all.size(), 36u);  // zip's only one has the numbers of the first place
}

TEST(SampleFromDatasets, ChoosesByWeight) {
  const std::vector<Dataset> inputs = {numbers(1).repeat(), numbers(2).skip(1).repeat(),
                                       numbers(3).skip(2).repeat()};
  const Dataset dataset =
      Dataset::sample_from_datasets(inputs, {.weights = {0.5, 0.25, 0.0}, .seed = 7});
  EXPECT_EQ(dataset.cardinality(), data::kInfiniteCardinality);
  const Values values = elements_of(dataset.take(3000));
  const auto ones = std::count(values.begin(), values.end(), 1);
  EXPECT_EQ(std::count(values.begin(), values.end(), 2), 0);
  EXPECT_NEAR(static_cast<double>(ones), 1000.0, 80.0);
  EXPECT_NE(elements_of(dataset.take(50), 1), elements_of(dataset.take(50), 0));
}

TEST(SampleFromDatasets, EndsWithTheLastDatasetOrTheFirst) {
  const std::vector<Dataset> inputs = {numbers(5), generated(40).skip(30)};
  const Dataset all = Dataset::sample_from_datasets(inputs, {.seed = 3});
  Values values = elements_of(all);
  std::sort(values.begin(), values.end());
  Values expected = count_up(0, 5);
  for (const std::int32_t value : count_up(30, 40)) expected.push_back(value);
  EXPECT_EQ(values, expected);
  expect_resumes(all);
  const Dataset first =
      Dataset::sample_from_datasets(inputs, {.seed = 3, .stop_on_empty_dataset = true});
  EXPECT_LT(elements_of(first).size(), 15u);
  expect_resumes(first);
  expect_cardinality(Dataset::sample_from_datasets({numbers(5), numbers(2)}), 7);
}

TEST(SampleFromDatasets, HasDefaultSeedsByPlace) {
  const auto make = [] {
    return Dataset::sample_from_datasets({numbers(1).repeat(32), numbers(2).skip(1).repeat(32)});
  };
  const Dataset two = Dataset::zip(make(), make());
  Values first, second;
  for (const Example& pair : two) {
    first.push_back(pair[0].item<std::int32_t>());
    second.push_back(pair[1].item<std::int32_t>());
  }
  EXPECT_NE(first, second);
  EXPECT_EQ(elements_of(make()), first);
}

TEST(Window, HasTensorFlowsWindows) {
  const Dataset dataset = numbers(10).window(4, {.shift = 3, .stride = 2});
  EXPECT_EQ(batches_of(dataset.iterate()), (Batches{{0, 2, 4, 6}, {3, 5, 7, 9}, {6, 8}, {9}}));
  for (const Dataset& source : {numbers(10), generated(10)})
    for (const std::int64_t shift : {0, 1, 2, 3, 5, 11})
      for (const std::int64_t stride : {1, 3})
        for (const bool drop : {false, true})
          expect_resumes(
              source.window(3, {.shift = shift, .stride = stride, .drop_remainder = drop}));
  expect_cardinality(dataset, 4);
  expect_cardinality(numbers(10).window(4, {.shift = 3, .stride = 2, .drop_remainder = true}), 2);
  expect_cardinality(numbers(10).window(20, {.drop_remainder = true}), 0);
  expect_cardinality(numbers(0).window(2), 0);
  EXPECT_EQ(batches_of(numbers(5).window(2).iterate()), (Batches{{0, 1}, {2, 3}, {4}}));
  EXPECT_EQ(numbers(9).window(3, {.drop_remainder = true}).element_spec()[0].shape, Shape({3}));
}

TEST(Unbatch, TakesBatchesApart) {
  const Dataset dataset = generated(7).batch(3).unbatch();
  EXPECT_EQ(elements_of(dataset), count_up(0, 7));
  expect_resumes(dataset);
  EXPECT_EQ(elements_of(numbers(7).batch(3).unbatch().batch(2)), count_up(0, 7));
  expect_cardinality(numbers(6).batch(3).unbatch(), 6);
  expect_cardinality(numbers(7).batch(3).unbatch(), data::kUnknownCardinality);
  EXPECT_EQ(numbers(6).batch(3).unbatch().element_spec()[0].shape, Shape::scalar());
  expect_error<InvalidArgumentError>([] { elements_of(numbers(3).unbatch()); },
                                     "[unbatch] expected components with first axes of one size");
}

// Elements [0], [1 1], [2 2 2], ... as their lengths say.
Dataset ragged(const Values& lengths) {
  return Dataset::from_tensor_slices(constant(lengths)).map([](const Example& length) {
    const auto size = length[0].item<std::int32_t>();
    return Example{full({size}, size, {.dtype = int32})};
  });
}

TEST(PaddedBatch, PadsToTheLongest) {
  const Dataset dataset = ragged({1, 3, 2}).padded_batch(2);
  std::vector<Shape> shapes;
  for (const Example& batch : dataset) shapes.push_back(batch[0].shape());
  EXPECT_EQ(shapes, (std::vector<Shape>{Shape({2, 3}), Shape({1, 2})}));
  EXPECT_EQ(batches_of(dataset.iterate()), (Batches{{1, 0, 0, 3, 3, 3}, {2, 2}}));
  EXPECT_EQ(batches_of(ragged({1, 2})
                           .padded_batch(2, {.padded_shapes = {Shape({3})}, .padding_values = {-1}})
                           .iterate()),
            (Batches{{1, -1, -1, 2, 2, -1}}));
  EXPECT_EQ(
      batches_of(ragged({1, 3, 2}).padded_batch(2, {.drop_remainder = true}).iterate()).size(), 1u);
  expect_resumes(ragged({1, 3, 2, 5, 4}).padded_batch(2));
}

TEST(PaddedBatch, PadsEveryAxisOfEveryDtype) {
  const auto make = [](std::int64_t rows, std::int64_t columns) {
    return Dataset::from_tensors(
        {full({rows, columns}, 7.0, {.dtype = float32}), full({columns}, true, {.dtype = bool_})});
  };
  const Dataset dataset =
      make(1, 3).concatenate(make(2, 1)).padded_batch(2, {.padding_values = {-0.5, 1}});
  const Example batch = *dataset.iterate().next();
  testing::expect_tensor(batch[0], float32, {2, 2, 3},
                         {7, 7, 7, -.5, -.5, -.5, 7, -.5, -.5, 7, -.5, -.5});
  testing::expect_tensor(batch[1], bool_, {2, 3}, {1, 1, 1, 1, 1, 1});
}

TEST(PaddedBatch, ReportsWhatDoesNotFit) {
  const auto first = [](const Dataset& dataset) { dataset.iterate().next(); };
  expect_error<InvalidArgumentError>(
      [&] {
        first(ragged({1, 3}).padded_batch(2, {.padded_shapes = {Shape({2})}}));
      },
      "Attempted to pad to a smaller size than the input element: component 0 has size 3 in axis "
      "0, padded_shapes has 2");
  expect_error<InvalidArgumentError>(
      [&] {
        first(ragged({1}).padded_batch(2, {.padded_shapes = {Shape({2, 2})}}));
      },
      "expected padded_shapes[0] of 1 axes, got (2, 2)");
  expect_error<InvalidArgumentError>(
      [&] {
        first(ragged({1}).padded_batch(2, {.padding_values = {1, 2}}));
      },
      "expected padding_values for 1 components, got 2");
  for (const double value : {0.5, 3e9})
    expect_error<InvalidArgumentError>(
        [&] { first(ragged({1}).padded_batch(2, {.padding_values = {value}})); },
        "component 0 is int32, which has no padding value");
  expect_error<InvalidArgumentError>([] { numbers(2).padded_batch(0); },
                                     "a batch size of at least 1");
  const Dataset mixed = ragged({2}).concatenate(numbers(1));
  expect_error<InvalidArgumentError>([&] { first(mixed.padded_batch(2)); },
                                     "expected elements of one rank and dtype");
}

std::int64_t length_of(const Example& element) { return element[0].size(); }

TEST(BucketBySequenceLength, HasTensorFlowsBatches) {
  const Dataset source = ragged({1, 5, 2, 7, 3, 9, 2, 4});
  const auto shapes = [](const Dataset& dataset) {
    std::vector<Shape> all;
    for (const Example& batch : dataset) all.push_back(batch[0].shape());
    return all;
  };
  const Dataset dataset = source.bucket_by_sequence_length(length_of, {3, 5}, {2, 2, 2});
  EXPECT_EQ(shapes(dataset), (std::vector<Shape>{Shape({2, 2}), Shape({2, 7}), Shape({2, 4}),
                                                 Shape({1, 2}), Shape({1, 9})}));
  expect_resumes(dataset);
  EXPECT_EQ(shapes(source.bucket_by_sequence_length(length_of, {3, 5}, {2, 2, 2},
                                                    {.drop_remainder = true})),
            (std::vector<Shape>{Shape({2, 2}), Shape({2, 7}), Shape({2, 4})}));
  EXPECT_EQ(shapes(ragged({1, 2, 4}).bucket_by_sequence_length(length_of, {3, 6}, {2, 2, 2},
                                                               {.pad_to_bucket_boundary = true})),
            (std::vector<Shape>{Shape({2, 2}), Shape({1, 5})}));
  expect_error<InvalidArgumentError>(
      [&] {
        shapes(source.bucket_by_sequence_length(length_of, {3, 5}, {2, 2, 2},
                                                {.pad_to_bucket_boundary = true}));
      },
      "expected lengths below 5, the last boundary, since pad_to_bucket_boundary is set; got 5");
  expect_error<InvalidArgumentError>(
      [&] {
        shapes(source.bucket_by_sequence_length(length_of, {3}, {2, 2}, {.no_padding = true}));
      },
      "[bucket_by_sequence_length] expected elements of one shape and dtype");
}

TEST(CombiningDatasets, ReportInvalidArguments) {
  expect_error<InvalidArgumentError>([] { numbers(2).window(0); }, "[window] expected a size");
  expect_error<InvalidArgumentError>([] { numbers(2).window(1, {.shift = -1}); },
                                     "[window] expected a shift");
  expect_error<InvalidArgumentError>([] { numbers(2).interleave({}); },
                                     "[interleave] expected a function");
  expect_error<InvalidArgumentError>([] { numbers(2).flat_map({}); },
                                     "[flat_map] expected a function");
  expect_error<InvalidArgumentError>(
      [] { numbers(2).interleave(three_times, {.cycle_length = 0}); },
      "a cycle_length of [1, 4096], got 0");
  expect_error<InvalidArgumentError>([] { Dataset::sample_from_datasets({}); },
                                     "at least one dataset");
  expect_error<InvalidArgumentError>(
      [] {
        Dataset::sample_from_datasets({numbers(1)}, {.weights = {1, 2}});
      },
      "a weight for each of 1 datasets, got 2");
  expect_error<InvalidArgumentError>(
      [] { Dataset::sample_from_datasets({numbers(1)}, {.weights = {0}}); }, "a weight above 0");
  expect_error<InvalidArgumentError>(
      [] {
        numbers(1).bucket_by_sequence_length(length_of, {3, 3}, {1, 1, 1});
      },
      "expected increasing boundaries, got 3 after 3");
  expect_error<InvalidArgumentError>(
      [] { numbers(1).bucket_by_sequence_length(length_of, {3}, {1}); },
      "one batch size more than boundaries, got 1 sizes and 1 boundaries");
}

TEST(CombiningDatasets, CannotBeSentToWorkers) {
  for (const Dataset& dataset :
       {numbers(4).window(2), numbers(4).batch(2).unbatch(), numbers(4).flat_map(three_times),
        numbers(4).padded_batch(2), numbers(4).bucket_by_sequence_length(length_of, {}, {2}),
        Dataset::sample_from_datasets({numbers(4)})})
    expect_error<UnimplementedError>([&] { data::describe(dataset); },
                                     "a dataset with this stage cannot be sent to workers");
}

TEST(CombiningDatasets, SplitFilesOfAGlobalBatch) {
  const auto read = [](const std::string& name) { return numbers(name == "a" ? 6 : 4); };
  const Dataset files = Dataset::from_files({"a", "b"}, read);
  const data::FileShard second{.workers = 2, .worker = 1, .replicas = 2, .first_replica = 1};
  const auto mine = [&](const Dataset& dataset) {
    const data::NodePtr node = dataset.node()->sharded(second);
    return node ? batches_of(Dataset(node).iterate()) : Batches{{-1}};
  };
  EXPECT_EQ(mine(files.padded_batch(4)), (Batches{{0, 1}, {2, 3}}));
  EXPECT_EQ(mine(files.window(2).batch(2)), (Batches{{0, 1}, {2, 3}}));
  EXPECT_EQ(mine(files.batch(2).unbatch().batch(4)), (Batches{{0, 1}, {2, 3}}));
  EXPECT_EQ(mine(files.batch(2).unbatch()), (Batches{{-1}}));
}

}  // namespace
}  // namespace tandem::combining_test
