// Pipelines as messages: the rebuilt pipeline has the elements of the original one.
#include "data/description.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "data/files.h"
#include "data/pipelines.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::data::description_test {
namespace {

using testing::batches_of;
using testing::elements_of;
using testing::expect_error;
using testing::generated;
using testing::numbers;

// The pipeline after a journey as bytes.
Dataset sent(const Dataset& dataset) {
  const DatasetDescription description = describe(dataset);
  proto::Dataset message;
  EXPECT_TRUE(message.ParseFromString(description.message.SerializeAsString()));
  return dataset_of(message, description.tensors, {});
}

// Expects the same elements in several epochs and from several positions.
void expect_same(const Dataset& dataset) {
  const Dataset rebuilt = sent(dataset);
  EXPECT_EQ(rebuilt.cardinality(), dataset.cardinality());
  for (const std::uint64_t epoch : {0u, 1u, 5u}) {
    const auto expected = batches_of(dataset.take(60).iterate({.epoch = epoch}));
    EXPECT_FALSE(expected.empty());
    EXPECT_EQ(batches_of(rebuilt.take(60).iterate({.epoch = epoch})), expected) << epoch;
    for (const std::size_t skip : {std::size_t{1}, expected.size() / 2, expected.size()}) {
      const IterateOptions position{.epoch = epoch, .skip = static_cast<std::int64_t>(skip)};
      const std::vector<std::vector<std::int32_t>> rest(
          expected.begin() + static_cast<std::ptrdiff_t>(skip), expected.end());
      EXPECT_EQ(batches_of(rebuilt.take(60).iterate(position)), rest) << epoch << ' ' << skip;
    }
  }
}

TEST(Description, EveryStageGivesTheSameElements) {
  expect_same(numbers(10));
  expect_same(Dataset::from_tensors(constant({3, 4, 5})));
  expect_same(numbers(20).shuffle(6, {.seed = 5}));
  expect_same(numbers(20).shuffle(6, {.seed = 5, .reshuffle_each_iteration = false}));
  expect_same(numbers(20).batch(6));
  expect_same(numbers(20).batch(6, {.drop_remainder = true}));
  expect_same(numbers(7).repeat(3));
  expect_same(numbers(7).repeat());
  expect_same(numbers(20).take(5));
  expect_same(numbers(20).take(-1));
  expect_same(numbers(20).skip(5));
  expect_same(numbers(20).shard(3, 1));
  expect_same(numbers(20).shard(1, 0));
  expect_same(numbers(20).shuffle(20, {.seed = 1}).cache());
  expect_same(numbers(20).prefetch(3));
  expect_same(Dataset::zip({numbers(20), numbers(9)}));
  expect_same(numbers(20).with_auto_shard(AutoShardPolicy::kOff));
}

TEST(Description, WholePipelinesGiveTheSameElements) {
  expect_same(numbers(50).shuffle(50, {.seed = 2}).repeat(2).batch(8).prefetch(2));
  expect_same(
      Dataset::zip({numbers(30).shuffle(4, {.seed = 1}), numbers(30).skip(3).cache()}).batch(4));
  expect_same(numbers(6).batch(2).shuffle(3, {.seed = 8}).repeat(4).shard(2, 1));
}

TEST(Description, DefaultSeedsAreThoseOfTheDescribedPipeline) {
  random::set_seed(11);
  const Dataset dataset = numbers(30).shuffle(30).batch(4).shuffle(5);
  const DatasetDescription description = describe(dataset);
  random::set_seed(12);
  const Dataset rebuilt = dataset_of(description.message, description.tensors, {});
  EXPECT_EQ(elements_of(rebuilt, 2), elements_of(dataset, 2));
}

TEST(Description, PropertiesOfTheDatasetAreKept) {
  const Dataset dataset = Dataset::from_tensor_slices({zeros({10, 3}), ones({10})}).batch(4);
  const Dataset rebuilt = sent(dataset.with_auto_shard(AutoShardPolicy::kData));
  EXPECT_EQ(rebuilt.auto_shard_policy(), AutoShardPolicy::kData);
  ASSERT_TRUE(rebuilt.element_spec().has_value());
  EXPECT_EQ((*rebuilt.element_spec())[0].shape, Shape({-1, 3}));
}

TEST(Description, TensorsOfASourceAreNotCopied) {
  const Tensor large = zeros({1000, 10});
  const DatasetDescription description = describe(Dataset::from_tensor_slices(large).repeat());
  ASSERT_EQ(description.tensors.size(), 1u);
  EXPECT_EQ(description.tensors[0].data<float>(), large.data<float>());
  EXPECT_LT(description.message.ByteSizeLong(), 100u);
}

TEST(Description, StageThatIsUsedTwiceIsDescribedOnce) {
  const Dataset source = numbers(8).cache();
  const DatasetDescription description = describe(Dataset::zip({source, source.skip(2)}));
  EXPECT_EQ(description.message.stages_size(), 4);
  EXPECT_EQ(description.tensors.size(), 1u);
}

TEST(Description, ElementSpecIsKnownOrThatOfTheFirstElement) {
  const auto known = describe(numbers(10).batch(4, {.drop_remainder = true})).element_spec;
  ASSERT_EQ(known.size(), 1u);
  EXPECT_EQ(known[0].shape, Shape({4}));
  EXPECT_EQ(known[0].dtype, int32);
  register_dataset("generated",
                   [](const distribute::InputContext&) { return generated(6).batch(3); });
  const auto first = describe(registered_dataset("generated")).element_spec;
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].shape, Shape({-1}));
  register_dataset("empty", [](const distribute::InputContext&) { return generated(0); });
  expect_error<FailedPreconditionError>([] { describe(registered_dataset("empty")); },
                                        "the element_spec() of the dataset is not known");
  expect_error<NotFoundError>([] { describe(registered_dataset("elsewhere")); },
                              "no dataset 'elsewhere' is registered in this program");
  const auto given = describe(registered_dataset("elsewhere", {{float32, {-1, 2}}})).element_spec;
  EXPECT_EQ(given[0].shape, Shape({-1, 2}));
}

