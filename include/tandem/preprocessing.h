/// @file
/// Layers that turn the numbers of a table into features: they learn from data by adapt(), before
/// training. As the preprocessing layers of tf.keras.layers. Those of text are in
/// tandem/text_preprocessing.h, random ones of images in tandem/augmentation.h.
/// @code
/// td::layers::Normalization scaled;
/// scaled.adapt(table.to_tensor({"bill_length_mm", "body_mass_g"}));
/// td::Sequential model({scaled, td::layers::Dense(3)});
/// @endcode
///
/// Numbers that adapt() finds are variables, which the weights of a model contain: a model that
/// loads them need not adapt again. The vocabulary of a lookup is an option instead, as in Keras:
/// give the vocabulary() of one to the next.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tandem/data.h"
#include "tandem/layers.h"
#include "tandem/math.h"
#include "tandem/tensor.h"

namespace tandem::layers {

/// Options of Normalization. As Keras.
struct NormalizationOptions {
  /// The axes that have a mean and a variance for each of their positions; the batch axis cannot be
  /// one. Without a value: one mean and variance for all, as Keras's None.
  Axes axis = -1;
  /// The mean, if it is known: of each position of the axes in row-major order, or one for all.
  /// adapt() is then an error. Needs `variance`.
  std::vector<double> mean{};
  std::vector<double> variance{};  ///< the variance that belongs to it
  bool invert = false;             ///< whether to compute the numbers from normalized ones
  Shape input_shape{};             ///< shape of one example; for a model's first layer
  DTypePolicy dtype{};             ///< dtypes; default: the process's policy
  std::string name{};              ///< name in the model; default: by the type
};
/// (x - mean) / max(sqrt(variance), 1e-7), for numbers of any dtype. Computed in float32 or
/// float64, also where the layer's results are float16 or bfloat16. Before adapt() the mean is 0
/// and the variance 1. Variables "mean" and "variance", of the sizes of the axes. As
/// tf.keras.layers.Normalization.
class Normalization : public tandem::Layer {
 public:
  /// A layer. Throws InvalidArgumentError for a mean without a variance, and the reverse.
  explicit Normalization(const NormalizationOptions& options = {});
  /// @{
  /// Finds the mean and the population variance of each position of the axes, over all examples:
  /// the first axis of the tensor, or of the first component of each batch of the dataset. Replaces
  /// those of an earlier call. Warns of a variance of 0. Throws InvalidArgumentError without
  /// examples, for sizes that are not those of earlier calls, and for a position with a NaN or
  /// infinity, such as a missing field; FailedPreconditionError if the options have a mean.
  void adapt(const Tensor& examples) const;
  void adapt(const data::Dataset& batches) const;
  /// @}
};

/// Options of Discretization. As Keras.
struct DiscretizationOptions {
  /// The bins are [-inf, b0), [b0, b1), ..., [bn, inf]. Must increase.
  std::vector<double> bin_boundaries{};
  /// The number of bins that adapt() finds boundaries for, with about as many numbers in each.
  std::int64_t num_bins = 0;
  double epsilon = 0.01;  ///< the tolerated error of the quantiles of adapt()
  /// "int": the bin of each number, int64. "one_hot", "multi_hot", "count": of the bins, as
  /// CategoryEncoding.
  std::string output_mode = "int";
  Shape input_shape{};  ///< shape of one example; for a model's first layer
  DTypePolicy dtype{};  ///< dtypes; default: the process's policy
  std::string name{};   ///< name in the model; default: by the type
};
/// The number of the bin that contains each number; NaN is in the last one. With `num_bins` the
/// boundaries are a variable "bin_boundaries" [num_bins - 1]; before adapt() or load_weights() all
/// numbers but infinity are in the first bin. As tf.keras.layers.Discretization.
class Discretization : public tandem::Layer {
 public:
  /// A layer. Throws InvalidArgumentError unless either the boundaries or a number of at least 2
  /// bins are given.
  explicit Discretization(const DiscretizationOptions& options);
  /// @{
  /// Finds quantiles of all numbers, by Keras's summaries of 1 / epsilon of them. Replaces those of
  /// an earlier call. Throws InvalidArgumentError without numbers and for NaN;
  /// FailedPreconditionError if the options have boundaries.
  void adapt(const Tensor& numbers) const;
  void adapt(const data::Dataset& batches) const;
  /// @}
  std::vector<double> bin_boundaries() const;  ///< the boundaries; empty before adapt()
};

/// Options of CategoryEncoding. As Keras.
struct CategoryEncodingOptions {
  /// "one_hot": [batch] and [batch, 1] give [batch, num_tokens], other shapes an axis more.
  /// "multi_hot": the last axis has the categories of one example; 1 for those that occur. "count":
  /// how often each occurs, or the sum of its weights.
  std::string output_mode = "multi_hot";
  Shape input_shape{};  ///< shape of one example; for a model's first layer
  DTypePolicy dtype{};  ///< dtypes; default: the process's policy
  std::string name{};   ///< name in the model; default: by the type
};
/// Encodes numbers of categories, of any dtype, as vectors [num_tokens]. Called with the
/// categories, or with {categories, weights} of one shape for "count". Throws InvalidArgumentError
/// for a category outside [0, num_tokens), for which Keras 3 gives zeros. As
/// tf.keras.layers.CategoryEncoding.
class CategoryEncoding : public tandem::Layer {
 public:
  CategoryEncoding() = default;  ///< an undefined layer, to be assigned
  /// A layer for this number of categories. Throws InvalidArgumentError for less than one.
  explicit CategoryEncoding(std::int64_t num_tokens, const CategoryEncodingOptions& options = {});
};

/// Options of IntegerLookup. As Keras.
struct IntegerLookupOptions {
  /// The largest size of the vocabulary, with the mask token and those that are out of it.
  std::optional<std::int64_t> max_tokens{};
  /// The number of indices for integers that the vocabulary lacks: the integer modulo this number
  /// selects one. 0: such an integer is an error.
  std::int64_t num_oov_indices = 1;
  /// The integer that stands for nothing: index 0 with the output mode "int", no category with the
  /// others.
  std::optional<std::int64_t> mask_token{};
  std::int64_t oov_token = -1;             ///< that of an unknown integer, with `invert`
  std::vector<std::int64_t> vocabulary{};  ///< the integers; empty: those of adapt()
  std::vector<double> idf_weights{};       ///< for "tf_idf": a weight of each of the vocabulary
  bool invert = false;                     ///< whether to compute the integers of indices
  /// "int": indices. "one_hot", "multi_hot", "count": of the indices, as CategoryEncoding.
  /// "tf_idf": the count times the weight ln(1 + examples / (1 + examples that have it)).
  std::string output_mode = "int";
  bool pad_to_max_tokens = false;  ///< whether vectors have max_tokens elements
  Shape input_shape{};             ///< shape of one example; for a model's first layer
  DTypePolicy dtype{};             ///< dtypes; default: the process's policy
  std::string name{};              ///< name in the model; default: by the type
};
/// The index of each integer in a vocabulary: the mask token, the unknown integers, then those of
/// the vocabulary; int64. A binary search by operations: it runs in traced functions, and where the
/// model does. As tf.keras.layers.IntegerLookup.
class IntegerLookup : public tandem::Layer {
 public:
  /// A layer. Throws InvalidArgumentError for a vocabulary that has an integer twice, and for
  /// options that contradict each other.
  explicit IntegerLookup(const IntegerLookupOptions& options = {});
  /// @{
  /// Makes the vocabulary of all integers, the most frequent first, and of equally frequent ones
  /// the largest. Before the first call of the layer: throws FailedPreconditionError afterwards,
  /// and if the options have a vocabulary.
  void adapt(const Tensor& integers) const;
  void adapt(const data::Dataset& batches) const;
  /// @}
  /// The integers by their indices, with the mask token and the unknown ones unless
  /// `include_special_tokens` is false. As Keras's get_vocabulary.
  std::vector<std::int64_t> vocabulary(bool include_special_tokens = true) const;
  std::vector<double> idf_weights() const;  ///< the weights of "tf_idf", by index
  std::int64_t vocabulary_size() const;     ///< the number of indices
};

}  // namespace tandem::layers
