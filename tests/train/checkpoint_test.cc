// Checkpoints in several files: any division of the tensors loads as any other.
#include "tandem/checkpoint.h"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <numeric>
#include <thread>

#include "support/files.h"
#include "support/processes.h"
#include "support/tensors.h"
#include "support/waiting.h"
#include "tandem/tandem.h"
#include "train/checkpoint/index.h"
#include "train/checkpoint/safetensors.h"
#include "train/checkpoint/saver.h"

namespace tandem::checkpoint_test {
namespace {

using namespace testing;

// 0, 1, 2, ... in this shape.
Tensor counted(const Shape& shape, DType dtype = float32) {
  std::vector<float> values(static_cast<std::size_t>(shape.num_elements()));
  std::iota(values.begin(), values.end(), 0.0f);
  return constant(values, {.shape = shape}).to(dtype);
}

TensorFile sample() {
  TensorFile file;
  file.tensors["table"] = counted({13, 5});
  file.tensors["wide"] = counted({2, 3, 4}, float64);
  file.tensors["half"] = counted({7}, bfloat16);
  file.tensors["steps"] = constant(std::vector<std::int64_t>{7}, {.shape = Shape::scalar()});
  file.tensors["mask"] = constant({true, false, true});
  file.tensors["empty"] = zeros({0, 4});
  file.metadata = {{"step", "12"}, {"quote", "\"checksum\":\"00000000\""}};
  return file;
}

void expect_same(const TensorFile& a, const TensorFile& b) {
  EXPECT_EQ(a.metadata, b.metadata);
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (const auto& [name, tensor] : a.tensors) {
    const Tensor& other = b.tensors.at(name);
    EXPECT_EQ(tensor.shape(), other.shape()) << name;
    ASSERT_EQ(tensor.dtype(), other.dtype()) << name;
    EXPECT_EQ(values_of(tensor), values_of(other)) << name;
  }
}

std::vector<std::int64_t> rows(const CheckpointReader& checkpoint, const std::string& name) {
  std::vector<std::int64_t> sizes;
  for (const CheckpointSlice& slice : checkpoint.at(name).slices)
    sizes.push_back(slice.range.shape[0]);
  return sizes;
}

// Saves the tensors divided as `ranges` says, all in one file.
void save_slices(const std::filesystem::path& path, const Tensor& whole,
                 const std::vector<TensorRange>& ranges) {
  const TemporaryDirectory directory;
  save_safetensors(directory / "x", {.tensors = {{"x", whole}}, .metadata = {}});
  const CheckpointReader source(directory / "x");
  std::vector<TensorToSave> slices;
  for (const TensorRange& range : ranges)
    slices.push_back({.name = "x",
                      .value = source.read("x", range),
                      .slice = TensorToSave::Slice{.shape = whole.shape(), .range = range}});
  CheckpointSaver({}).save(path, std::move(slices), {}, nullptr);
}

TEST(TensorRange, DividesRowsAsPartitionersDo) {
  const auto sizes = [](const Shape& shape, int shards) {
    std::vector<std::int64_t> result;
    for (const TensorRange& range : divide(shape, shards)) result.push_back(range.shape[0]);
    return result;
  };
  EXPECT_EQ(sizes({13, 2}, 5), (std::vector<std::int64_t>{3, 3, 3, 2, 2}));
  EXPECT_EQ(sizes({2}, 5), (std::vector<std::int64_t>{1, 1}));
  EXPECT_EQ(divide(Shape::scalar(), 3).size(), 1u);
  EXPECT_EQ(divide({0, 3}, 3), (std::vector<TensorRange>{whole({0, 3})}));
}

TEST(Checkpoint, ReshardsToAnyNumber) {
  const TemporaryDirectory directory;
  save_safetensors(directory / "1", sample());
  std::string from = "1";
  for (int shards : {3, 2, 5, 1, 4}) {
    const std::string to = std::to_string(shards) + "-of";
    convert_checkpoint(directory / from, directory / to, {.shards = shards});
    const CheckpointReader checkpoint(directory / to);
    EXPECT_EQ(checkpoint.files().size(), static_cast<std::size_t>(shards));
    EXPECT_EQ(checkpoint.indexed(), shards > 1);
    EXPECT_TRUE(checkpoint.has_checksums());
    checkpoint.verify();
    expect_same(checkpoint.read_all(), sample());
    if (shards == 5) {
      EXPECT_EQ(rows(checkpoint, "table"), (std::vector<std::int64_t>{3, 3, 3, 2, 2}));
    }
    from = to;
  }
  expect_same(load_safetensors(directory / "1-of"), sample());
}

// Every range of every division equals the same range of the whole tensor.
TEST(Checkpoint, ReadsAnyRangeOfAnySlices) {
  const TemporaryDirectory directory;
  const Shape shape = {5, 4, 3};
  const Tensor tensor = counted(shape);
  const auto slice = [](Dims offset, Shape size) { return TensorRange{offset, size}; };
  const std::vector<std::vector<TensorRange>> divisions = {
      {whole(shape)},
      divide(shape, 3),
      {slice({0, 0, 0}, {5, 1, 3}), slice({0, 1, 0}, {5, 3, 3})},
      {slice({0, 0, 0}, {2, 4, 2}), slice({2, 0, 0}, {3, 4, 2}), slice({0, 0, 2}, {5, 4, 1})}};
  for (std::size_t division = 0; division < divisions.size(); ++division) {
    const std::filesystem::path path = directory / std::to_string(division);
    save_slices(path, tensor, divisions[division]);
    const CheckpointReader checkpoint(path);
    for (std::int64_t a = 0; a < 5; ++a)
      for (std::int64_t n = 1; a + n <= 5; ++n)
        for (std::int64_t b = 0; b < 4; ++b)
          for (std::int64_t c = 0; c < 3; ++c) {
            const TensorRange range = slice({a, b, c}, {n, 4 - b, 1});
            std::vector<double> expected;
            for (std::int64_t i = a; i < a + n; ++i)
              for (std::int64_t k = b; k < 4; ++k)
                expected.push_back(static_cast<double>((i * 4 + k) * 3 + c));
            ASSERT_EQ(values_of(checkpoint.read("x", range)), expected)
                << division << ' ' << text_of(range);
          }
    expect_error<OutOfRangeError>(
        [&] {
          checkpoint.read("x", slice({3, 0, 0}, {3, 4, 3}));
        },
        "expected a range of tensor 'x' of shape (5, 4, 3), got [3:6");
    expect_error<OutOfRangeError>([&] { checkpoint.read("x", slice({}, Shape::scalar())); },
                                  "expected a range of tensor 'x'");
    expect_error<NotFoundError>([&] { checkpoint.read("y"); }, "has no tensor 'y'");
  }
}

// Reads across the borders of the chunks that have checksums.
TEST(Checkpoint, ReadsPartsOfLargeSlices) {
  const TemporaryDirectory directory;
  const std::int64_t count = 3 * static_cast<std::int64_t>(kChunkBytes) / 4 + 100;
  save_slices(directory / "x", counted({count}), {whole({count})});
  const CheckpointReader checkpoint(directory / "x");
  EXPECT_EQ(checkpoint.at("x").slices[0].chunk_crcs.size(), 4u);
  for (const auto& [begin, end] : {std::pair<std::int64_t, std::int64_t>{0, count},
                                   {1, count - 1},
                                   {262'143, 262'145},
                                   {262'144, 524'288},
                                   {count - 1, count}}) {
    const Tensor part = checkpoint.read("x", rows_of({count}, begin, end));
    ASSERT_EQ(part.size(), end - begin);
    EXPECT_EQ(part.data<float>()[0], static_cast<float>(begin));
    EXPECT_EQ(part.data<float>()[end - begin - 1], static_cast<float>(end - 1));
  }
  // A damaged chunk is noticed by reads of that chunk, and by no others.
  const std::filesystem::path file = checkpoint.files()[0].path;
  std::string bytes = read_file(file);
  bytes[checkpoint.at("x").slices[0].begin + kChunkBytes + 5] ^= 1;
  write_file(file, bytes);
  const CheckpointReader damaged(directory / "x");
  EXPECT_EQ(damaged.read("x", rows_of({count}, 0, 10)).size(), 10);
  expect_error<DataLossError>([&] { damaged.read("x", rows_of({count}, 262'150, 262'151)); },
                              "the checksum of tensor 'x' is");
  EXPECT_THROW(damaged.verify(), DataLossError);
}

TEST(Checkpoint, EveryFlippedBitOfTheIndexIsNoticed) {
  const TemporaryDirectory directory;
  save_slices(directory / "x", counted({3, 2}), divide({3, 2}, 2));
  const std::string good = read_file(directory / "x");
  parse_index(good, "x");
  for (std::size_t at = 0; at < good.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 << bit));
      try {
        parse_index(bad, "x");
        ADD_FAILURE() << "byte " << at << " bit " << bit;
      } catch (const DataLossError&) {
      } catch (const InvalidArgumentError&) {  // another version or dtype
      }
    }
}