Dataset with_pairs(int count) {
  return Dataset::from_tensor_slices({range(count), range(2 * count).reshape({count, 2})});
}

TEST(Description, MapsTravelAsGraphs) {
  const Tensor table = constant({5, 3, 8, 1, 9, 2, 7, 4, 6, 0});
  const Dataset dataset = numbers(10).map([table](const Example& e) {
    return Example{gather(table, e[0]) * 10 + e[0], e[0]};
  });
  expect_same(dataset);
  expect_same(dataset.shuffle(7, {.seed = 3}).batch(3).repeat(3));
  expect_same(numbers(40).map([](const Example& e) { return Example(e[0] * e[0]); },
                              {.num_parallel_calls = 4}));
  // A map after a map, of batches whose last one is smaller.
  expect_same(with_pairs(10)
                  .batch(4)
                  .map([](const Example& e) {
                    return Example{reduce_sum(e[1], {.axis = {1}}), e[0]};
                  })
                  .map([](const Example& e) { return Example(e[0] - e[1]); }));
  // Sizes that the function itself depends on.
  expect_same(with_pairs(10).batch(4).map([](const Example& e) {
    return Example(concat({reshape(e[1], {-1}), e[0]}, 0));
  }));
}

TEST(Description, RandomNumbersOfAMapDependOnEpochAndPosition) {
  const Dataset dataset = numbers(9).shuffle(4, {.seed = 1}).map([](const Example& e) {
    const Tensor noise = random::uniform({2}, 0, 100) + random::normal({2});
    return Example(cast(noise * 1000.0, int32) + e[0]);
  });
  EXPECT_NE(elements_of(dataset, 0), elements_of(dataset, 1));
  expect_same(dataset);
  expect_same(dataset.repeat(2).batch(4));
}

TEST(Description, ControlFlowOfAMapTravels) {
  expect_same(numbers(9).map(
      [](const Example& e) {
        return Example(cond(
            e[0] > 4, [&] { return e[0] * 100; }, [&] { return e[0] - 1; }));
      },
      {.num_parallel_calls = 3}));
}

TEST(Description, FiltersOfTensorsTravel) {
  const Dataset dataset =
      numbers(30).filter([](const Example& e) { return (e[0] / 3) * 3 == e[0]; });
  EXPECT_EQ(elements_of(dataset), testing::count_up(0, 30, 3));
  expect_same(dataset);
  expect_same(dataset.map([](const Example& e) { return Example(e[0] + 1); }).batch(4));
  expect_error<InvalidArgumentError>(
      [] { numbers(3).filter([](const Example& e) { return e[0] + 1; }).iterate().next(); },
      "`predicate` return type must be convertible to a scalar boolean tensor. Got shape () and "
      "dtype int32");
}

