// AutoShardPolicy::kFile: workers read different files of a dataset.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "support/files.h"
#include "support/tensors.h"
#include "support/workers.h"
#include "tandem/tandem.h"

namespace tandem::file_sharding_test {
namespace {

using data::AutoShardPolicy;
using data::Dataset;
using data::Example;
using distribute::MultiWorkerMirroredStrategy;
using distribute::Strategy;
using testing::numbers_of;
using testing::run_workers;
using testing::text_of;
using testing::values_of;

constexpr std::int64_t kFeatures = 6;

// IDX files of unsigned bytes, [rows, features + 1]; the last column is the label.
class Files {
 public:
  explicit Files(const std::vector<std::int64_t>& rows) {
    std::uint32_t state = 7;
    for (std::size_t file = 0; file < rows.size(); ++file) {
      std::string bytes = {
          0, 0, 8, 2, 0, 0, 0, static_cast<char>(rows[file]), 0, 0, 0, kFeatures + 1};
      for (std::int64_t i = 0; i < rows[file] * (kFeatures + 1); ++i) {
        state = state * 1664525u + 1013904223u;
        bytes.push_back(static_cast<char>((state >> 20) % 3));
      }
      names_.push_back((folder_.path() / ("part-" + std::to_string(file))).string());
      std::ofstream(names_.back(), std::ios::binary) << bytes;
    }
  }
  const std::vector<std::string>& names() const { return names_; }

 private:
  testing::TemporaryDirectory folder_;
  std::vector<std::string> names_;
};

Dataset read(const std::string& path) {
  const Tensor rows = cast(datasets::read_idx(path), float32);
  return Dataset::from_tensor_slices(
      {slice(rows, {0, 0}, {rows.dim(0), kFeatures}),
       cast(reshape(slice(rows, {0, kFeatures}, {rows.dim(0), 1}), {-1}), int32)});
}

std::string train_on(const Strategy& strategy, const Dataset& data) {
  random::set_seed(0);
  Sequential model;
  {
    const auto scope = strategy.scope();
    model = Sequential({layers::Dense(8, {.activation = "tanh", .input_shape = {kFeatures}}),
                        layers::Dropout(0.3), layers::Dense(3)});
    model.compile({.optimizer = optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9}),
                   .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                   .metrics = {"accuracy"}});
  }
  const History history = model.fit(data, {.epochs = 4, .verbose = 0});
  std::vector<double> numbers = history.at("loss");
  for (double accuracy : history.at("accuracy")) numbers.push_back(accuracy);
  for (const auto& [name, value] : model.evaluate(data)) numbers.push_back(value);
  for (const Variable& variable : model.variables())
    for (double value : values_of(variable.value())) numbers.push_back(value);
  return text_of(numbers);
}

MultiWorkerMirroredStrategy joined() {
  return MultiWorkerMirroredStrategy({.timeout = std::chrono::seconds(60), .devices = {"CPU:0"}});
}

// Each worker refuses by itself. The first to do so ends the job, so a slower worker may get the
// first one's error instead.
void expect_refused(const std::vector<std::string>& results, const std::string& type,
                    const std::string& text) {
  bool refused = false;
  for (const std::string& result : results) {
    EXPECT_NE(result.find(text), std::string::npos) << result;
    EXPECT_TRUE(result.rfind(type + ": ", 0) == 0 ||
                (result.rfind("AbortedError: ", 0) == 0 &&
                 result.find(" aborted: " + text) != std::string::npos))
        << result;
    refused = refused || result.rfind(type + ": " + text, 0) == 0;
  }
  EXPECT_TRUE(refused) << "no worker refused";
}

// The contents of each worker's files, concatenated.
std::vector<Dataset> streams_of(const Files& files, std::size_t workers) {
  std::vector<std::vector<std::string>> names(workers);
  for (std::size_t file = 0; file < files.names().size(); ++file)
    names[file % workers].push_back(files.names()[file]);
  std::vector<Dataset> streams;
  for (const auto& mine : names) streams.push_back(Dataset::from_files(mine, read));
  return streams;
}

// The global batches of the workers' steps, as one process would read them.
Dataset together(const Files& files, const std::vector<std::int64_t>& parts) {
  return Dataset::from_generator([&files, parts] {
    std::vector<data::Iterator> iterators;
    const std::vector<Dataset> streams = streams_of(files, parts.size());
    for (std::size_t w = 0; w < parts.size(); ++w)
      iterators.push_back(streams[w].batch(parts[w]).iterate());
    return [iterators]() mutable -> std::optional<Example> {
      std::vector<Tensor> features, labels;
      for (data::Iterator& iterator : iterators)
        if (const auto batch = iterator.next()) {
          features.push_back(batch[0]);
          labels.push_back(batch[1]);
        }
      if (features.empty()) return std::nullopt;
      return Example{concat(features, 0), concat(labels, 0)};
    };
  });
}

