#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>

#include "data/files.h"
#include "data/formats.h"
#include "support/expects.h"
#include "support/tensors.h"
#include "tandem/array.h"
#include "tandem/datasets.h"
#include "tandem/errors.h"

namespace tandem::readers_test {
namespace {

using namespace testing;

Tensor parse_idx(const Bytes& bytes) {
  return data::parse_idx(std::as_bytes(std::span(bytes)), "FILE");
}
datasets::LabelledImages parse_cifar10(const Bytes& bytes) {
  return data::parse_cifar10(std::as_bytes(std::span(bytes)), "FILE");
}

TEST(Idx, ReadsPlainAndGzipped) {
  const Bytes plain = idx_file(0x08, {2, 3}, ramp(6));
  for (const Bytes& file : {plain, gzip(plain)}) {
    const Tensor tensor = parse_idx(file);
    EXPECT_EQ(tensor.shape(), Shape({2, 3}));
    EXPECT_EQ(tensor.to_vector<std::uint8_t>(), ramp(6));
  }
  // A file may consist of two gzip streams.
  Bytes parts = gzip(Bytes(plain.begin(), plain.begin() + 9));
  const Bytes second = gzip(Bytes(plain.begin() + 9, plain.end()));
  parts.insert(parts.end(), second.begin(), second.end());
  EXPECT_EQ(parse_idx(parts).to_vector<std::uint8_t>(), ramp(6));
  EXPECT_EQ(parse_idx(idx_file(0x08, {0, 28, 28}, {})).shape(), Shape({0, 28, 28}));
}

TEST(Idx, ReadsEveryElementType) {
  EXPECT_EQ(parse_idx(idx_file(0x09, {2}, {0xff, 0x7f})).to_vector<std::int32_t>(),
            (std::vector<std::int32_t>{-1, 127}));
  EXPECT_EQ(parse_idx(idx_file(0x0b, {1}, {0xff, 0xfe})).to_vector<std::int32_t>(),
            (std::vector<std::int32_t>{-2}));
  EXPECT_EQ(parse_idx(idx_file(0x0c, {1}, {0x00, 0x01, 0x00, 0x02})).to_vector<std::int32_t>(),
            (std::vector<std::int32_t>{65538}));
  EXPECT_EQ(parse_idx(idx_file(0x0d, {1}, {0xc0, 0x20, 0x00, 0x00})).to_vector<float>(),
            (std::vector<float>{-2.5f}));
  EXPECT_EQ(parse_idx(idx_file(0x0e, {1}, {0x40, 0x04, 0, 0, 0, 0, 0, 0})).to_vector<double>(),
            (std::vector<double>{2.5}));
}

TEST(Idx, ReportsInvalidFiles) {
  expect_error<DataLossError>([] { parse_idx({}); },
                              "[read_idx] FILE: expected an IDX header, the file is empty");
  expect_error<DataLossError>(
      [] {
        parse_idx({0, 0});
      },
      "expected a header of at least 4 bytes, got 2");
  expect_error<InvalidArgumentError>([] { parse_idx({'P', 'K', 3, 4}); }, "got 50 4b 03 04");
  expect_error<InvalidArgumentError>([] { parse_idx(idx_file(0x0a, {1}, {0})); }, "magic number");
  expect_error<InvalidArgumentError>([] { parse_idx({0, 0, 8, 0}); }, "magic number");
  expect_error<InvalidArgumentError>([] { parse_idx({0, 0, 8, 9}); }, "1 to 8 axes");
  expect_error<DataLossError>(
      [] {
        parse_idx({0, 0, 8, 3, 0, 0, 0, 1});
      },
      "expected a header of 16 bytes, the file ends inside it");
  expect_error<DataLossError>(
      [] {
        parse_idx(gzip(idx_file(0x08, {2, 3}, ramp(5))));
      },
      "[read_idx] FILE: expected 6 bytes of elements of shape (2, 3), got 5");
  expect_error<DataLossError>(
      [] {
        parse_idx(idx_file(0x08, {2, 3}, ramp(5)));
      },
      "expected elements of shape (2, 3), more than the file can hold (at most 5 bytes)");
  expect_error<DataLossError>(
      [] {
        parse_idx(idx_file(0x08, {2, 3}, ramp(7)));
      },
      "expected 6 bytes of elements of shape (2, 3), got more");
  expect_error<DataLossError>(
      [] {
        parse_idx(idx_file(0x08, {0xffffffff, 0xffffffff, 0xffffffff}, ramp(7)));
      },
      "more than the file can hold");
  expect_error<DataLossError>(
      [] {
        parse_idx(idx_file(0x08, {0xffffff00, 0xff000000, 0}, {}));
      },
      "more than the file can hold");
  expect_error<DataLossError>(
      [] {
        parse_idx(gzip(idx_file(0x0e, {0xffffffff, 0xffff}, ramp(7))));
      },
      "more than the file can hold");
}

TEST(Idx, ReportsCorruptGzip) {
  const Bytes whole = gzip(idx_file(0x08, {2000}, ramp(2000, 251)));
  Bytes cut(whole.begin(), whole.end() - 5);
  expect_error<DataLossError>([&] { parse_idx(cut); }, "the gzip data is truncated");
  Bytes flipped = whole;
  flipped[flipped.size() - 6] ^= 1;  // a bit of the checksum
  expect_error<DataLossError>([&] { parse_idx(flipped); }, "the gzip data is corrupt");
  for (const Bytes& more : {Bytes{7}, Bytes{0, 0, 7}, Bytes{0x1f}}) {
    Bytes longer = whole;
    longer.insert(longer.end(), more.begin(), more.end());
    expect_error<DataLossError>(
        [&] { parse_idx(longer); },
        "expected the end of the gzip data, got " + std::to_string(more.size()) + " more bytes");
  }
}

// As gunzip, which ignores the zeros that fill the last block of a tape.
TEST(Idx, IgnoresZerosAfterGzip) {
  Bytes file = gzip(idx_file(0x08, {2, 3}, ramp(6)));
  file.resize(file.size() + 500, 0);
  EXPECT_EQ(parse_idx(file).to_vector<std::uint8_t>(), ramp(6));
}

Bytes cifar_file(std::size_t records) {
  Bytes file;
  for (std::size_t r = 0; r < records; ++r) {
    file.push_back(static_cast<std::uint8_t>(r % 10));
    for (std::size_t i = 0; i < 3072; ++i)
      file.push_back(static_cast<std::uint8_t>((i * 7 + r) % 256));
  }
  return file;
}

TEST(Cifar10, PutsChannelsLast) {
  const Bytes file = cifar_file(3);
  const datasets::LabelledImages set = parse_cifar10(file);
  EXPECT_EQ(set.size(), 3);
  EXPECT_EQ(set.images.shape(), Shape({3, 32, 32, 3}));
  EXPECT_EQ(set.labels.to_vector<std::int64_t>(), (std::vector<std::int64_t>{0, 1, 2}));
  const auto pixels = set.images.to_vector<std::uint8_t>();
  for (std::size_t r = 0; r < 3; ++r)
    for (std::size_t p = 0; p < 1024; ++p)
      for (std::size_t c = 0; c < 3; ++c)
        ASSERT_EQ(pixels[(r * 1024 + p) * 3 + c], file[r * 3073 + 1 + c * 1024 + p]);
}

TEST(Cifar10, ReportsInvalidFiles) {
  expect_error<DataLossError>(
      [] { parse_cifar10({}); },
      "[read_cifar10] FILE: expected records of 3073 bytes, the file is empty");
  Bytes file = cifar_file(2);
  file.pop_back();
  expect_error<DataLossError>(
      [&] { parse_cifar10(file); },
      "expected a multiple of 3073 bytes (a label and an image each), got 6145");
  file = cifar_file(2);
  file[3073] = 17;
  expect_error<InvalidArgumentError>(
      [&] { parse_cifar10(file); },
      "[read_cifar10] FILE: expected labels of [0, 10), got 17 in record 1");
}

// Any bytes give valid data or a typed error.
void expect_no_crash(const std::function<void()>& parse) {
  try {
    parse();
  } catch (const DataLossError&) {
  } catch (const InvalidArgumentError&) {
  }
}

TEST(Parsers, SurviveTruncationAndDamage) {
  std::mt19937 random(1);
  const Bytes plain = idx_file(0x08, {5, 4, 3}, ramp(60));
  const Bytes files[] = {plain, gzip(plain), idx_file(0x0e, {2, 2}, ramp(32)),
                         gzip(idx_file(0x08, {3000}, ramp(3000, 199)))};
  for (const Bytes& file : files) {
    for (std::size_t size = 0; size < file.size(); ++size) {
      const Bytes cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));
      EXPECT_THROW(parse_idx(cut), Error) << "cut to " << size << " of " << file.size();
    }
    for (int round = 0; round < 2000; ++round) {
      Bytes damaged = file;
      for (std::uint32_t i = 0, flips = 1 + random() % 4; i < flips; ++i)
        damaged[random() % damaged.size()] ^= static_cast<std::uint8_t>(1 + random() % 255);
      if (random() % 4 == 0) damaged.resize(damaged.size() + random() % 9);
      expect_no_crash([&] { parse_idx(damaged); });
    }
  }
  const Bytes records = cifar_file(2);
  for (std::size_t size = 0; size < records.size();
       size += size < 16 || records.size() - size < 16 ? 1 : 511) {
    const Bytes cut(records.begin(), records.begin() + static_cast<std::ptrdiff_t>(size));
    expect_no_crash([&] { parse_cifar10(cut); });
  }
}