TEST(Description, DescriptionOfARebuiltPipelineIsTheSame) {
  const DatasetDescription first =
      describe(with_pairs(12)
                   .filter([](const Example& e) { return e[0] > 3; })
                   .map([](const Example& e) { return Example(e[1]); }, {.num_parallel_calls = 2})
                   .batch(2));
  const Dataset rebuilt = dataset_of(first.message, first.tensors, {});
  EXPECT_EQ(describe(rebuilt).message.SerializeAsString(), first.message.SerializeAsString());
}

TEST(Description, ElementSpecOfAMapIsKnown) {
  int called = 0;
  const auto spec = describe(with_pairs(10).batch(4).map([&](const Example& e) {
                      ++called;
                      return Example{cast(e[1], float32), reduce_sum(e[1])};
                    })).element_spec;
  EXPECT_EQ(called, 1);
  ASSERT_EQ(spec.size(), 2u);
  EXPECT_EQ(spec[0].dtype, float32);
  EXPECT_EQ(spec[0].shape, Shape({-1, 2}));
  EXPECT_EQ(spec[1].shape, Shape::scalar());
}

TEST(Description, FunctionIsTracedForADatasetElsewhere) {
  Iterator elements = dataset_elsewhere(describe(with_pairs(8).batch(4)).element_spec).iterate();
  const auto sum = function([](Iterator& batches) { return reduce_sum(batches.next()[1]); });
  expect_error<FailedPreconditionError>(
      [&] { sum(elements); }, "the elements of a dataset of workers are not in this program");
  EXPECT_EQ(sum.num_traces(), 1u);
  expect_error<UnimplementedError>(
      [&] {
        describe(dataset_elsewhere({{int32, {-1}}}));
      },
      "its elements are on the workers already");
}

TEST(Description, FunctionThatIsNoGraphIsRefused) {
  const auto refuse = [](const MapFn& fn, const char* why) {
    expect_error<UnimplementedError>([&] { describe(numbers(4).map(fn)); },
                                     "[map] a dataset with this stage");
    expect_error<UnimplementedError>([&] { describe(numbers(4).map(fn)); }, why);
  };
  refuse([](const Example& e) { return Example(constant(e[0].item<std::int32_t>())); },
         "its function cannot be traced: ");
  const Variable v(constant(3), {.name = "offset"});
  refuse([v](const Example& e) { return Example(e[0] + v); }, "it uses variable 'offset'");
  refuse(
      [](const Example& e) {
        const Variable made(constant(3), {.name = "made"});
        return Example(e[0] + made);
      },
      "Creating variables in `dataset_fn` is not allowed.");
  Iterator others = numbers(4).iterate();
  refuse([others](const Example&) mutable { return Example(others.next()[0]); },
         "it takes elements from an iterator");
  refuse([](const Example&) { return Example(Tensor()); }, "it returns an undefined tensor");
  expect_error<UnimplementedError>(
      [] { describe(numbers(4).filter([](const Example&) { return true; })); },
      "[filter] a dataset with this stage cannot be sent to workers, because its function returns "
      "a C++ bool: let it return a tensor");
  expect_error<UnimplementedError>(
      [] { describe(numbers(4).filter([](const Example&) { return random::uniform({}) > 0.5; })); },
      "it uses random numbers, which do not depend on the element here");
}