// Files of different lengths: some workers run out of data before the others.
TEST(FileSharding, WorkersTrainOnTheirFilesAsOneProcessOnAll) {
  const Files files({9, 4, 7, 2, 5, 1});
  for (const auto& parts : std::vector<std::vector<std::int64_t>>{{4, 4}, {4, 3}, {3, 3, 2}}) {
    std::int64_t global = 0;
    for (std::int64_t part : parts) global += part;
    testing::ChildProcess alone(
        [&] { return train_on(distribute::DefaultStrategy(), together(files, parts)); });
    const std::vector<double> expected = numbers_of(alone.result());
    ASSERT_GT(expected.size(), 50u);
    for (AutoShardPolicy policy : {AutoShardPolicy::kAuto, AutoShardPolicy::kFile}) {
      const auto results = run_workers(static_cast<int>(parts.size()), [&](int) {
        Dataset data = Dataset::from_files(files.names(), read).batch(global).prefetch(2);
        if (policy != AutoShardPolicy::kAuto) data = data.with_auto_shard(policy);
        return train_on(joined(), data);
      });
      for (const std::string& result : results) EXPECT_EQ(result, results[0]);
      const std::vector<double> numbers = numbers_of(results[0]);
      ASSERT_EQ(numbers.size(), expected.size()) << results[0].substr(0, 300);
      for (std::size_t i = 0; i < numbers.size(); ++i)
        EXPECT_NEAR(numbers[i], expected[i], 1e-5 * std::fmax(1.0, std::abs(expected[i]))) << i;
    }
  }
}

// No worker opens the files of another, and a cached file is read once.
TEST(FileSharding, EachFileIsReadByOneWorkerAlone) {
  const Files files({3, 3, 3, 3, 3});
  const auto results = run_workers(2, [&](int) {
    const auto strategy = joined();
    auto opened = std::make_shared<std::string>();
    const Dataset data = Dataset::from_files(files.names(),
                                             [opened](const std::string& path) {
                                               *opened += path.substr(path.rfind('-') + 1) + " ";
                                               return read(path);
                                             })
                             .cache()
                             .batch(4);
    const auto distributed = strategy.experimental_distribute_dataset(data);
    for (int epoch = 0; epoch < 2; ++epoch) {
      std::string sizes;
      for (const auto& batch : distributed)
        sizes += std::to_string(batch.present(0) ? batch[0][0].dim(0).value() : 0) + "/" +
                 std::to_string(batch.split().total) + " ";
      *opened += "(" + sizes + ") ";
    }
    return *opened;
  });
  EXPECT_EQ(results[0], "0 2 4 (2/4 2/4 2/4 2/2 1/1 ) (2/4 2/4 2/4 2/2 1/1 ) ");
  EXPECT_EQ(results[1], "1 3 (2/4 2/4 2/4 0/2 0/1 ) (2/4 2/4 2/4 0/2 0/1 ) ");
}

TEST(FileSharding, FewerFilesThanWorkersAreRefused) {
  const Files files({3, 3});
  for (AutoShardPolicy policy : {AutoShardPolicy::kAuto, AutoShardPolicy::kFile}) {
    const auto results = run_workers(3, [&](int) {
      const Dataset data =
          Dataset::from_files(files.names(), read).batch(6).with_auto_shard(policy);
      return train_on(joined(), data);
    });
    expect_refused(results, "InvalidArgumentError",
                   "Could not apply FILE based sharding: the dataset only has 2 file(s), which is "
                   "not enough for the required 3 shards/workers. If you are using datasets with "
                   "distribution strategy, consider setting the auto sharding policy to either "
                   "DATA or OFF");
  }
}

TEST(FileSharding, OtherDatasetsAreShardedByExamples) {
  const Files files({8, 4});
  // The files themselves yield batches, so the size of a global batch is not known.
  const auto batched = [&] {
    return Dataset::from_files(files.names(),
                               [](const std::string& path) { return read(path).batch(4); });
  };
  testing::ChildProcess alone([&] { return train_on(distribute::DefaultStrategy(), batched()); });
  const std::vector<double> expected = numbers_of(alone.result());
  const auto results = run_workers(2, [&](int) { return train_on(joined(), batched()); });
  const std::vector<double> numbers = numbers_of(results[0]);
  ASSERT_EQ(numbers.size(), expected.size()) << results[0];
  for (std::size_t i = 0; i < numbers.size(); ++i) EXPECT_NEAR(numbers[i], expected[i], 1e-5);

  const auto refused = run_workers(2, [&](int) {
    return train_on(joined(), batched().with_auto_shard(AutoShardPolicy::kFile));
  });
  expect_refused(refused, "NotFoundError",
                 "[MultiWorkerMirroredStrategy] Found an unshardable source dataset: ");
}

TEST(FileSharding, ABatchNeedsAnExampleForEachWorker) {
  const Files files({3, 3});
  const auto results = run_workers(2, [&](int) {
    return train_on(joined(), Dataset::from_files(files.names(), read).batch(1));
  });
  EXPECT_NE(results[1].find("expected a global batch with an example for each of 2 workers, got "
                            "one of 1"),
            std::string::npos)
      << results[1];
}

}  // namespace
}  // namespace tandem::file_sharding_test
