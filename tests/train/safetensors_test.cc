#include "train/checkpoint/safetensors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "support/files.h"
#include "support/tensors.h"
#include "tandem/checkpoint.h"
#include "tandem/creation.h"
#include "tandem/errors.h"
#include "tensor/tensor_impl.h"

namespace tandem::safetensors_test {
namespace {

using testing::expect_error;
using testing::read_file;
using testing::TemporaryDirectory;

// A file built by hand from the format's description.
std::string make_file(const std::string& header, const std::string& data) {
  const auto length = static_cast<std::uint64_t>(header.size());
  std::string file(sizeof(length), '\0');
  std::memcpy(file.data(), &length, sizeof(length));
  return file + header + data;
}

TensorFile parse(const std::string& bytes) {
  std::istringstream in(bytes);
  return read_safetensors(in, bytes.size(), "x");
}

TensorFile sample() {
  TensorFile file;
  file.tensors["a/bias"] = constant(std::vector<float>{1.0f, -2.0f, 3.5f});
  file.tensors["a/kernel"] = constant({{1.0, 2.0, 3.0}, {4.0, 5.0, 6.0}}, {.dtype = float64});
  file.tensors["steps"] = constant(std::vector<std::int64_t>{7}, {.shape = Shape::scalar()});
  file.tensors["mask"] = constant({true, false, true});
  file.tensors["empty"] = zeros({0, 4});
  file.metadata = {{"epoch", "3"}, {"quote", "\"tandem.crc32\":\"00000000\""}};
  return file;
}

void expect_same(const TensorFile& a, const TensorFile& b) {
  EXPECT_EQ(a.metadata, b.metadata);
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (const auto& [name, tensor] : a.tensors) {
    ASSERT_TRUE(b.tensors.contains(name)) << name;
    const Tensor& other = b.tensors.at(name);
    EXPECT_EQ(tensor.shape(), other.shape()) << name;
    ASSERT_EQ(tensor.dtype(), other.dtype()) << name;
    const auto bytes = [](const Tensor& t) {
      std::string memory(static_cast<std::size_t>(t.bytes()), '\0');
      to_host(t, memory.data());
      return memory;
    };
    EXPECT_EQ(bytes(tensor), bytes(other)) << name;
  }
}

std::string saved(const TensorFile& file) {
  const TemporaryDirectory directory;
  save_safetensors(directory / "x", file);
  return read_file(directory / "x");
}

TEST(Safetensors, KeepsNamesShapesBytesAndMetadata) {
  const TemporaryDirectory directory;
  save_safetensors(directory / "x", sample());
  expect_same(sample(), load_safetensors(directory / "x"));
  EXPECT_EQ(directory.count_files(), 1u);
}

// Python's library copies the metadata, with our checksum, and writes a header of its own.
TEST(Safetensors, LoadsAFileThatAnotherProgramHasChanged) {
  const std::string bytes = saved(sample());
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  const auto header = nlohmann::json::parse(bytes.substr(8, length));
  ASSERT_TRUE(header["__metadata__"].contains("tandem.crc32"));
  std::string theirs = header.dump();
  theirs.resize((theirs.size() + 7) / 8 * 8, ' ');
  std::string data = bytes.substr(8 + length);
  const std::uint64_t bias = header["a/bias"]["data_offsets"][0];
  const float changed = 9.0f;
  std::memcpy(data.data() + bias, &changed, sizeof(changed));
  length = theirs.size();
  const TensorFile loaded =
      parse(std::string(reinterpret_cast<const char*>(&length), 8) + theirs + data);
  EXPECT_EQ(loaded.tensors.at("a/bias").to_vector<float>(), (std::vector<float>{9, -2, 3.5}));
  EXPECT_EQ(loaded.metadata, sample().metadata);
}

TEST(Safetensors, KeepsEveryDType) {
  const TemporaryDirectory directory;
  for (DType dtype : {float32, float64, float16, bfloat16, int32, int64, uint8, bool_, int8, int16,
                      uint16, uint32, uint64, float8_e4m3fn, float8_e5m2}) {
    TensorFile file;
    file.tensors["x"] = ones({2, 3}, {.dtype = dtype});
    save_safetensors(directory / "x", file);
    const Tensor loaded = load_safetensors(directory / "x").tensors.at("x");
    EXPECT_EQ(loaded.dtype(), dtype);
    EXPECT_EQ(loaded.to(float32).to_vector<float>(), std::vector<float>(6, 1.0f)) << dtype;
  }
}

TEST(Safetensors, WritesTheFormatAsDescribed) {
  const std::string bytes = saved(sample());
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  EXPECT_EQ(length % 8, 0u) << "the data is aligned";
  const auto header = nlohmann::json::parse(bytes.substr(8, length));
  EXPECT_EQ(header["a/kernel"]["dtype"], "F64");
  EXPECT_EQ(header["a/kernel"]["shape"], nlohmann::json({2, 3}));
  EXPECT_EQ(header["steps"]["shape"], nlohmann::json::array());
  EXPECT_EQ(header["__metadata__"]["epoch"], "3");
  const std::uint64_t begin = header["a/bias"]["data_offsets"][0];
  EXPECT_EQ(header["a/bias"]["data_offsets"][1], begin + 12);
  EXPECT_EQ(begin % 4, 0u);
  float bias[3];
  std::memcpy(bias, bytes.data() + 8 + length + begin, sizeof(bias));
  EXPECT_EQ(bias[2], 3.5f);
  EXPECT_EQ(bytes.size(), 8 + length + 12 + 48 + 8 + 3);
}

TEST(Safetensors, ReadsFilesOfOtherPrograms) {
  const TensorFile file =
      parse(make_file(R"({"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                      R"("e":{"dtype":"F32","shape":[0],"data_offsets":[2,2]}}  )",
                      "\x05\x06"));
  EXPECT_EQ(file.tensors.at("w").to_vector<std::uint8_t>(), (std::vector<std::uint8_t>{5, 6}));
  EXPECT_EQ(file.tensors.at("e").shape(), Shape({0}));
  EXPECT_TRUE(file.metadata.empty());
}

TEST(Safetensors, AMissingFileOrDirectoryIsNotFound) {
  const TemporaryDirectory directory;
  expect_error<NotFoundError>([&] { load_safetensors(directory / "none"); },
                              "[load] file '" + (directory / "none").string() + "' does not exist");
  expect_error<NotFoundError>([&] { save_safetensors(directory / "none" / "x", sample()); },
                              "[save] cannot create '" + (directory / "none" / "x").string() + "'");
  EXPECT_THROW(load_safetensors(directory.path()), FailedPreconditionError);
  EXPECT_THROW(save_safetensors(directory.path(), sample()), FailedPreconditionError);
}

TEST(Safetensors, EveryFlippedBitIsNoticed) {
  const std::string good = saved(sample());
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 << bit));
      try {
        // A flipped bit is only undetected if it changes the name of the checksum's entry.
        TensorFile file = parse(bad);
        EXPECT_EQ(file.metadata.size(), 3u) << "byte " << at << " bit " << bit;
        std::erase_if(file.metadata, [](const auto& entry) { return entry.first.size() == 12; });
        expect_same(sample(), file);
      } catch (const DataLossError& error) {
        EXPECT_EQ(std::string(error.what()).rfind("[load] 'x' is damaged: ", 0), 0u)
            << error.what();
      } catch (const InvalidArgumentError&) {  // an unknown dtype or an invalid rank
      }
    }
  }
}

