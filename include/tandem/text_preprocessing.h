/// @file
/// Text as numbers for models: lookups, hashes and the splitting of sentences. As the preprocessing
/// layers of text in tf.keras.layers.
///
/// Tensors have no strings, so that these are not part of a model: they turn the strings that
/// readers give (data::StringColumn, lines) into tensors, in memory or in a dataset.
/// @code
/// td::layers::TextVectorization words({.max_tokens = 10'000, .output_sequence_length = 64});
/// words.adapt(td::data::read_lines("reviews.txt"));
/// auto batches = td::data::from_text("reviews.txt", {.encode = words}).batch(32);  // [32, 64]
/// @endcode
///
/// The vocabulary of a trained model is saved with save_vocabulary(), and read by
/// `.vocabulary = td::data::read_lines(path).to_vector()`. Objects are handles: copies share the
/// vocabulary. Several threads may call one; adapt() is for one thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/data.h"
#include "tandem/strings.h"
#include "tandem/tensor.h"

namespace tandem::layers {

/// Options of StringLookup. As Keras.
struct StringLookupOptions {
  /// The largest size of the vocabulary, with the mask token and those that are out of it.
  std::optional<std::int64_t> max_tokens{};
  /// The number of indices for strings that the vocabulary lacks: the hash of the string selects
  /// one. 0: such a string is an error.
  std::int64_t num_oov_indices = 1;
  /// The string that stands for nothing: index 0 with the output mode "int", no category with the
  /// others. Missing strings count as it.
  std::optional<std::string> mask_token{};
  std::string oov_token = "[UNK]";        ///< that of an unknown string, with `invert`
  std::vector<std::string> vocabulary{};  ///< the strings; empty: those of adapt()
  std::vector<double> idf_weights{};      ///< for "tf_idf": a weight of each of the vocabulary
  bool invert = false;                    ///< whether to compute the strings of indices
  /// "int": an index for each string, int64 [strings]. "one_hot", "multi_hot", "count": a vector
  /// for each, float32 [strings, vocabulary_size()]. "tf_idf": the count times the weight ln(1 +
  /// strings / (1 + those that are equal)).
  std::string output_mode = "int";
  bool pad_to_max_tokens = false;  ///< whether vectors have max_tokens elements
};
/// The index of each string in a vocabulary: the mask token, the unknown strings, then those of the
/// vocabulary. As tf.keras.layers.StringLookup for a column.
class StringLookup {
 public:
  /// A lookup. Throws InvalidArgumentError for a vocabulary that has a string twice, and for
  /// options that contradict each other.
  explicit StringLookup(const StringLookupOptions& options = {});
  /// Makes the vocabulary of the strings that are not missing, the most frequent first, and of
  /// equally frequent ones the last in the order of their bytes. Throws FailedPreconditionError if
  /// the options have a vocabulary.
  void adapt(const data::StringColumn& strings) const;
  /// The indices or vectors of the strings. A missing string is the mask token, and without one an
  /// unknown string. Throws InvalidArgumentError for unknown strings without num_oov_indices.
  Tensor operator()(const data::StringColumn& strings) const;
  /// The same of these strings.
  Tensor operator()(std::initializer_list<std::string> strings) const {
    return (*this)(data::StringColumn(std::vector<std::string>(strings)));
  }
  /// The index or the vector of one string, without the axis of the strings.
  Tensor operator()(std::string_view string) const;
  /// The strings of indices, with the option `invert`: as many as the tensor has elements; those
  /// outside of the vocabulary are oov_token. Throws DTypeError for numbers that are not integers.
  data::StringColumn operator()(const Tensor& indices) const;
  /// The strings by their indices, with the mask token and the unknown ones unless
  /// `include_special_tokens` is false. As Keras's get_vocabulary.
  std::vector<std::string> vocabulary(bool include_special_tokens = true) const;
  std::vector<double> idf_weights() const;  ///< the weights of "tf_idf", by index
  std::int64_t vocabulary_size() const;     ///< the number of indices
  /// Writes the vocabulary without special tokens, a string in each line. The file is replaced
  /// completely or not at all. Throws InvalidArgumentError for a string that contains a line end.
  void save_vocabulary(const std::string& path) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// Options of TextVectorization. As Keras.
struct TextVectorizationOptions {
  std::optional<std::int64_t> max_tokens{};  ///< as StringLookupOptions::max_tokens
  /// "lower_and_strip_punctuation", "lower", "strip_punctuation", or "" for nothing. Letters of
  /// ASCII alone become lower-case, as in TensorFlow; punctuation is that of ASCII.
  std::string standardize = "lower_and_strip_punctuation";
  /// "whitespace": words between ASCII white space. "character": code points of UTF-8. "": the
  /// whole string.
  std::string split = "whitespace";
  /// The numbers of neighbouring words that are a token, joined by spaces: {1, 2} for words and
  /// pairs, Keras's 2; {2} for pairs alone. Empty: words.
  std::vector<std::int64_t> ngrams{};
  /// "int": the indices of the tokens, int64. "multi_hot", "count", "tf_idf": a vector
  /// [vocabulary_size()] for each text, as StringLookup.
  std::string output_mode = "int";
  /// Documents become this long: cut, or padded with 0. Default: a batch is as long as its longest.
  std::optional<std::int64_t> output_sequence_length{};
  bool pad_to_max_tokens = false;         ///< whether vectors have max_tokens elements
  std::vector<std::string> vocabulary{};  ///< the tokens; empty: those of adapt()
  std::vector<double> idf_weights{};      ///< for "tf_idf": a weight of each of the vocabulary
};
/// Splits documents into tokens, and gives their indices: 0 is padding, 1 an unknown token. As
/// tf.keras.layers.TextVectorization.
class TextVectorization {
 public:
  /// Throws InvalidArgumentError for options that contradict each other.
  explicit TextVectorization(const TextVectorizationOptions& options = {});
  /// @{
  /// Makes the vocabulary of the tokens, as StringLookup::adapt(). A dataset has the bytes of a
  /// document as the first component of each element, as those of data::from_text().
  void adapt(const data::StringColumn& documents) const;
  void adapt(const data::Dataset& documents) const;
  /// @}
  /// The indices int64 [documents, longest], or the vectors float32 [documents, vocabulary_size()],
  /// of these documents. Missing ones have no tokens.
  Tensor operator()(const data::StringColumn& documents) const;
  /// The same of these documents.
  Tensor operator()(std::initializer_list<std::string> documents) const {
    return (*this)(data::StringColumn(std::vector<std::string>(documents)));
  }
  /// The same of one text, without the axis of the documents.
  Tensor operator()(std::string_view text) const;
  /// The tokens of a document.
  std::vector<std::string> tokens(std::string_view text) const;
  /// As those of StringLookup.
  std::vector<std::string> vocabulary(bool include_special_tokens = true) const;
  std::vector<double> idf_weights() const;              ///< as those of StringLookup
  std::int64_t vocabulary_size() const;                 ///< the number of indices
  void save_vocabulary(const std::string& path) const;  ///< as that of StringLookup

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// Options of Hashing. As Keras.
struct HashingOptions {
  std::optional<std::string> mask_value{};  ///< a string with bin 0, which no other then has
  /// Keys of SipHash (Aumasson and Bernstein 2012); default: FarmHash's 64-bit fingerprint.
  std::optional<std::pair<std::uint64_t, std::uint64_t>> salt{};
  /// "int": the bin of each, int64. "one_hot", "multi_hot", "count": a vector float32
  /// [..., num_bins] of it.
  std::string output_mode = "int";
};
/// The hash of strings, or of the decimal digits of integers, modulo a number of bins: categories
/// without a vocabulary. The bins are those of TensorFlow. As tf.keras.layers.Hashing.
class Hashing {
 public:
  /// Throws InvalidArgumentError for less than one bin.
  explicit Hashing(std::int64_t num_bins, const HashingOptions& options = {});
  /// The bins of these strings: [strings]. A missing string is the mask value, and without one the
  /// empty string.
  Tensor operator()(const data::StringColumn& strings) const;
  /// The bins of these integers, in their shape; copied to CPU memory. Throws DTypeError for
  /// others.
  Tensor operator()(const Tensor& integers) const;

 private:
  std::int64_t bin(std::string_view text) const;
  Tensor encoded(std::vector<std::int64_t> bins, const Shape& shape) const;

  std::int64_t num_bins_;
  HashingOptions options_;
};

}  // namespace tandem::layers