// An index with one tensor, with a valid checksum.
std::string index_of(const std::vector<TensorRange>& ranges, const std::string& file = "f") {
  CheckpointIndex index{.files = {{.path = file, .bytes = 1000}}};
  CheckpointTensor tensor{.dtype = float32, .shape = {4, 2}};
  for (const TensorRange& range : ranges)
    tensor.slices.push_back({.range = range, .chunk_crcs = {1}});
  index.tensors.emplace("x", tensor);
  return index_text(index, "i");
}

TEST(Checkpoint, BadIndicesNameTheProblem) {
  const auto refuse = [](const std::string& text, const std::string& part) {
    expect_error<DataLossError>([&] { parse_index(text, "i"); }, "[load] 'i' is damaged: ");
    expect_error<DataLossError>([&] { parse_index(text, "i"); }, part);
  };
  const Shape shape = {4, 2};
  EXPECT_NO_THROW(parse_index(index_of({rows_of(shape, 0, 1), rows_of(shape, 1, 4)}), "i"));
  refuse(index_of({rows_of(shape, 0, 1), rows_of(shape, 2, 4)}),
         "tensor 'x' has slices of 6 elements, expected 8");
  refuse(index_of({rows_of(shape, 0, 3), rows_of(shape, 2, 4)}),
         "tensor 'x' has the overlapping slices [0:3, 0:2] and [2:4, 0:2]");
  refuse(index_of({rows_of(shape, 0, 5)}), "tensor 'x' of shape (4, 2) has a slice [0:5, 0:2]");
  for (const char* file : {"../f", "/f", "..", "", "a/b"})
    refuse(index_of({whole(shape)}, file), "expected a name without directories");
  refuse("{}", "the index has no 'format'");
  refuse("[1]", "is not a JSON object");
  refuse(R"({"format":"other"})", "its format is 'other'");
  refuse(std::string(100'000, '['), "is not JSON");
  refuse(R"({"format":"tandem.checkpoint","version":1,"checksum":"0000000g"})", "0000000g");
  expect_error<InvalidArgumentError>(
      [&] { parse_index(R"({"format":"tandem.checkpoint","version":2})", "i"); },
      "is an index of version 2, expected 1");
}

TEST(Checkpoint, MissingTruncatedAndSwappedFilesAreNamed) {
  const TemporaryDirectory directory;
  save_safetensors(directory / "one", sample());
  convert_checkpoint(directory / "one", directory / "x", {.shards = 2});
  const std::vector<CheckpointFile> files = CheckpointReader(directory / "x").files();
  const std::string first = read_file(files[0].path);
  std::filesystem::remove(files[0].path);
  expect_error<DataLossError>(
      [&] { CheckpointReader(directory / "x"); },
      "it names a file that is missing: [load] file '" + files[0].path.string());
  write_file(files[0].path, first.substr(0, first.size() - 1));
  expect_error<DataLossError>([&] { CheckpointReader(directory / "x"); },
                              files[0].path.string() + "' is damaged: it has");
  std::string header = first;
  header[first.find("tandem.index")] = 'T';
  write_file(files[0].path, header);
  expect_error<DataLossError>([&] { CheckpointReader(directory / "x").verify(); },
                              files[0].path.string() + "' is damaged: the checksum");
  write_file(files[0].path, first);
  CheckpointReader(directory / "x").verify();
}

TEST(Checkpoint, OpensShardedModelsOfTransformers) {
  const TemporaryDirectory directory;
  const auto save = [&](const char* file, const std::map<std::string, Tensor>& tensors) {
    save_safetensors(directory / file, {.tensors = tensors, .metadata = {}});
  };
  save("model-00001-of-00002.safetensors", {{"dense/kernel", counted({4, 3})}});
  save("model-00002-of-00002.safetensors", {{"dense/bias", ones({3})}, {"unused", ones({1})}});
  const std::filesystem::path path = directory / "model.safetensors.index.json";
  const std::string index = R"({"metadata": {"total_size": 60}, "weight_map": {
      "dense/kernel": "model-00001-of-00002.safetensors",
      "dense/bias": "model-00002-of-00002.safetensors"}})";
  write_file(path, index);
  Sequential model({layers::Dense(3, {.input_shape = {4}})});
  model.load_weights(path);
  EXPECT_EQ(values_of(model.variables()[0].value()), values_of(counted({4, 3})));
  EXPECT_EQ(CheckpointReader(path).metadata().at("total_size"), "60");
  std::string wrong = index;
  wrong.replace(wrong.find("dense/bias"), 10, "dense/gone");
  write_file(path, wrong);
  expect_error<DataLossError>([&] { CheckpointReader{path}; },
                              "tensor 'dense/gone' is missing in its file");
  wrong = index;
  wrong.replace(wrong.find("model-00001"), 11, "../l-00001");
  write_file(path, wrong);
  expect_error<DataLossError>([&] { CheckpointReader{path}; }, "a name without directories");
}