// --- directories ---

void write_mnist(const TemporaryFolder& folder, std::size_t count, bool packed) {
  const auto pack = [&](const Bytes& bytes) { return packed ? gzip(bytes) : bytes; };
  const std::string suffix = packed ? ".gz" : "";
  const auto n = static_cast<std::uint32_t>(count);
  for (const std::string split : {"train", "t10k"}) {
    folder.write(split + "-images-idx3-ubyte" + suffix,
                 pack(idx_file(0x08, {n, 28, 28}, ramp(count * 784))));
    folder.write(split + "-labels-idx1-ubyte" + suffix, pack(idx_file(0x08, {n}, ramp(count, 10))));
  }
}

TEST(Mnist, ReadsItsFourFiles) {
  for (const bool packed : {false, true}) {
    const TemporaryFolder folder;
    write_mnist(folder, 12, packed);
    const auto [train, test] = datasets::mnist(folder.path());
    EXPECT_EQ(train.size(), 12);
    EXPECT_EQ(train.classes, 10);
    EXPECT_EQ(train.images.shape(), Shape({12, 28, 28, 1}));
    EXPECT_EQ(train.images.dtype(), uint8);
    EXPECT_EQ(test.labels.to_vector<std::int64_t>(),
              (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1}));
    EXPECT_EQ(train.images.to_vector<std::uint8_t>(), ramp(12 * 784));
    EXPECT_EQ(train.dataset().cardinality(), 12);
    EXPECT_EQ(train.take(5).size(), 5);
    EXPECT_EQ(train.take(50).size(), 12);
    EXPECT_THROW(train.take(-1), InvalidArgumentError);
  }
}

