// Random transformations in different branches of a pipeline have different random numbers.
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "data/description.h"
#include "data/pipelines.h"
#include "tandem/data.h"
#include "tandem/math.h"
#include "tandem/random.h"

namespace tandem::random_places_test {
namespace {

using data::Dataset;
using data::Example;
using testing::generated;
using testing::numbers;

Dataset with_noise(const Dataset& dataset, int threads = 1) {
  return dataset.map([](const Example&) { return Example(random::normal({}, 0.0, 1.0)); },
                     {.num_parallel_calls = threads});
}

// All numbers of all components, from a position on.
std::vector<float> noise_of(const Dataset& dataset, std::int64_t skip = 0,
                            std::uint64_t epoch = 0) {
  std::vector<float> values;
  auto iterator = dataset.iterate({.epoch = epoch, .skip = skip});
  while (const auto example = iterator.next())
    for (const Tensor& component : *example)
      for (const float value : component.to_vector<float>()) values.push_back(value);
  return values;
}

void expect_different(const std::vector<float>& values, std::size_t count) {
  EXPECT_EQ(values.size(), count);
  EXPECT_EQ(std::set<float>(values.begin(), values.end()).size(), count);
}

// The same again after a restart, and from each position.
void expect_resumes(const std::function<Dataset()>& make, std::int64_t elements) {
  const Dataset dataset = make();
  for (const std::uint64_t epoch : {0u, 3u}) {
    const auto all = noise_of(dataset, 0, epoch);
    const auto size = static_cast<std::ptrdiff_t>(all.size()) / elements;  // of an element
    for (std::int64_t skip = 0; skip <= elements; ++skip)
      EXPECT_EQ(noise_of(make(), skip, epoch),
                std::vector<float>(all.begin() + size * skip, all.end()));
  }
}

TEST(RandomPlaces, DifferInBranchesOfZip) {
  const auto make = [] {
    return Dataset::zip(with_noise(numbers(6)), with_noise(numbers(6)), with_noise(generated(6), 2),
                        with_noise(with_noise(numbers(6)).batch(1)));
  };
  expect_different(noise_of(make()), 24);
  expect_resumes(make, 6);
}

TEST(RandomPlaces, DifferInBranchesOfConcatenate) {
  const auto make = [] {
    return with_noise(numbers(4))
        .concatenate(with_noise(numbers(4)))
        .concatenate(with_noise(generated(4)))
        .concatenate(with_noise(numbers(4)).repeat(2));
  };
  expect_different(noise_of(make()), 20);
  expect_resumes(make, 20);
}

TEST(RandomPlaces, DifferInNestedBranchesAndAfterThem) {
  const auto make = [] {
    const auto pair = [] { return Dataset::zip(with_noise(numbers(5)), with_noise(numbers(5))); };
    const Dataset both = Dataset::zip(pair(), pair().concatenate(pair()));
    return both.map([](const Example& example) {
      Example more = example;
      more.push_back(random::normal({}, 0.0, 1.0));
      return more;
    });
  };
  expect_different(noise_of(make()), 25);
  expect_resumes(make, 5);
}

TEST(RandomPlaces, DifferBetweenFiles) {
  const auto read = [](const std::string&) { return with_noise(numbers(4)); };
  const auto make = [&] {
    return Dataset::zip(
        with_noise(Dataset::from_files({"1", "2"}, read)), Dataset::from_files({"1", "2"}, read),
        Dataset::from_files({"a", "b"},
                            [&](const std::string&) { return Dataset::from_files({"3"}, read); }));
  };
  expect_different(noise_of(make()), 24);
  expect_resumes(make, 8);
}

TEST(RandomPlaces, OfShufflesDifferUnlessASeedIsGiven) {
  const auto orders = [](const Dataset& a, const Dataset& b) {
    std::vector<std::vector<std::int32_t>> orders(2);
    for (const Example& pair : Dataset::zip(a, b))
      for (std::size_t i = 0; i < 2; ++i) orders[i].push_back(pair[i].item<std::int32_t>());
    return orders;
  };
  const auto other = orders(numbers(50).shuffle(50), numbers(50).shuffle(50));
  EXPECT_NE(other[0], other[1]);
  const auto fixed = orders(numbers(50).shuffle(50, {.reshuffle_each_iteration = false}),
                            generated(50).shuffle(50, {.reshuffle_each_iteration = false}));
  EXPECT_NE(fixed[0], fixed[1]);
  const auto same =
      orders(numbers(50).shuffle(50, {.seed = 7}), numbers(50).shuffle(50, {.seed = 7}));
  EXPECT_EQ(same[0], same[1]);
}

// A dataset has the same elements wherever it is used, so that what is derived from it fits.
TEST(RandomPlaces, OfOneDatasetAreTheSameInAllBranches) {
  const Dataset shuffled = numbers(40).shuffle(40);
  const auto plus = [&](double number) {
    return shuffled.map([number](const Tensor& x) { return x + number; });
  };
  for (const Example& pair : Dataset::zip(plus(0.0), plus(1.0)))
    EXPECT_EQ(pair[1].item<std::int32_t>(), pair[0].item<std::int32_t>() + 1);

  const Dataset cached = with_noise(numbers(4)).cache();
  const auto pairs = noise_of(Dataset::zip(cached, cached.skip(1)));
  ASSERT_EQ(pairs.size(), 6u);
  EXPECT_EQ(pairs[1], pairs[2]);
  EXPECT_EQ(pairs[3], pairs[4]);
}

// Joining does not move what has no random numbers, and so keeps its caches.
TEST(RandomPlaces, DoNotMakeACacheTwice) {
  int calls = 0;
  const Dataset plain = Dataset::from_generator([&calls] {
                          ++calls;
                          return [i = 0]() mutable -> std::optional<Example> {
                            if (i == 3) return std::nullopt;
                            return Example(constant(static_cast<float>(i++)));
                          };
                        }).cache();
  for (int i = 0; i < 3; ++i) noise_of(Dataset::zip(with_noise(numbers(3)), plain));
  EXPECT_EQ(calls, 1);
  const Dataset random = with_noise(plain).cache();
  const auto zipped = [&] { return Dataset::zip(with_noise(numbers(3)), random); };
  EXPECT_EQ(noise_of(zipped()), noise_of(zipped()));
  expect_different(noise_of(zipped()), 6);
}

TEST(RandomPlaces, AreInDescriptions) {
  const auto noise = [](const Dataset& dataset) {
    return dataset.map([](const Tensor& x) { return x + random::normal({}, 0.0, 1.0); });
  };
  const Dataset slices = Dataset::from_tensor_slices(zeros({5}));
  const Dataset zipped = Dataset::zip(noise(slices), noise(slices));
  const auto expected = noise_of(zipped);
  expect_different(expected, 10);
  const data::DatasetDescription description = data::describe(zipped);
  EXPECT_EQ(noise_of(data::dataset_of(description.message, description.tensors, {})), expected);
}

// Datasets whose pipelines are made later, one of them by way of the other.
Dataset registered_noise(bool nested) {
  static const bool registered = [] {
    data::register_dataset("places.noise", [](const distribute::InputContext&) {
      return with_noise(with_noise(numbers(5)));
    });
    data::register_dataset("places.nested", [](const distribute::InputContext&) {
      return Dataset::zip(data::registered_dataset("places.noise"),
                          with_noise(data::registered_dataset("places.noise")));
    });
    return true;
  }();
  static_cast<void>(registered);
  return data::registered_dataset(nested ? "places.nested" : "places.noise");
}

TEST(RandomPlaces, DifferInRegisteredDatasets) {
  const auto make = [] {
    return Dataset::zip(registered_noise(false), registered_noise(false),
                        with_noise(registered_noise(false)), with_noise(numbers(5)),
                        registered_noise(true), registered_noise(true),
                        Dataset::zip(Dataset::zip(registered_noise(false), registered_noise(false)),
                                     registered_noise(true), with_noise(registered_noise(true))));
  };
  expect_different(noise_of(make()), 65);
  expect_resumes(make, 5);
  EXPECT_EQ(noise_of(registered_noise(false)), noise_of(with_noise(with_noise(numbers(5)))));
}

TEST(RandomPlaces, DifferInRegisteredDatasetsOfEachFile) {
  const auto make = [] {
    return Dataset::from_files({"1", "2"},
                               [](const std::string&) { return registered_noise(true); });
  };
  expect_different(noise_of(make()), 20);
  expect_resumes(make, 10);
}

TEST(RandomPlaces, OfRegisteredDatasetsAreTheSameOnEachWorker) {
  const auto zipped = [] {
    return Dataset::zip(registered_noise(false), registered_noise(true), registered_noise(true));
  };
  const auto on_worker = [&](int worker, std::int64_t skip) {
    const data::DatasetDescription own = data::for_worker(data::describe(zipped()), worker);
    return noise_of(data::dataset_of(own.message, own.tensors, {}), skip);
  };
  std::vector<float> of_all;
  for (const int worker : {0, 1, 2}) {
    const std::vector<float> values = on_worker(worker, 0);
    expect_different(values, 25);
    EXPECT_EQ(on_worker(worker, 3), std::vector<float>(values.begin() + 15, values.end()));
    of_all.insert(of_all.end(), values.begin(), values.end());
  }
  expect_different(of_all, 75);
  EXPECT_EQ(on_worker(0, 0), noise_of(zipped()));
}

}  // namespace
}  // namespace tandem::random_places_test
