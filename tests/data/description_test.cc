// Pipelines as messages: the rebuilt pipeline has the elements of the original one.
#include "data/description.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "data/pipelines.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::data {
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

// Changed bytes give a dataset or a typed error.
TEST(DamagedDescription, ChangedBytesDoNotCrash) {
  const DatasetDescription description =
      describe(Dataset::zip({numbers(8).shuffle(4, {.seed = 1}).repeat(2).skip(1).shard(2, 1),
                             numbers(8).batch(2).cache().prefetch(2).take(3)}));
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
}  // namespace tandem::data