TEST(Description, FilesOfKnownFormatsTravelAsPaths) {
  const testing::TemporaryFolder folder;
  std::vector<std::string> paths;
  for (const std::uint8_t first : {1, 50, 90})
    paths.push_back(folder.write(fmt::format("{}.idx", first),
                                 testing::idx_file(0x09, {3}, {first, 7, 8})));  // int32 rows
  const Dataset dataset = Dataset::from_files(paths, tandem::datasets::idx_rows);
  EXPECT_EQ(elements_of(dataset), (std::vector<std::int32_t>{1, 7, 8, 50, 7, 8, 90, 7, 8}));
  expect_same(dataset);
  expect_same(dataset.map([](const Example& e) { return Example(e[0] * 2); }).batch(4));

  const Dataset images =
      Dataset::from_files({folder / "absent"}, tandem::datasets::cifar10_examples);
  const auto spec = describe(images.batch(8).map([](const Example& e) {
                      return Example{cast(e[0], float32) / 255.0, e[1]};
                    })).element_spec;  // without the file
  EXPECT_EQ(spec[0].shape, Shape({-1, 32, 32, 3}));
  EXPECT_EQ(spec[0].dtype, float32);
  EXPECT_EQ(spec[1].dtype, int64);
  expect_error<NotFoundError>([&] { sent(images).iterate().next(); }, "absent: no such file");
  proto::Dataset message = describe(images).message;
  message.mutable_stages(0)->mutable_files()->set_format("png");
  expect_error<InvalidArgumentError>([&] { dataset_of(message, {}, {}); },
                                     "unknown file format 'png'");
}

TEST(Description, StagesWithFunctionsNameThemselves) {
  const auto expect_refusal = [](const Dataset& dataset, const char* stage) {
    expect_error<UnimplementedError>([&] { describe(dataset.batch(2)); },
                                     fmt::format("[{}] a dataset with this stage", stage));
    expect_error<UnimplementedError>([&] { describe(dataset); }, "data::register_dataset(NAME");
  };
  expect_refusal(generated(5), "from_generator");
  expect_refusal(Dataset::from_files({"a"}, [](const std::string&) { return numbers(3); }),
                 "from_files");
  expect_refusal(
      DataLoader(IndexedDataset::from_tensor_slices(zeros({4})), {.batch_size = 2}).dataset(),
      "DataLoader");
}

TEST(RegisteredDataset, IsThatOfThisProgramWhereItIsRegistered) {
  int made = 0;
  register_dataset("train", [&](const distribute::InputContext& context) {
    ++made;
    EXPECT_EQ(context.num_replicas_in_sync, 1);
    return numbers(9).shuffle(9, {.seed = 4});
  });
  const Dataset dataset = registered_dataset("train").batch(2);
  EXPECT_EQ(dataset.cardinality(), 5);
  EXPECT_EQ(elements_of(dataset, 1), elements_of(numbers(9).shuffle(9, {.seed = 4}), 1));
  EXPECT_EQ(made, 1);
  expect_same(dataset);
  EXPECT_EQ(made, 2);
}

TEST(RegisteredDataset, WrongUseIsAnError) {
  const DatasetFn make = [](const distribute::InputContext&) { return numbers(2); };
  register_dataset("once", make);
  expect_error<AlreadyExistsError>([&] { register_dataset("once", make); },
                                   "a dataset 'once' is registered already");
  expect_error<InvalidArgumentError>([&] { register_dataset("", make); }, "expected a name");
  expect_error<InvalidArgumentError>([&] { register_dataset("other", {}); },
                                     "expected a function for 'other'");
  expect_error<InvalidArgumentError>([] { registered_dataset(""); }, "expected a name");
  expect_error<InvalidArgumentError>([] { registered_dataset("a", {{.dtype = int32}}); },
                                     "expected shapes of known rank");
  expect_error<NotFoundError>([] { registered_dataset("absent").iterate(); },
                              "no dataset 'absent' is registered in this program");
  register_dataset("undefined", [](const distribute::InputContext&) { return Dataset(); });
  expect_error<InvalidArgumentError>([] { registered_dataset("undefined").iterate(); },
                                     "got an undefined dataset");
}

TEST(RegisteredDataset, FunctionMakesNoVariables) {
  register_dataset("variables", [](const distribute::InputContext&) {
    const Variable v(zeros({2}), {.name = "counter"});
    return numbers(2);
  });
  expect_error<InvalidArgumentError>([] { registered_dataset("variables").iterate(); },
                                     "Creating variables in `dataset_fn` is not allowed.");
}

// --- messages that are not valid ---

proto::Dataset message_of(const Dataset& dataset) { return describe(dataset).message; }

void expect_refused(const proto::Dataset& message, const std::string& text) {
  const Tensor tensors[] = {zeros({4, 2}), constant({1, 2, 3})};
  expect_error<InvalidArgumentError>([&] { dataset_of(message, tensors, {}); }, text);
}