TEST(Safetensors, AFlippedByteOfTheDataIsAChecksumError) {
  std::string bad = saved(sample());
  bad.back() ^= 1;
  expect_error<DataLossError>([&] { parse(bad); }, "[load] 'x' is damaged: the checksum is");
}

TEST(Safetensors, EveryTruncationAndExtensionIsNoticed) {
  const std::string good = saved(sample());
  for (std::size_t size = 0; size < good.size(); ++size)
    EXPECT_THROW(parse(good.substr(0, size)), DataLossError) << size;
  EXPECT_THROW(parse(good + '\0'), DataLossError);
}

TEST(Safetensors, BadHeadersAreDataLoss) {
  const std::string entry = R"("dtype":"U8","shape":[2],"data_offsets")";
  const std::vector<std::string> bad = {
      "",
      "{",
      "[]",
      "null",
      "{\"a\":1}",
      "{\"a\":{}}",
      "\xff\xfe",
      "{\"a\":{" + entry + ":[0]}}",
      "{\"a\":{" + entry + ":[0,3]}}",
      "{\"a\":{" + entry + ":[2,0]}}",
      "{\"a\":{" + entry + ":[0,-2]}}",
      "{\"a\":{" + entry + ":[0,2.0]}}",
      "{\"a\":{" + entry + ":[1,3]}}",
      "{\"a\":{" + entry + ":[0,2]},\"b\":{" + entry + ":[1,3]}}",
      "{\"a\":{" + entry + ":[0,2]},\"a\":{" + entry + ":[0,2]}}",
      "{\"a\":{" + entry + ":[0,2]},\"__metadata__\":{\"k\":1}}",
      "{\"a\":{" + entry + ":[0,2]},\"__metadata__\":3}",
      "{\"a\":{" + entry + ":[0,2]},\"__metadata__\":{\"tandem.crc32\":\"xyz\"}}        ",
      R"({"a":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,2]}})",
      R"({"a":{"dtype":"U8","shape":[4294967296,4294967296,0],"data_offsets":[0,2]}})",
      R"({"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,2]}})",
      R"({"a":{"dtype":"U8","shape":[[2]],"data_offsets":[0,2]}})",
      R"({"a":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})",
      std::string(100'000, '[')};
  for (const std::string& header : bad)
    EXPECT_THROW(parse(make_file(header, "ab")), DataLossError) << header.substr(0, 80);
  EXPECT_THROW(parse(std::string(8, '\xff') + "{}"), DataLossError);
}

TEST(Safetensors, OverlappingTensorsAreNamed) {
  const std::string header = R"({"first":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                             R"("second":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})";
  expect_error<DataLossError>(
      [&] { parse(make_file(header, "abc")); },
      "[load] 'x' is damaged: tensor 'second' starts at byte 1 of the data, expected 2");
}