TEST(Checkpoint, ConvertsDTypesAndSelects) {
  const TemporaryDirectory directory;
  save_safetensors(directory / "a", sample());
  convert_checkpoint(directory / "a", directory / "b", {.shards = 2, .dtype = float16});
  const CheckpointReader narrow(directory / "b");
  EXPECT_EQ(narrow.at("table").dtype, float16);
  EXPECT_EQ(narrow.at("steps").dtype, int64);
  EXPECT_EQ(values_of(narrow.read("table")), values_of(counted({13, 5})));
  convert_checkpoint(directory / "b", directory / "c", {.prefix = "ta"});
  EXPECT_EQ(CheckpointReader(directory / "c").tensors().size(), 1u);
  EXPECT_TRUE(CheckpointReader(directory / "c").tensors().contains("ble"));
  expect_error<InvalidArgumentError>(
      [&] { convert_checkpoint(directory / "a", directory / "b", {.shards = 0}); },
      "expected 1 to 10000 shards, got 0");
  expect_error<InvalidArgumentError>(
      [&] { convert_checkpoint(directory / "a", directory / "b", {.dtype = int32}); },
      "expected a floating-point dtype, got int32");
}

TEST(Checkpoint, SavingReplacesTheFilesBefore) {
  const TemporaryDirectory directory;
  save_safetensors(directory / "one", sample());
  for (int shards : {3, 2, 2}) {
    convert_checkpoint(directory / "one", directory / "x", {.shards = shards});
    EXPECT_EQ(directory.count_files(), 2u + static_cast<std::size_t>(shards));
  }
  const CheckpointReader open(directory / "x");
  // Files that a save has left that did not end.
  write_file(directory / "x.0123abcd-00001-of-00003.safetensors", "left");
  write_file(directory / "x2.0123abcd-00001-of-00003.safetensors", "another's");
  convert_checkpoint(directory / "one", directory / "x");
  EXPECT_EQ(directory.count_files(), 3u);
  expect_same(open.read_all(), sample());  // a reader keeps the old files
  expect_same(CheckpointReader(directory / "x").read_all(), sample());
  convert_checkpoint(directory / "one", directory / "x", {.shards = 3});
  remove_checkpoint(directory / "x");
  EXPECT_EQ(directory.count_files(), 2u);
  EXPECT_NO_THROW(remove_checkpoint(directory / "x"));
}