TEST(DamagedDescription, IsAnError) {
  expect_refused({}, "expected 1 to 256 stages, got 0");
  proto::Dataset message = message_of(numbers(4).take(2));
  message.mutable_stages(1)->set_inputs(0, 1);
  expect_refused(message, "stage 1 has input 1, which does not precede it");
  message.mutable_stages(1)->clear_inputs();
  expect_refused(message, "a stage of 0 inputs, expected 1");
  message.mutable_stages(1)->add_inputs(0);
  message.mutable_stages(1)->clear_kind();
  expect_refused(message, "a stage of an unknown kind");
  message = message_of(numbers(4));
  message.mutable_stages(0)->mutable_from_tensor_slices()->set_tensors(0, 2);
  expect_refused(message, "expected a tensor below 2, got 2");
  message.mutable_stages(0)->mutable_from_tensor_slices()->clear_tensors();
  expect_refused(message, "expected at least one tensor, got none");
  message = message_of(numbers(4).shard(3, 1));
  message.mutable_stages(1)->mutable_every()->set_first(3);
  expect_refused(message, "expected an index of [0, 3), got 3");
  message = message_of(numbers(4).with_auto_shard(AutoShardPolicy::kOff));
  message.mutable_stages(1)->set_auto_shard(17);
  expect_refused(message, "unknown sharding policy 17");
}

TEST(DamagedDescription, StreamsAndStagesAreLimited) {
  proto::Dataset message = message_of(numbers(4));
  for (std::uint32_t i = 0; i < 60; ++i) {
    proto::Stage& zip = *message.add_stages();
    zip.mutable_zip();
    zip.add_inputs(i);
    zip.add_inputs(i);
  }
  expect_refused(message, "a pass opens more than 4096 streams");
  message = message_of(numbers(4));
  for (std::uint32_t i = 0; i < 300; ++i) {
    proto::Stage& take = *message.add_stages();
    take.set_take(3);
    take.add_inputs(i);
  }
  expect_refused(message, "expected 1 to 256 stages, got 301");
}

TEST(DamagedDescription, FunctionsAreChecked) {
  proto::Dataset message =
      message_of(numbers(4).map([](const Example& e) { return Example(e[0] + 1); }));
  const proto::Dataset good = message;
  proto::Stage::Map& map = *message.mutable_stages(1)->mutable_map();
  map.set_num_parallel_calls(5000);
  expect_refused(message, "a pass opens more than 4096 streams and threads");
  map.set_num_parallel_calls(0);
  expect_refused(message, "expected num_parallel_calls of at least 1, got 0");
  map.set_num_parallel_calls(1);
  map.mutable_function()->set_feeds(0, 77);
  expect_refused(message, "[map] expected a node below");
  message = good;
  message.mutable_stages(1)->mutable_map()->mutable_function()->set_graph("x");
  const Tensor other[] = {zeros({4, 2})};
  expect_error<DataLossError>([&] { dataset_of(message, other, {}); }, "truncated or corrupt");
  // Elements that the function is not for.
  expect_error<InvalidArgumentError>([&] { dataset_of(good, other, {}).iterate().next(); },
                                     "[map] expected input 0 of shape ()");
}

// Changed bytes give a dataset or a typed error.
TEST(DamagedDescription, ChangedBytesDoNotCrash) {
  const DatasetDescription description =
      describe(Dataset::zip({numbers(8).shuffle(4, {.seed = 1}).repeat(2).skip(1).shard(2, 1),
                             numbers(8)
                                 .batch(2)
                                 .map([](const Example& e) { return Example(-e[0]); })
                                 .cache()
                                 .prefetch(2)
                                 .take(3)}));
  const std::string bytes = description.message.SerializeAsString();
  std::mt19937 random(3);
  int valid = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string changed = bytes;
    for (std::uint32_t i = 0; i <= random() % 3; ++i)
      changed[random() % changed.size()] = static_cast<char>(random() % 256);
    if (round % 4 == 0) changed.resize(random() % changed.size());
    proto::Dataset message;
    if (!message.ParseFromString(changed)) continue;
    try {
      const Dataset dataset = dataset_of(message, description.tensors, {});
      static_cast<void>(dataset.element_spec());
      static_cast<void>(dataset.cardinality());
      ++valid;
    } catch (const Error&) {
    }
  }
  EXPECT_GT(valid, 100);
}

}  // namespace
}  // namespace tandem::data::description_test
