// TFRecord files and their examples.
#include <gtest/gtest.h>

#include "data/files.h"
#include "support/expects.h"
#include "support/tensors.h"
#include "tandem/creation.h"
#include "tandem/records.h"

namespace tandem::records_test {
namespace {

using namespace testing;
using data::Compression;
using data::Dataset;
using data::FeatureMap;

Bytes bytes_of(const std::string& text) { return {text.begin(), text.end()}; }
std::string contents_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

const FeatureMap kExample = {{"a", std::vector<std::int64_t>{1, -2}},
                             {"b", std::vector<float>{0.5f}},
                             {"c", std::vector<std::string>{"xy"}}};

// The bytes that tf.train.Example(...).SerializeToString(deterministic=True)
// returns.
const std::string kSerialized =
    std::string("\x0a\x31", 2) +
    std::string(
        "\x0a\x14\x0a\x01"
        "a"
        "\x12\x0f\x1a\x0d\x0a\x0b\x01\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        22) +
    std::string(
        "\x0a\x0d\x0a\x01"
        "b"
        "\x12\x08\x12\x06\x0a\x04\x00\x00\x00\x3f",
        15) +
    std::string(
        "\x0a\x0b\x0a\x01"
        "c"
        "\x12\x06\x0a\x04\x0a\x02xy",
        13);

TEST(Examples, HaveTensorFlowsBytes) {
  EXPECT_EQ(data::serialize_example(kExample).substr(2), kSerialized.substr(2));
  EXPECT_EQ(data::parse_example(data::serialize_example(kExample)), kExample);
  EXPECT_TRUE(data::parse_example("").empty());
  // Values that are not packed.
  EXPECT_EQ(data::parse_example(std::string("\x0a\x0f\x0a\x0d\x0a\x01"
                                            "a"
                                            "\x12\x08\x1a\x06\x08\x01\x08\x02\x08\x03",
                                            17)),
            (FeatureMap{{"a", std::vector<std::int64_t>{1, 2, 3}}}));
  expect_error<DataLossError>([] { data::parse_example("\xff\xff"); },
                              "expected a tf.train.Example, got 2 other bytes");
  FeatureMap large{{"a", std::vector<float>(10'000, 1.0f)}};
  EXPECT_EQ(data::parse_example(data::serialize_example(large)), large);
}

std::string write(const TemporaryFolder& folder, const std::string& name, int first, int count,
                  Compression compression = Compression::kNone) {
  data::TFRecordWriter writer(folder / name, compression);
  for (int i = first; i < first + count; ++i)
    writer.write({{"image", std::vector<std::string>{std::string(4, static_cast<char>(i))}},
                  {"label", std::vector<std::int64_t>{i}},
                  {"weights", std::vector<float>(static_cast<std::size_t>(i % 3), 0.5f)}});
  writer.close();
  return folder / name;
}

const data::TFRecordOptions kOptions{
    .features = {{.name = "image", .dtype = uint8, .shape = {2, 2}},
                 {.name = "label", .dtype = int64},
                 {.name = "weights", .shape = Shape{-1}},
                 {.name = "absent", .dtype = int64, .shape = {2}, .default_value = 7}}};

std::vector<std::int64_t> labels_of(const Dataset& dataset, std::int64_t skip = 0) {
  std::vector<std::int64_t> labels;
  data::Iterator iterator = dataset.iterate({.skip = skip});
  while (const auto example = iterator.next()) labels.push_back((*example)[1].item<std::int64_t>());
  return labels;
}

TEST(TFRecords, BecomeTensors) {
  const TemporaryFolder folder;
  for (const Compression compression :
       {Compression::kNone, Compression::kGzip, Compression::kZlib}) {
    data::TFRecordOptions options = kOptions;
    options.compression = compression;
    const Dataset dataset = data::from_tfrecord(write(folder, "a", 1, 3, compression), options);
    const data::Example first = *dataset.iterate().next();
    expect_tensor(first[0], uint8, {2, 2}, {1, 1, 1, 1});
    expect_tensor(first[1], int64, Shape::scalar(), {1});
    expect_tensor(first[2], float32, {1}, {0.5});
    expect_tensor(first[3], int64, {2}, {7, 7});
    EXPECT_EQ(labels_of(dataset), (std::vector<std::int64_t>{1, 2, 3}));
    EXPECT_EQ(dataset.element_spec()[0].shape, Shape({2, 2}));
    EXPECT_EQ(dataset.padded_batch(3).iterate().next()[2].shape(), Shape({3, 2}));
  }
}

TEST(TFRecords, ResumeAndShard) {
  const TemporaryFolder folder;
  const Dataset dataset = data::from_tfrecord({write(folder, "a", 0, 4), write(folder, "b", 4, 0),
                                               write(folder, "c", 4, 3, Compression::kGzip)},
                                              kOptions);
  for (std::int64_t skip = 0; skip <= 15; ++skip) {
    std::vector<std::int64_t> expected = {0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5, 6};
    expected.erase(expected.begin(), expected.begin() + std::min<std::int64_t>(skip, 14));
    EXPECT_EQ(labels_of(dataset.repeat(2), skip), expected);
  }
  EXPECT_EQ(labels_of(dataset.shard(3, 2)), (std::vector<std::int64_t>{2, 5}));
}

TEST(TFRecords, AreBytesWithoutFeatures) {
  const TemporaryFolder folder;
  {
    data::TFRecordWriter writer(folder / "a");
    writer.write("one");
    writer.write("");
  }
  std::vector<std::string> records;
  for (const data::Example& record : data::from_tfrecord(folder / "a"))
    records.push_back(data::text_of(record[0]));
  EXPECT_EQ(records, (std::vector<std::string>{"one", ""}));
  // The length 3, the masked checksums of it and of "one": as TensorFlow's
  // files begin.
  EXPECT_EQ(contents_of(folder / "a").size(), 12u + 3 + 4 + 12 + 4);
}

TEST(TFRecords, ReportDamage) {
  const TemporaryFolder folder;
  const std::string path = write(folder, "a", 0, 2), good = contents_of(path);
  const auto labels = [&](const std::string& bytes) {
    labels_of(data::from_tfrecord(folder.write("b", bytes_of(bytes)), kOptions));
  };
  std::string damaged = good;
  damaged[0] ^= 1;
  expect_error<DataLossError>([&] { labels(damaged); },
                              "b: corrupted record at 0 (Is this even a TFRecord file?)");
  damaged = good;
  damaged[20] ^= 1;
  expect_error<DataLossError>([&] { labels(damaged); }, "b: corrupted record at 12");
  const std::size_t first = 12 + static_cast<std::size_t>(static_cast<unsigned char>(good[0])) + 4;
  for (std::size_t size = 1; size < good.size(); ++size) {
    if (size == first) continue;  // a file of one record
    EXPECT_THROW(labels(good.substr(0, size)), DataLossError) << size;
  }
  expect_error<DataLossError>([&] { labels(good.substr(0, 7)); },
                              "truncated record at 0: expected 12 bytes, got 7");
  expect_error<DataLossError>([&] { labels_of(data::from_tfrecord(path, {.max_record = 10})); },
                              "more than 10 (max_record)");
  expect_error<NotFoundError>([&] { labels_of(data::from_tfrecord(folder / "no")); },
                              "[from_tfrecord] " + (folder / "no"));
}

TEST(TFRecords, ReportOtherFeatures) {
  const TemporaryFolder folder;
  const std::string path = write(folder, "a", 1, 1);
  const auto read = [&](const data::FeatureSpec& spec) {
    data::from_tfrecord(path, {.features = {spec}}).iterate().next();
  };
  expect_error<InvalidArgumentError>(
      [&] { read({.name = "z"}); },
      "a, record at 0: Feature: z (data type: float32) is required but could "
      "not be found.");
  expect_error<InvalidArgumentError>(
      [&] { read({.name = "label"}); },
      "Key: label.  Data types don't match. Data type: int64 but expected "
      "type: float32");
  expect_error<InvalidArgumentError>(
      [&] { read({.name = "label", .dtype = int64, .shape = {2}}); },
      "Key: label.  Can't parse serialized Example: expected values of shape "
      "(2,), got 1");
  expect_error<InvalidArgumentError>(
      [&] { read({.name = "image", .dtype = float64, .shape = {1}}); },
      "expected a multiple of 8 bytes, got 4");
  expect_error<InvalidArgumentError>(
      [&] {
        read({.name = "image", .dtype = uint8, .shape = Shape{2, -1}});
      },
      "only the first size of a shape may be -1");
  expect_error<InvalidArgumentError>(
      [&] { read({.name = "image", .dtype = uint8, .default_value = 1}); },
      "features of float32 and int64 have default values");
  data::TFRecordWriter writer(folder / "w");
  writer.close();
  expect_error<FailedPreconditionError>([&] { writer.write("x"); }, "the file has been closed");
  EXPECT_THROW(data::TFRecordWriter(folder / "no/w"), NotFoundError);
}

}  // namespace
}  // namespace tandem::records_test