TEST(Safetensors, AnUnknownDTypeIsNamed) {
  const std::string header = R"({"w":{"dtype":"F8_E8M0","shape":[2],"data_offsets":[0,2]}})";
  expect_error<InvalidArgumentError>([&] { parse(make_file(header, "ab")); },
                                     "[load] 'x': tensor 'w' has dtype 'F8_E8M0', expected one of");
}

// As in quantized checkpoints.
TEST(Safetensors, OtherTensorsOfAFileWithAnUnknownDTypeAreRead) {
  const testing::TemporaryDirectory folder;
  const auto path = folder / "x.safetensors";
  testing::write_file(path,
                      make_file(R"({"mask":{"dtype":"F8_E8M0","shape":[2],"data_offsets":[0,2]},)"
                                R"("w":{"dtype":"U8","shape":[3],"data_offsets":[2,5]}})",
                                std::string("ab\1\2\3", 5)));
  const CheckpointReader reader(path);
  EXPECT_EQ(reader.read("w").to(float32).to_vector<float>(), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(reader.tensors().size(), 1u);
  EXPECT_EQ(reader.foreign(), (std::map<std::string, std::string>{{"mask", "F8_E8M0"}}));
  reader.verify();
  for (const auto& use : std::vector<std::function<void()>>{
           [&] { reader.read("mask"); }, [&] { reader.at("mask"); }, [&] { reader.read_all(); },
           [&] { convert_checkpoint(path, folder / "y.safetensors", {}); }})
    expect_error<InvalidArgumentError>(use,
                                       "tensor 'mask' has dtype 'F8_E8M0', expected one of F32");
}

// Randomly mutated files give a DataLossError or similar, or are read as a whole.
TEST(Safetensors, SurvivesMutations) {
  const std::string good = saved(sample());
  std::mt19937 random(20);
  const auto below = [&](std::size_t limit) {
    return std::uniform_int_distribution<std::size_t>(0, limit - 1)(random);
  };
  int read = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string bad = good;
    for (std::size_t change = 0; change <= below(4) && !bad.empty(); ++change) {
      const std::size_t at = below(bad.size()),
                        count = 1 + below(std::min<std::size_t>(16, bad.size() - at));
      switch (below(4)) {
        case 0: bad[at] = static_cast<char>(below(256)); break;
        case 1: bad.erase(at, count); break;
        case 2: bad.insert(at, bad.substr(at, count)); break;
        default: bad[at] = "{}[],:\"0129-"[below(12)]; break;
      }
    }
    try {
      parse(bad);
      ++read;
    } catch (const DataLossError&) {
    } catch (const InvalidArgumentError&) {
    }
  }
  EXPECT_LT(read, 2'000) << "most mutations hurt";
}

TEST(Safetensors, TheOldFileSurvivesAFullDisk) {
  const TemporaryDirectory directory;
  save_safetensors(directory / "x", sample());
  TensorFile large = sample();
  large.tensors["large"] = ones({1 << 20});
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  limit.rlim_cur = 1 << 20;
  setrlimit(RLIMIT_FSIZE, &limit);
  expect_error<ResourceExhaustedError>(
      [&] { save_safetensors(directory / "x", large); },
      "[save] cannot write '" + (directory / "x").string() +
          "': File too large; the file that was there is unchanged");
  EXPECT_EQ(directory.count_files(), 1u) << "what was written is gone";
  expect_same(sample(), load_safetensors(directory / "x"));
}

TEST(Safetensors, ALinkStaysALink) {
  const TemporaryDirectory directory;
  save_safetensors(directory / "target", {});
  std::filesystem::create_symlink(directory / "target", directory / "link");
  save_safetensors(directory / "link", sample());
  EXPECT_TRUE(std::filesystem::is_symlink(directory / "link"));
  expect_same(sample(), load_safetensors(directory / "target"));
}

TEST(RestoreVariables, NamesMissingExtraAndMismatchedTensors) {
  Variable a(ones({2}), {.name = "a"}), b(ones({3}), {.name = "b"});
  const auto restore = [&](const std::map<std::string, Tensor>& tensors) {
    return [&a, &b, tensors] { restore_variables({a, b}, tensors, "'x'"); };
  };
  expect_error<NotFoundError>(restore({{"a", zeros({2})}}), "[load] 'x': it has no tensor for 'b'");
  expect_error<InvalidArgumentError>(
      restore({{"a", zeros({2})}, {"b", zeros({3})}, {"c", zeros({1})}}),
      "[load] 'x': no variable is named 'c'");
  expect_error<InvalidArgumentError>(restore({{"a", zeros({2})}, {"b", zeros({4})}}),
                                     "[load] 'x': 'b' is float32 (4,), expected float32 (3,)");
  expect_error<InvalidArgumentError>(
      restore({{"a", zeros({2})}, {"b", zeros({3}, {.dtype = float64})}}),
      "[load] 'x': 'b' is float64 (3,), expected float32 (3,)");
  EXPECT_EQ(a.value().to_vector<float>(), std::vector<float>(2, 1.0f)) << "nothing was assigned";
  restore_variables({a, b}, {{"a", zeros({2})}, {"b", zeros({3})}}, "'x'");
  EXPECT_EQ(a.value().to_vector<float>(), std::vector<float>(2, 0.0f));
}

}  // namespace
}  // namespace tandem::safetensors_test
