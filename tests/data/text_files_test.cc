// Lines of text files, and files of tokens.
#include <gtest/gtest.h>

#include <set>

#include "data/files.h"
#include "support/expects.h"
#include "support/tensors.h"
#include "tandem/creation.h"
#include "tandem/text_files.h"

namespace tandem::text_files_test {
namespace {

using namespace testing;
using data::Compression;
using data::Dataset;
using data::Example;
using Strings = std::vector<std::string>;

Bytes bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

Strings lines_of(const Dataset& dataset, std::int64_t skip = 0) {
  Strings lines;
  data::Iterator iterator = dataset.iterate({.skip = skip});
  while (const auto line = iterator.next()) lines.push_back(data::text_of((*line)[0]));
  return lines;
}

TEST(TextLines, EndWithEitherEndOfLine) {
  const TemporaryFolder folder;
  const std::string a = folder.write("a", bytes_of("one\ntwo\r\n\nlast")),
                    b = folder.write("b.gz", gzip(bytes_of("more\n"))),
                    none = folder.write("c", {});
  const Dataset dataset = data::from_text({a, none, b});
  const Strings expected = {"one", "two", "", "last", "more"};
  EXPECT_EQ(lines_of(dataset), expected);
  EXPECT_EQ(dataset.element_spec()[0].shape, Shape({-1}));
  for (std::int64_t skip = 0; skip <= 11; ++skip) {
    Strings twice = expected;
    twice.insert(twice.end(), expected.begin(), expected.end());
    twice.erase(twice.begin(), twice.begin() + std::min<std::int64_t>(skip, 10));
    EXPECT_EQ(lines_of(dataset.repeat(2), skip), twice);
  }
  EXPECT_EQ(lines_of(dataset.shard(2, 1)), (Strings{"two", "last"}));
  EXPECT_EQ(data::read_lines(a).to_vector(), (Strings{"one", "two", "", "last"}));
  EXPECT_EQ(dataset.padded_batch(5).iterate().next()[0].shape(), Shape({5, 4}));
}

TEST(TextLines, AreEncoded) {
  const TemporaryFolder folder;
  std::string text;
  for (int line = 0; line < 30'000; ++line) text += std::to_string(line) + "\n";
  const std::string path = folder.write("numbers", bytes_of(text));
  int calls = 0;
  const Dataset dataset =
      data::from_text(path, {.encode = [&](std::string_view line) {
                        ++calls;
                        return constant(std::stoll(std::string(line)), {.dtype = int64});
                      }});
  data::Iterator iterator = dataset.iterate({.skip = 29'990});
  std::int64_t next = 29'990;
  while (const auto line = iterator.next()) EXPECT_EQ((*line)[0].item<std::int64_t>(), next++);
  EXPECT_EQ(next, 30'000);
  EXPECT_EQ(calls, 10);  // not for lines that are skipped
}

TEST(TextLines, ReportsInvalidFiles) {
  const TemporaryFolder folder;
  const std::string path = folder.write("a", bytes_of("ab\nabcdef\n"));
  expect_error<DataLossError>([&] { lines_of(data::from_text(path, {.max_line = 5})); },
                              path + ", line 2: expected at most 5 bytes (max_line), got more");
  EXPECT_EQ(lines_of(data::from_text(path, {.max_line = 6})).size(), 2u);
  expect_error<NotFoundError>([&] { lines_of(data::from_text(folder / "no")); },
                              "[from_text] " + (folder / "no"));
  expect_error<DataLossError>([&] { data::read_lines(path, Compression::kGzip); },
                              "the compressed data is corrupt");
  expect_error<DataLossError>([&] { data::read_lines(path, Compression::kZlib); },
                              "the compressed data is corrupt");
  Bytes longer = gzip(bytes_of("x\n"));
  longer.push_back(7);
  expect_error<DataLossError>([&] { data::read_lines(folder.write("b", longer)); },
                              "expected the end of the compressed data");
  expect_error<InvalidArgumentError>(
      [] { data::text_of(ones({2})); },
      "expected the bytes of a text, uint8 [length], got float32 (2,)");
}

Bytes tokens16(int count, int header = 0) {
  Bytes bytes(static_cast<std::size_t>(header), 9);
  for (int i = 0; i < count; ++i) {
    bytes.push_back(static_cast<std::uint8_t>((60'000 + i) % 256));
    bytes.push_back(static_cast<std::uint8_t>((60'000 + i) / 256));
  }
  return bytes;
}

std::vector<std::int64_t> starts_of(const Dataset& dataset,
                                    const data::IterateOptions& options = {}) {
  std::vector<std::int64_t> starts;
  data::Iterator iterator = dataset.iterate(options);
  while (const auto pair = iterator.next()) {
    const auto x = (*pair)[0].to_vector<std::int64_t>(), y = (*pair)[1].to_vector<std::int64_t>();
    for (std::size_t i = 0; i < x.size(); ++i) {
      EXPECT_EQ(y[i], x[i] + 1);
      EXPECT_EQ(x[i], x[0] + static_cast<std::int64_t>(i));
    }
    starts.push_back(x[0] - 60'000);
  }
  return starts;
}

TEST(Tokens, AreWindowsWithTheNextTokens) {
  const TemporaryFolder folder;
  const std::string path = folder.write("t.bin", tokens16(11));
  const Dataset dataset = data::from_tokens(path, 3);
  EXPECT_EQ(starts_of(dataset), (std::vector<std::int64_t>{0, 3, 6}));
  EXPECT_EQ(dataset.cardinality(), 3);
  EXPECT_EQ(starts_of(data::from_tokens(path, 3, "uint16", {.stride = 1})).size(), 8u);
  EXPECT_EQ(starts_of(data::from_tokens(path, 10)), (std::vector<std::int64_t>{0}));
  const std::string with_header = folder.write("h.bin", tokens16(11, 1024));
  EXPECT_EQ(starts_of(data::from_tokens(with_header, 5, "uint16", {.header_bytes = 1024})),
            (std::vector<std::int64_t>{0, 5}));
  const Example batch = *dataset.batch(2).iterate().next();
  EXPECT_EQ(batch[0].shape(), Shape({2, 3}));
  EXPECT_EQ(batch[1].dtype(), int64);
}

TEST(Tokens, AreShuffledAndResume) {
  const TemporaryFolder folder;
  const std::string path = folder.write("t.bin", tokens16(2001));
  const Dataset dataset = data::from_tokens(path, 10, "uint16", {.shuffle = true, .seed = 5});
  const auto all = starts_of(dataset);
  EXPECT_EQ(std::set<std::int64_t>(all.begin(), all.end()).size(), 200u);
  EXPECT_NE(all, starts_of(dataset, {.epoch = 1}));
  EXPECT_EQ(starts_of(dataset, {.skip = 150}),
            std::vector<std::int64_t>(all.begin() + 150, all.end()));
}

TEST(Tokens, HaveThreeTypes) {
  const TemporaryFolder folder;
  const std::string path = folder.write("t.bin", {1, 0, 0, 0, 255, 255, 255, 255});
  EXPECT_EQ(data::from_tokens(path, 1, "int32").iterate().next()[1].item<std::int64_t>(), -1);
  EXPECT_EQ(data::from_tokens(path, 1, "uint32").iterate().next()[1].item<std::int64_t>(),
            4'294'967'295);
  expect_error<InvalidArgumentError>([&] { data::from_tokens(path, 1, "int16"); },
                                     "of type uint16, int32 or uint32, got 'int16'");
  expect_error<InvalidArgumentError>(
      [&] { data::from_tokens(path, 4); },
      path + ": expected at least 5 tokens for a sequence and the next token, got 4");
  expect_error<InvalidArgumentError>(
      [&] { data::from_tokens(path, 1, "uint16", {.header_bytes = 3}); },
      "expected a multiple of 2 bytes after a header of 3, got a file of 8");
  expect_error<InvalidArgumentError>([&] { data::from_tokens(path, 0); },
                                     "a sequence_length of at least 1");
  expect_error<NotFoundError>([&] { data::from_tokens(folder / "no", 1); },
                              "[from_tokens] " + (folder / "no"));
  expect_error<InvalidArgumentError>([&] { data::from_tokens(folder.path(), 1); },
                                     "expected a file of tokens");
  EXPECT_THROW(data::from_tokens(folder.write("e", {}), 1), InvalidArgumentError);
}

}  // namespace
}  // namespace tandem::text_files_test