TEST(Mnist, HasLibtorchsExamplesInADatasetOfItsKind) {
  const TemporaryFolder folder;
  write_mnist(folder, 12, false);
  using data::datasets::MNIST;
  MNIST train(folder.path()), test(folder.path(), MNIST::Mode::kTest);
  EXPECT_TRUE(train.is_train());
  EXPECT_FALSE(test.is_train());
  EXPECT_EQ(train.size().value(), 12u);
  EXPECT_EQ(train.images().shape(), Shape({12, 1, 28, 28}));
  const data::LoadedExample example = test.get(11);
  EXPECT_EQ(example.data.shape(), Shape({1, 28, 28}));
  EXPECT_EQ(example.data.dtype(), float32);
  EXPECT_EQ(example.data.to_vector<float>()[3],
            static_cast<float>(ramp(12 * 784)[11 * 784 + 3]) / 255.0F);
  EXPECT_EQ(example.target.item<std::int64_t>(), 1);
  const auto loader = data::make_data_loader(
      std::move(train).map(data::transforms::Normalize<>(0.1307, 0.3081)), 4);
  EXPECT_EQ((*loader->begin()).data.shape(), Shape({4, 1, 28, 28}));
}

TEST(Mnist, ReportsInvalidFiles) {
  const TemporaryFolder folder;
  expect_error<NotFoundError>(
      [&] { datasets::mnist(folder.path()); },
      "expected the file train-images-idx3-ubyte or train-images-idx3-ubyte.gz, found neither");
  write_mnist(folder, 3, false);
  folder.write("train-labels-idx1-ubyte", idx_file(0x08, {4}, ramp(4)));
  expect_error<InvalidArgumentError>([&] { datasets::mnist(folder.path()); },
                                     "expected uint8 labels of shape (3,)");
  folder.write("train-labels-idx1-ubyte", idx_file(0x08, {3}, {1, 10, 2}));
  expect_error<InvalidArgumentError>(
      [&] { datasets::mnist(folder.path()); },
      "train-labels-idx1-ubyte: expected labels of [0, 10), got 10 at position 1");
  folder.write("train-images-idx3-ubyte", idx_file(0x08, {3, 8, 8}, ramp(192)));
  expect_error<InvalidArgumentError>(
      [&] { datasets::mnist(folder.path()); },
      "expected uint8 images of shape (?, 28, 28), got uint8 (3, 8, 8)");
}

