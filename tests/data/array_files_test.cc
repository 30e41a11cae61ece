// NumPy's files of arrays.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "data/files.h"
#include "data/formats.h"
#include "support/expects.h"
#include "support/tensors.h"
#include "tandem/array_files.h"
#include "tandem/creation.h"
#include "tandem/math.h"

namespace tandem::array_files_test {
namespace {

using namespace testing;

// A file of format `major`.0 with this header and these elements.
Bytes npy(const std::string& header, const Bytes& elements, std::uint8_t major = 1) {
  Bytes file = {0x93, 'N', 'U', 'M', 'P', 'Y', major, 0};
  const std::size_t before = major == 1 ? 10 : 12;
  const std::string padded = header + std::string(63 - (before + header.size()) % 64, ' ') + "\n";
  for (std::size_t i = 0; i < before - 8; ++i)
    file.push_back(static_cast<std::uint8_t>(padded.size() >> (8 * i)));
  file.insert(file.end(), padded.begin(), padded.end());
  file.insert(file.end(), elements.begin(), elements.end());
  return file;
}
std::string header(const std::string& descr, const std::string& shape,
                   const std::string& fortran = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }";
}
Tensor parse(const Bytes& bytes, const data::NpyOptions& options = {}) {
  return data::parse_npy(std::as_bytes(std::span(bytes)), "FILE", options);
}

TEST(Npy, HasEveryDtypeAndByteOrder) {
  expect_tensor(parse(npy(header("<f4", "(2,)"), {0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0})), float32, {2},
                {1, -2});
  expect_tensor(parse(npy(header(">f4", "(2,)"), {0x3f, 0x80, 0, 0, 0xc0, 0, 0, 0})), float32, {2},
                {1, -2});
  expect_tensor(parse(npy(header("<f8", "()"), {0, 0, 0, 0, 0, 0, 0xf8, 0x3f})), float64,
                Shape::scalar(), {1.5});
  expect_tensor(parse(npy(header("<f2", "(1,)"), {0, 0x3c})), float16, {1}, {1});
  expect_tensor(parse(npy(header("<i4", "(1,)"), {0xfe, 0xff, 0xff, 0xff})), int32, {1}, {-2});
  expect_tensor(parse(npy(header(">i8", "(1,)"), {0, 0, 0, 0, 0, 0, 1, 2})), int64, {1}, {258});
  expect_tensor(parse(npy(header("|u1", "(3,)"), {1, 2, 255})), uint8, {3}, {1, 2, 255});
  expect_tensor(parse(npy(header("|b1", "(3,)"), {0, 1, 7})), bool_, {3}, {0, 1, 1});
  expect_tensor(parse(npy(header("<V2", "(1,)"), {0x80, 0x3f}), {.v2_is_bfloat16 = true}), bfloat16,
                {1}, {1});
}

TEST(Npy, HasEveryVersionAndOrderOfAxes) {
  for (const std::uint8_t major : {1, 2, 3}) {
    expect_tensor(parse(npy(header("|u1", "(2, 3)"), ramp(6), major)), uint8, {2, 3},
                  {0, 1, 2, 3, 4, 5});
    expect_tensor(parse(npy(header("|u1", "(2, 3)", "True"), ramp(6), major)), uint8, {2, 3},
                  {0, 2, 4, 1, 3, 5});
  }
  EXPECT_EQ(parse(npy(header("|u1", "(0, 3)"), {})).shape(), Shape({0, 3}));
  expect_tensor(
      parse(npy("{\"shape\":(1L,2L),\"descr\":\"|u1\",\"fortran_order\":False}", ramp(2))), uint8,
      {1, 2}, {0, 1});
}

TEST(Npy, NamesDtypesThatTandemLacks) {
  const std::pair<const char*, const char*> lacking[] = {
      {"<c8", "complex64"},      {"<c16", "complex128"},   {"<f16", "longdouble"},
      {"|O", "Python objects"},  {"|S5", "text"},          {"<U5", "text"},
      {"<V2", "v2_is_bfloat16"}, {"?", "an unknown dtype"}};
  for (const auto& [descr, name] : lacking) {
    expect_error<InvalidArgumentError>([&, d = descr] { parse(npy(header(d, "(1,)"), ramp(16))); },
                                       name);
    expect_error<InvalidArgumentError>(
        [&, d = descr] { parse(npy(header(d, "(1,)"), ramp(16))); },
        "[read_npy] FILE: expected real floating-point numbers of 16 to 64 bits, integers or bool, "
        "got '" +
            std::string(descr) + "'");
  }
  expect_error<InvalidArgumentError>(
      [] {
        parse(npy("{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (1,)}", ramp(4)));
      },
      "got records (a structured dtype)");
}

TEST(Npy, ReportsInvalidFiles) {
  expect_error<DataLossError>(
      [] {
        parse({0x93, 'N', 'U', 'M', 'P', 'Y'});
      },
      "EOF: reading magic string, expected 8 bytes got 6");
  expect_error<InvalidArgumentError>([] { parse(ramp(20)); }, "begins with \\x93NUMPY");
  Bytes version = npy(header("|u1", "(1,)"), {1});
  version[6] = 9;
  expect_error<InvalidArgumentError>(
      [&] { parse(version); },
      "we only support format version (1,0), (2,0), and (3,0), not (9, 0)");
  expect_error<DataLossError>([] { parse(npy(header("<f4", "(2,)"), ramp(5))); },
                              "EOF: reading array data, expected 8 bytes got 5");
  expect_error<DataLossError>(
      [] { parse(npy(header("<f8", "(4294967296, 4294967296)"), ramp(5))); },
      "more than 2^63 bytes");
  expect_error<InvalidArgumentError>(
      [] { parse(npy(header("|u1", "(1,1,1,1,1,1,1,1,1,1)"), ramp(5))); }, "axes, got 10");
  for (const char* text :
       {"", "{", "{}", "{'descr': '|u1'}",
        "{'descr': '|u1', 'shape': (1,), 'fortran_order': Maybe}",
        "{'descr': '|u1', 'shape': (-1,), 'fortran_order': False}", "{'other': 1}",
        "{'descr': '|u1', 'descr': '|u1', 'shape': (1,), 'fortran_order': "
        "False}",
        "{'descr': '|u1', 'shape': (1,), 'fortran_order': False} more"})
    expect_error<DataLossError>([&] { parse(npy(text, ramp(5))); },
                                "expected a header with 'descr', 'fortran_order' and 'shape'");
  Bytes cut = npy(header("|u1", "(1,)"), {1});
  cut.resize(30);
  expect_error<DataLossError>([&] { parse(cut); }, "EOF: reading array header");
}

TEST(Npy, RefusesToWriteDtypesThatNumPyLacks) {
  const TemporaryFolder folder;
  expect_error<InvalidArgumentError>(
      [&] { data::write_npy(folder / "a.npy", ones({2}, {.dtype = float8_e5m2})); },
      "[write_npy] expected a dtype that NumPy has, got float8_e5m2");
}

TEST(Npy, WritesWhatItReads) {
  const TemporaryFolder folder;
  for (const DType dtype : {float32, float64, float16, bfloat16, int32, int64, uint8, bool_, int8,
                            int16, uint16, uint32, uint64})
    for (const Shape& shape : {Shape::scalar(), Shape({3}), Shape({2, 0}), Shape({2, 3, 4})}) {
      const Tensor tensor = cast(random_tensor(shape, 3, 0, 2), dtype);
      data::write_npy(folder / "a.npy", tensor);
      const Bytes file = [&] {
        std::ifstream in(folder / "a.npy", std::ios::binary);
        return Bytes(std::istreambuf_iterator<char>(in), {});
      }();
      const std::size_t elements = static_cast<std::size_t>(tensor.size()) * size_of(dtype);
      EXPECT_EQ((file.size() - elements) % 64, 0u);
      expect_tensor(data::read_npy(folder / "a.npy", {.v2_is_bfloat16 = true}), dtype, shape,
                    values_of(tensor));
    }
  expect_error<NotFoundError>([&] { data::read_npy(folder / "no"); },
                              "[read_npy] " + (folder / "no"));
  EXPECT_THROW(data::write_npy(folder / "no/a.npy", ones({1})), NotFoundError);
}

TEST(Npz, WritesWhatItReads) {
  const TemporaryFolder folder;
  const std::map<std::string, Tensor> arrays = {{"x", random_tensor({50, 20}, 1, -1, 1, float32)},
                                                {"labels", constant({1, 2, 3}, {.dtype = int64})},
                                                {"empty", zeros({0, 2})}};
  for (const bool compressed : {false, true}) {
    data::write_npz(folder / "a.npz", arrays, {.compressed = compressed});
    const auto read = data::read_npz(folder / "a.npz");
    ASSERT_EQ(read.size(), 3u);
    for (const auto& [name, tensor] : arrays)
      expect_tensor(read.at(name), tensor.dtype(), tensor.shape(), values_of(tensor));
  }
  data::write_npz(folder / "none.npz", {});
  EXPECT_TRUE(data::read_npz(folder / "none.npz").empty());
  expect_error<InvalidArgumentError>(
      [&] {
        data::write_npz(folder / "b.npz", {{"", zeros({1})}});
      },
      "expected a name");
}

Bytes file_of(const TemporaryFolder& folder, bool compressed) {
  data::write_npz(folder / "a.npz",
                  {{"abc", constant(std::vector<float>(100, 1.5f))}, {"d", ones({2})}},
                  {.compressed = compressed});
  std::ifstream in(folder / "a.npz", std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(in), {});
}

TEST(Npz, ReportsDamage) {
  const TemporaryFolder folder;
  const auto parse_zip = [](const Bytes& bytes) {
    return data::parse_npz(std::as_bytes(std::span(bytes)), "FILE", {});
  };
  expect_error<InvalidArgumentError>([&] { parse_zip(ramp(100)); },
                                     "[read_npz] FILE: expected a zip archive");
  std::mt19937 random(5);
  for (const bool compressed : {false, true}) {
    const Bytes good = file_of(folder, compressed);
    Bytes flipped = good;
    flipped[200] ^= 1;  // in the first array
    EXPECT_THROW(parse_zip(flipped), DataLossError);
    for (std::size_t size = 0; size < good.size(); ++size)
      EXPECT_THROW(parse_zip(Bytes(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size))),
                   Error)
          << size;
    for (int round = 0; round < 3000; ++round) {
      Bytes damaged = good;
      for (std::uint32_t i = 0, flips = 1 + random() % 4; i < flips; ++i)
        damaged[random() % damaged.size()] ^= static_cast<std::uint8_t>(1 + random() % 255);
      try {
        parse_zip(damaged);
      } catch (const Error&) {
      }
    }
  }
}

}  // namespace
}  // namespace tandem::array_files_test
