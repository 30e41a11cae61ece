#include "tandem/text_preprocessing.h"

#include <gtest/gtest.h>

#include <cmath>

#include "nn/hashing.h"
#include "support/files.h"
#include "support/tensors.h"
#include "tandem/csv.h"
#include "tandem/tandem.h"

namespace tandem::text_preprocessing_test {
namespace {

using namespace testing;
using data::StringColumn;
using layers::Hashing;
using layers::StringLookup;
using layers::TextVectorization;
using Strings = std::vector<std::string>;

TEST(StringLookup, GivesIndicesOfAVocabulary) {
  const StringLookup lookup({.vocabulary = {"a", "b", "c", "d"}});
  expect_tensor(lookup({"a", "c", "d", "d", "z", "b"}), int64, {6}, {1, 3, 4, 4, 0, 2});
  expect_tensor(lookup("c"), int64, Shape::scalar(), {3});
  EXPECT_EQ(lookup.vocabulary(), (Strings{"[UNK]", "a", "b", "c", "d"}));
  EXPECT_EQ(lookup.vocabulary_size(), 5);
  // The special terms may be part of it.
  const StringLookup special({.mask_token = "", .vocabulary = {"", "[UNK]", "a"}});
  EXPECT_EQ(special.vocabulary(false), (Strings{"a"}));
  expect_tensor(special({"", "a", "b"}), int64, {3}, {0, 2, 1});
}

// https://keras.io/api/layers/preprocessing_layers/categorical/string_lookup
TEST(StringLookup, AdaptsToTheMostFrequentAndOfThoseTheLast) {
  const StringLookup lookup;
  lookup.adapt(Strings{"a", "c", "d", "d", "z", "b"});
  EXPECT_EQ(lookup.vocabulary(), (Strings{"[UNK]", "d", "z", "c", "b", "a"}));
  const StringLookup few({.max_tokens = 3, .mask_token = "b"});
  few.adapt(Strings{"b", "b", "a", "[UNK]", "[UNK]", "ä"});
  EXPECT_EQ(few.vocabulary(), (Strings{"b", "[UNK]", "ä"}));
  // Copies share the vocabulary.
  const StringLookup first;
  const StringLookup copy = first;
  first.adapt(Strings{"x"});
  expect_tensor(copy({"x"}), int64, {1}, {1});
}

TEST(StringLookup, HashesStringsOutOfTheVocabulary) {
  // python3 -c "import keras; l = keras.layers.StringLookup(num_oov_indices=3,
  //   vocabulary=['a', 'b']); print(l(['a', 'm', 'n', 'o', 'p', 'b']))"
  const StringLookup lookup({.num_oov_indices = 3, .vocabulary = {"a", "b"}});
  expect_tensor(lookup({"a", "m", "n", "o", "p", "b"}), int64, {6}, {3, 0, 0, 0, 2, 4});
  const StringLookup strict({.num_oov_indices = 0, .vocabulary = {"a"}});
  expect_tensor(strict({"a"}), int64, {1}, {0});
  expect_error<InvalidArgumentError>(
      [&] {
        strict({"a", "q"});
      },
      "[StringLookup] expected strings of the vocabulary without num_oov_indices, got 'q'; "
      "consider "
      "num_oov_indices = 1");
}

TEST(StringLookup, GivesVectorsAndInverts) {
  const auto of = [](const char* mode) {
    return StringLookup({.mask_token = "", .vocabulary = {"a", "b"}, .output_mode = mode});
  };
  for (const char* mode : {"one_hot", "multi_hot", "count"})
    expect_tensor(of(mode)({"b", "q", ""}), float32, {3, 3}, {0, 0, 1, 1, 0, 0, 0, 0, 0});
  expect_tensor(of("count")("a"), float32, {3}, {0, 1, 0});
  const StringLookup found({.output_mode = "tf_idf"});
  found.adapt(Strings{"a", "b", "a"});
  const auto a = static_cast<float>(std::log(1 + 3.0 / 3)),
             b = static_cast<float>(std::log(1 + 3.0 / 2));
  expect_tensor(found({"a", "b", "x"}), float32, {3, 3}, {0, a, 0, 0, 0, b, (a + b) / 2, 0, 0},
                1e-6);
  const StringLookup back({.vocabulary = {"a", "b"}, .invert = true});
  EXPECT_EQ(back(constant({{2, 0}, {1, 7}})).to_vector(), (Strings{"b", "[UNK]", "a", "[UNK]"}));
  expect_error<InvalidArgumentError>([&] { back({"a"}); },
                                     "[StringLookup] expected indices with the option invert");
  expect_error<InvalidArgumentError>([&] { found(constant({1})); },
                                     "[StringLookup] expected strings without the option invert");
  expect_error<DTypeError>([&] { back(constant({1.0})); },
                           "[StringLookup] expected integers, got float32");
}

TEST(StringLookup, TakesColumnsOfTablesWithMissingFields) {
  const TemporaryDirectory directory;
  const std::string path = (directory / "islands.csv").string();
  write_file(path, "island,mass\nBiscoe,1\nDream,2\nNA,3\nBiscoe,4\n");
  const data::Table table = data::read_csv(path);
  const StringColumn& island = table["island"].strings();
  const StringLookup lookup, masked({.mask_token = ""});
  lookup.adapt(island);
  masked.adapt(island);
  EXPECT_EQ(lookup.vocabulary(), (Strings{"[UNK]", "Biscoe", "Dream"}));
  expect_tensor(lookup(island), int64, {4}, {1, 2, 0, 1});
  expect_tensor(masked(island), int64, {4}, {2, 3, 0, 2});
}

TEST(StringLookup, SavesItsVocabularyAsLines) {
  const TemporaryDirectory directory;
  const std::string path = (directory / "vocabulary.txt").string();
  const StringLookup lookup({.vocabulary = {"a b", "ä", "c"}});
  lookup.save_vocabulary(path);
  const StringLookup read({.vocabulary = data::read_lines(path).to_vector()});
  EXPECT_EQ(read.vocabulary(), lookup.vocabulary());
  expect_error<InvalidArgumentError>(
      [&] { StringLookup({.vocabulary = {"a\nb"}}).save_vocabulary(path); },
      "[StringLookup] expected strings without line ends to save");
  expect_error<FailedPreconditionError>([&] { StringLookup().save_vocabulary(path); },
                                        "[StringLookup] expected a vocabulary, got none");
}

TEST(StringLookup, ErrorsSayWhatIsWrong) {
  expect_error<InvalidArgumentError>(
      [] {
        StringLookup({.vocabulary = {"a", "a"}});
      },
      "[StringLookup] expected a vocabulary of different terms, got 'a' twice");
  expect_error<InvalidArgumentError>(
      [] { StringLookup({.output_mode = "binary"}); },
      "[StringLookup] expected one of the output modes int, one_hot");
  expect_error<FailedPreconditionError>([] { StringLookup()({"a"}); },
                                        "[StringLookup] expected a vocabulary, got none");
  expect_error<FailedPreconditionError>(
      [] { StringLookup({.vocabulary = {"a"}}).adapt(Strings{"b"}); },
      "[StringLookup] the option `vocabulary` is given");
  expect_error<InvalidArgumentError>([] { StringLookup().adapt(StringColumn()); },
                                     "[StringLookup] expected strings to adapt to, got none");
}

TEST(TextVectorization, StandardizesAndSplits) {
  const TextVectorization words;
  EXPECT_EQ(words.tokens("  Don't STOP,\tcafé-au_lait!\n"),
            (Strings{"dont", "stop", "caféaulait"}));
  EXPECT_EQ(words.tokens(" ,. "), Strings());
  EXPECT_EQ(TextVectorization({.standardize = "lower"}).tokens("A, b"), (Strings{"a,", "b"}));
  EXPECT_EQ(TextVectorization({.standardize = "strip_punctuation"}).tokens("A, b"),
            (Strings{"A", "b"}));
  EXPECT_EQ(TextVectorization({.standardize = ""}).tokens("A, b"), (Strings{"A,", "b"}));
  EXPECT_EQ(TextVectorization({.split = "character"}).tokens("Ab é\xff"),
            (Strings{"a", "b", " ", "é", "\xef\xbf\xbd"}));
  EXPECT_EQ(TextVectorization({.split = ""}).tokens("A b"), (Strings{"a b"}));
  EXPECT_EQ(TextVectorization({.ngrams = {1, 2}}).tokens("a b c"),
            (Strings{"a", "b", "c", "a b", "b c"}));
  EXPECT_EQ(TextVectorization({.ngrams = {3, 5}}).tokens("a b c"), (Strings{"a b c"}));
}

// https://keras.io/api/layers/preprocessing_layers/text/text_vectorization
TEST(TextVectorization, GivesPaddedIndices) {
  const TextVectorization layer({.max_tokens = 5000, .output_sequence_length = 4});
  layer.adapt(Strings{"foo bar", "bar baz", "baz bada boom"});
  EXPECT_EQ(layer.vocabulary(), (Strings{"", "[UNK]", "baz", "bar", "foo", "boom", "bada"}));
  expect_tensor(layer({"foo qux bar", "qux baz"}), int64, {2, 4}, {4, 1, 3, 0, 1, 2, 0, 0});
  expect_tensor(layer("bar bar bar bar foo"), int64, {4}, {3, 3, 3, 3});
  const TextVectorization open({.vocabulary = {"earth", "wind", "and", "fire"}});
  EXPECT_EQ(open.vocabulary(), (Strings{"", "[UNK]", "earth", "wind", "and", "fire"}));
  expect_tensor(open({"Earth, wind and fire!", "rain", ""}), int64, {3, 4},
                {2, 3, 4, 5, 1, 0, 0, 0, 0, 0, 0, 0});
  EXPECT_EQ(open(StringColumn()).shape(), (Shape{0, 0}));
  EXPECT_EQ(open("").shape(), (Shape{0}));
}

TEST(TextVectorization, GivesVectors) {
  const Strings vocabulary{"a", "b"};
  const auto of = [&](const char* mode) {
    return TextVectorization({.max_tokens = 4,
                              .output_mode = mode,
                              .pad_to_max_tokens = true,
                              .vocabulary = vocabulary});
  };
  expect_tensor(of("multi_hot")({"a b a", "q"}), float32, {2, 4}, {0, 1, 1, 0, 1, 0, 0, 0});
  expect_tensor(of("count")({"a b a", "q"}), float32, {2, 4}, {0, 2, 1, 0, 1, 0, 0, 0});
  EXPECT_EQ(of("count").vocabulary(), (Strings{"[UNK]", "a", "b"}));
  const TextVectorization found({.output_mode = "tf_idf"});
  found.adapt(Strings{"a b", "a a"});
  const double a = std::log(1 + 2.0 / 3), b = std::log(2.0);
  expect_tensor(found({"a a b x"}), float32, {1, 3}, {(a + b) / 2, 2 * a, b}, 1e-6);
}

TEST(TextVectorization, EncodesLinesOfFiles) {
  const TemporaryDirectory directory;
  const std::string path = (directory / "lines.txt").string();
  write_file(path, "the cat\nthe dog sat\n\nthe\n");
  const TextVectorization words({.output_sequence_length = 3}), open;
  words.adapt(data::from_text(path));
  open.adapt(data::read_lines(path));
  EXPECT_EQ(words.vocabulary(), open.vocabulary());
  std::vector<double> seen;
  for (const data::Example& batch : data::from_text(path, {.encode = words}).batch(4))
    seen = values_of(batch[0]);
  EXPECT_EQ(seen, (std::vector<double>{2, 5, 0, 2, 4, 3, 0, 0, 0, 2, 0, 0}));
  for (const data::Example& batch : data::from_text(path, {.encode = open}).padded_batch(4))
    EXPECT_EQ(values_of(batch[0]), seen);
}

TEST(TextVectorization, ErrorsSayWhatIsWrong) {
  expect_error<InvalidArgumentError>([] { TextVectorization({.standardize = "upper"}); },
                                     "[TextVectorization] expected standardize 'lower_and_strip");
  expect_error<InvalidArgumentError>([] { TextVectorization({.split = "words"}); },
                                     "[TextVectorization] expected split 'whitespace'");
  expect_error<InvalidArgumentError>([] { TextVectorization({.ngrams = {0}}); },
                                     "[TextVectorization] expected ngrams of at least 1, got 0");
  expect_error<InvalidArgumentError>(
      [] { TextVectorization({.output_mode = "one_hot"}); },
      "[TextVectorization] expected one of the output modes int, multi");
  expect_error<InvalidArgumentError>(
      [] { TextVectorization({.output_mode = "count", .output_sequence_length = 3}); },
      "[TextVectorization] expected output_sequence_length with the output mode 'int' alone");
  expect_error<InvalidArgumentError>([] { TextVectorization({.output_sequence_length = 0}); },
                                     "[TextVectorization] expected a positive length, got 0");
  expect_error<InvalidArgumentError>(
      [] { TextVectorization().adapt(data::Dataset::range(3).repeat()); },
      "[TextVectorization] expected finite data, got an endless dataset: use take()");
  expect_error<FailedPreconditionError>([] { TextVectorization()("a"); },
                                        "[TextVectorization] expected a vocabulary, got none");
}

// python3 -c "import tensorflow as tf
// for n in (0, 1, 3, 4, 7, 8, 16, 17, 32, 33, 64, 65, 100, 128, 129, 200):
//   print(n, tf.strings.to_hash_bucket_fast(bytes(i % 251 for i in range(n)), 2**62).numpy())"
TEST(Hashing, HasTensorFlowsFingerprintsOfStringsOfEachLength) {
  const std::pair<int, std::uint64_t> expected[] = {
      {0, 1936946117179621455},   {1, 4494688008148699988},   {3, 1486536572171691162},
      {4, 198155675784242496},    {7, 2513219638405408417},   {8, 3267946340606884760},
      {16, 1080060857502750420},  {17, 4302810082142134044},  {32, 1917831512995979081},
      {33, 2915358112413471310},  {64, 3856493858525203531},  {65, 478270155923209662},
      {100, 4395248839964844437}, {128, 2037963038260878803}, {129, 1048111057192683582},
      {200, 525935771297148851}};
  for (const auto& [size, hash] : expected) {
    std::string bytes;
    for (int i = 0; i < size; ++i) bytes += static_cast<char>(i % 251);
    EXPECT_EQ(fingerprint64(bytes) % (std::uint64_t{1} << 62), hash) << size;
  }
  // tf.strings.to_hash_bucket_strong(bytes(range(33)), 2**62, key=[5, 7])
  std::string bytes;
  for (char i = 0; i < 33; ++i) bytes += i;
  EXPECT_EQ(siphash64(bytes, 5, 7) % (std::uint64_t{1} << 62), 3230302323140594848u);
}

TEST(Hashing, IsThatOfTensorFlow) {
  // The examples of https://keras.io/api/layers/preprocessing_layers/categorical/hashing
  const Strings letters{"A", "B", "C", "D", "E"};
  expect_tensor(Hashing(3)(letters), int64, {5}, {1, 0, 1, 1, 2});
  expect_tensor(Hashing(3, {.mask_value = ""})(Strings{"A", "B", "", "C", "D"}), int64, {5},
                {1, 1, 0, 2, 2});
  expect_tensor(Hashing(3, {.salt = {{133, 137}}})(letters), int64, {5}, {1, 2, 1, 0, 2});
  expect_tensor(Hashing(3, {.salt = {{133, 133}}})(letters), int64, {5}, {0, 0, 2, 1, 0});
}

TEST(Hashing, TakesIntegersByTheirDigits) {
  const Hashing layer(7);
  expect_tensor(layer(constant({{12, -5}, {0, 7}})), int64, {2, 2},
                {values_of(layer(Strings{"12"}))[0], values_of(layer(Strings{"-5"}))[0],
                 values_of(layer(Strings{"0"}))[0], values_of(layer(Strings{"7"}))[0]});
  const Hashing vectors(2, {.output_mode = "count"});
  EXPECT_EQ(vectors(constant({{1, 2, 3}, {4, 5, 6}})).shape(), (Shape{2, 2}));
  EXPECT_EQ(Hashing(4, {.output_mode = "one_hot"})(Strings{"a", "b"}).shape(), (Shape{2, 4}));
  expect_error<DTypeError>([&] { layer(constant({1.5})); },
                           "[Hashing] expected integers, got float32");
  expect_error<InvalidArgumentError>([] { Hashing(0); },
                                     "[Hashing] expected at least 1 bin, got 0");
  expect_error<InvalidArgumentError>([] { Hashing(2, {.output_mode = "tf_idf"}); },
                                     "[Hashing] expected one of the output modes int");
}

// The paper's appendix has the key 0, 1, ..., 15 and the message 0, 1, ..., 14.
TEST(Hashing, SipHashHasTheTestVectorOfItsPaper) {
  std::string message;
  for (char i = 0; i < 15; ++i) message += i;
  EXPECT_EQ(siphash64(message, 0x0706050403020100, 0x0f0e0d0c0b0a0908), 0xa129ca6149be45e5);
}

}  // namespace
}  // namespace tandem::text_preprocessing_test