TEST(Cifar10, ReadsTheBatchFilesThatExist) {
  const TemporaryFolder folder;
  expect_error<NotFoundError>([&] { datasets::cifar10(folder.path()); },
                              "expected at least one of data_batch_1.bin");
  folder.write("data_batch_2.bin", cifar_file(2));
  expect_error<NotFoundError>([&] { datasets::cifar10(folder.path()); },
                              "test_batch.bin: no such file");
  folder.write("data_batch_5.bin", cifar_file(3));
  folder.write("test_batch.bin", cifar_file(1));
  const auto [train, test] = datasets::cifar10(folder.path());
  EXPECT_EQ(train.images.shape(), Shape({5, 32, 32, 3}));
  EXPECT_EQ(train.labels.to_vector<std::int64_t>(), (std::vector<std::int64_t>{0, 1, 0, 1, 2}));
  EXPECT_EQ(test.size(), 1);
}

TEST(Readers, NameTheFile) {
  const TemporaryFolder folder;
  expect_error<NotFoundError>([&] { datasets::read_idx(folder / "absent"); }, folder / "absent");
  expect_error<InvalidArgumentError>([&] { datasets::read_idx(folder.path()); },
                                     "expected a file, got a directory");
  folder.write("empty", {});
  expect_error<DataLossError>([&] { datasets::read_idx(folder / "empty"); }, "the file is empty");
  expect_error<DataLossError>([&] { datasets::read_cifar10(folder / "empty"); },
                              (folder / "empty") + ":");
}

// --- real data, if it is installed ---

TEST(RealData, MnistIsWhole) {
  const auto folder = testing::data_folder("mnist");
  TANDEM_REQUIRE(!folder.empty(), "mnist");
  const auto [train, test] = datasets::mnist(folder.string());
  EXPECT_EQ(train.images.shape(), Shape({60000, 28, 28, 1}));
  EXPECT_EQ(test.images.shape(), Shape({10000, 28, 28, 1}));
  const auto labels = slice_rows(train.labels, 0, 10).to_vector<std::int64_t>();
  EXPECT_EQ(labels, (std::vector<std::int64_t>{5, 0, 4, 1, 9, 2, 1, 3, 1, 4}));
  // The counts of each digit among the 10,000 test labels are known.
  std::vector<int> counts(10);
  for (const std::int64_t label : test.labels.to_vector<std::int64_t>())
    ++counts[static_cast<std::size_t>(label)];
  EXPECT_EQ(counts, (std::vector<int>{980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009}));
}

TEST(RealData, Cifar10HasItsClassesInEqualParts) {
  const auto folder = testing::data_folder("cifar10");
  TANDEM_REQUIRE(!folder.empty(), "cifar10");
  const auto [train, test] = datasets::cifar10(folder.string());
  EXPECT_EQ(train.images.dim(0), train.size());
  EXPECT_EQ(test.images.shape(), Shape({10000, 32, 32, 3}));
  std::vector<int> counts(10);
  for (const std::int64_t label : test.labels.to_vector<std::int64_t>())
    ++counts[static_cast<std::size_t>(label)];
  EXPECT_EQ(counts, std::vector<int>(10, 1000));
}

}  // namespace
}  // namespace tandem::readers_test
