/// @file
/// Random numbers from a counter-based generator (Philox 4x32-10). A random number depends only on
/// the seed, the number of the call, the replica and the element's position, not on threads or
/// devices.
///
/// Each replica of a strategy has a stream of its own, so that a step that uses these functions
/// gets other random numbers with another number of replicas. nn::dropout(), whose first axis is
/// the batch, does not depend on it. Neither do random numbers in Dataset::map() or before
/// Strategy::run().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "tandem/tensor.h"

/// Random numbers. As tf.random.
namespace tandem::random {

/// State of a random stream, to save and restore.
struct GeneratorState {
  std::uint64_t seed = 0;    ///< seed
  std::uint64_t offset = 0;  ///< number of random operations so far
  /// Equal seed and offset.
  friend bool operator==(const GeneratorState&, const GeneratorState&) = default;
};

/// Seeds the process's stream and restarts it and the streams of replicas. The default seed is
/// 0x5eed. As tf.random.set_seed.
void set_seed(std::uint64_t seed);
GeneratorState get_state();                   ///< the state of the process's stream
void set_state(const GeneratorState& state);  ///< restores a state of get_state()

/// Options of random operations.
struct Options {
  DType dtype = float32;  ///< dtype of the result
  /// A seed of this operation besides that of set_seed(): equal calls with other seeds have other
  /// numbers. As the operation seeds of TensorFlow.
  std::optional<std::uint64_t> seed{};
  std::string_view name{};  ///< name of the operation in a graph
};
/// Normal distribution. As tf.random.normal.
[[nodiscard]] Tensor normal(const Shape& shape, double mean = 0.0, double stddev = 1.0,
                            const Options& options = {});
/// Options of normal() and truncated_normal(). As the arguments of tf.random.normal.
struct NormalOptions {
  double mean = 0.0;                    ///< mean
  double stddev = 1.0;                  ///< standard deviation
  DType dtype = float32;                ///< dtype of the result
  std::optional<std::uint64_t> seed{};  ///< as Options::seed
  std::string_view name{};              ///< name of the operation in a graph
};
[[nodiscard]] Tensor normal(const Shape& shape, const NormalOptions& options);  ///< as above
/// As the other truncated_normal().
[[nodiscard]] Tensor truncated_normal(const Shape& shape, const NormalOptions& options);
/// Normal distribution; values beyond two standard deviations are sampled again. As
/// tf.random.truncated_normal.
[[nodiscard]] Tensor truncated_normal(const Shape& shape, double mean = 0.0, double stddev = 1.0,
                                      const Options& options = {});
/// Uniform distribution over [low, high). As tf.random.uniform.
[[nodiscard]] Tensor uniform(const Shape& shape, double low = 0.0, double high = 1.0,
                             const Options& options = {});
/// Options of uniform(). As the arguments of tf.random.uniform.
struct UniformOptions {
  double minval = 0.0;             ///< lower limit, included
  std::optional<double> maxval{};  ///< upper limit, excluded; default: 1, for integers required
  DType dtype = float32;           ///< dtype of the result; an integer one gives integers
  std::optional<std::uint64_t> seed{};  ///< as Options::seed
  std::string_view name{};              ///< name of the operation in a graph
};
/// Uniform distribution over [minval, maxval) of floating-point numbers or integers. Throws
/// InvalidArgumentError for integers without maxval. As tf.random.uniform.
[[nodiscard]] Tensor uniform(const Shape& shape, const UniformOptions& options);
/// The same with the dtype as an argument, as in TensorFlow; an integer one gives integers.
[[nodiscard]] inline Tensor uniform(const Shape& shape, double minval, double maxval, DType dtype) {
  return uniform(shape, {.minval = minval, .maxval = maxval, .dtype = dtype});
}
/// Uniform distribution of integers over [low, high). As tf.random.uniform.
[[nodiscard]] Tensor uniform_int(const Shape& shape, std::int64_t low, std::int64_t high,
                                 const Options& options = {.dtype = int32});
/// Ones with the given probability, else zeros. As torch.bernoulli.
[[nodiscard]] Tensor bernoulli(const Shape& shape, double probability, const Options& options = {});
/// Ones with the probability of each element, else zeros, of the dtype of the probabilities. As
/// torch.bernoulli.
[[nodiscard]] Tensor bernoulli(const Tensor& probabilities);
/// `count` categories (int64) for each row of the last axis, sampled with probabilities
/// proportional to exp(logits), each sample by itself. As tf.random.categorical.
[[nodiscard]] Tensor categorical(const Tensor& logits, Dim count);
/// `count` categories (int64) for each row of the last axis, sampled with the given probabilities,
/// which need not sum to 1. Without replacement no category is sampled twice: throws
/// InvalidArgumentError for more samples than categories. As torch.multinomial.
[[nodiscard]] Tensor multinomial(const Tensor& probabilities, Dim count, bool replacement = false);
/// 0, ..., count-1 in random order; int64. As torch.randperm.
[[nodiscard]] Tensor permutation(Dim count);
/// Reorders x randomly along the first axis. As tf.random.shuffle.
[[nodiscard]] Tensor shuffle(const Tensor& x);

/// A stream of random numbers of its own: those that the functions above generate after
/// set_seed(seed). A handle; copies share the stream. Throws UnimplementedError while a function is
/// traced, which would repeat the same numbers in each run. As tf.random.Generator.
class Generator {
 public:
  explicit Generator(std::uint64_t seed = 0x5eed);                            ///< with this seed
  static Generator from_seed(std::uint64_t seed) { return Generator(seed); }  ///< with this seed

  /// @{
  /// As the functions of these names.
  [[nodiscard]] Tensor normal(const Shape& shape, double mean = 0.0, double stddev = 1.0) const;
  [[nodiscard]] Tensor normal(const Shape& shape, const NormalOptions& options) const;
  [[nodiscard]] Tensor truncated_normal(const Shape& shape, double mean = 0.0,
                                        double stddev = 1.0) const;
  [[nodiscard]] Tensor uniform(const Shape& shape, double low = 0.0, double high = 1.0) const;
  [[nodiscard]] Tensor uniform(const Shape& shape, const UniformOptions& options) const;
  [[nodiscard]] Tensor uniform(const Shape& shape, double minval, double maxval,
                               DType dtype) const {
    return uniform(shape, {.minval = minval, .maxval = maxval, .dtype = dtype});
  }
  [[nodiscard]] Tensor uniform_int(const Shape& shape, std::int64_t low, std::int64_t high) const;
  [[nodiscard]] Tensor permutation(Dim count) const;
  [[nodiscard]] Tensor shuffle(const Tensor& x) const;
  /// @}
  GeneratorState get_state() const;                   ///< the state of this stream
  void set_state(const GeneratorState& state) const;  ///< restores a state of get_state()

 private:
  struct Stream;
  std::shared_ptr<Stream> stream_;
};

}  // namespace tandem::random