// --- kills ---

// Saves tensors whose elements are all equal, again and again, in two files.
void save_for_ever(const std::filesystem::path& path) {
  for (int round = 0;; ++round) {
    const Tensor value = full({1 << 17}, static_cast<double>(round));
    const std::string id = make_save_id();
    std::vector<CheckpointIndex> parts;
    for (int part = 0; part < 2; ++part)
      parts.push_back(write_part(path, part_name(path, id, part, 2),
                                 {{.name = "x" + std::to_string(part), .value = value}}));
    CheckpointIndex index = merge(parts, path.string());
    index.metadata["step"] = std::to_string(round);
    commit_index(path, index);
  }
}

TEST(Checkpoint, AKillLeavesTheLastOneWhole) {
  const TemporaryDirectory directory;
  const std::filesystem::path path = directory / "x";
  for (int kill = 0; kill < 25; ++kill) {
    {
      ChildProcess saver([&] {
        save_for_ever(path);
        return std::string();
      });
      ASSERT_TRUE(testing::eventually([&] { return std::filesystem::exists(path); }));
      std::this_thread::sleep_for(std::chrono::milliseconds(3 + kill));  // any moment will do
      saver.kill(SIGKILL);
      saver.result();
    }
    // Another process reads it: this one starts no threads before it forks again.
    ChildProcess reader([&] {
      const CheckpointReader checkpoint(path);
      checkpoint.verify();
      const double round = std::stod(checkpoint.metadata().at("step"));
      for (const char* name : {"x0", "x1"})
        if (values_of(checkpoint.read(name)) != std::vector<double>(1 << 17, round))
          return std::string(name) + " is of another save";
      return std::string("whole");
    });
    ASSERT_EQ(reader.result(), "whole");
    remove_unused_parts(path);
    EXPECT_EQ(directory.count_files(), 3u) << "nothing else is left";
  }
}

}  // namespace
}  // namespace tandem::checkpoint_test
