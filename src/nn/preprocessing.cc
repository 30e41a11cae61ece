// Layers that learn from data before training: Normalization, Discretization, CategoryEncoding.
#include "tandem/preprocessing.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/log.h"
#include "data/stream.h"
#include "nn/categories.h"
#include "nn/layer_base.h"
#include "nn/targets.h"
#include "ops/math/of_size.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/elementary.h"
#include "tandem/math.h"

namespace tandem::layers {
namespace {

// Numbers of any dtype as float32 or float64.
Tensor as_numbers(const Tensor& x) {
  return is_floating(x.dtype()) ? at_least_float32(x) : cast(x, float32);
}

// Calls `use` with the first component of each batch of a pass.
template <class Use>
void for_each_batch(const std::string& label, const data::Dataset& batches, const Use& use) {
  if (batches.cardinality() == data::kInfiniteCardinality)
    fail<InvalidArgumentError>("[{}] expected finite data, got an endless dataset: use take()",
                               label);
  for (const data::Example& batch : batches.iterate()) use(batch[0]);
}

// Means and variances of several columns, which batches are added to (Chan et al. 1979).
class Moments {
 public:
  void add(std::vector<double> mean, const std::vector<double>& variance, double count) {
    if (count_ == 0.0) {
      count_ = count;
      mean_ = std::move(mean);
      variance_ = variance;
      return;
    }
    const double total = count_ + count, part = count / total;
    for (std::size_t i = 0; i < mean_.size(); ++i) {
      const double difference = mean[i] - mean_[i];
      mean_[i] += difference * part;
      variance_[i] = variance_[i] * (1.0 - part) + variance[i] * part +
                     difference * difference * part * (1.0 - part);
    }
    count_ = total;
  }
  double count() const { return count_; }
  const std::vector<double>& mean() const { return mean_; }
  const std::vector<double>& variance() const { return variance_; }

 private:
  double count_ = 0.0;
  std::vector<double> mean_, variance_;
};

class NormalizationLayer final : public UnaryLayer {
 public:
  explicit NormalizationLayer(const NormalizationOptions& options)
      : UnaryLayer("normalization", options),
        axes_(options.axis.value_or(Dims())),
        invert_(options.invert),
        given_(!options.mean.empty()) {
    if (options.mean.empty() != options.variance.empty() ||
        options.mean.size() != options.variance.size())
      fail<InvalidArgumentError>(
          "[{}] expected as many means as variances, or none of both, got {} and {}", label(),
          options.mean.size(), options.variance.size());
    mean_ = options.mean;
    variance_ = options.variance;
  }
  bool casts_inputs() const override { return false; }
  bool casts_variables() const override { return false; }

  void adapt(const std::function<void(const std::function<void(const Tensor&)>&)>& each_batch) {
    if (given_)
      fail<FailedPreconditionError>(
          "[{}] the options have a mean, which adapt() would replace: leave one out", label());
    const data::PipelineScope scope;
    Moments moments;
    each_batch([&](const Tensor& batch) { add(batch, moments); });
    if (moments.count() == 0.0)
      fail<InvalidArgumentError>("[{}] expected examples to adapt to, got none", label());
    for (std::size_t i = 0; i < moments.mean().size(); ++i) {
      if (!std::isfinite(moments.mean()[i]) || !std::isfinite(moments.variance()[i]))
        fail<InvalidArgumentError>(
            "[{}] expected finite numbers to adapt to, got NaN or infinity at position {} of {}; "
            "leave out or fill missing values before",
            label(), i, moments.mean().size());
      if (moments.variance()[i] == 0.0)
        logging::warn("[{}] all numbers at position {} are {}: others will become very large",
                      label(), i, moments.mean()[i]);
    }
    mean_ = moments.mean();
    variance_ = moments.variance();
    if (mean_variable_.defined()) {
      mean_variable_.assign(filled(mean_, mean_variable_));
      variance_variable_.assign(filled(variance_, variance_variable_));
    }
  }

 private:
  // The axes of `x` that are kept, in increasing order.
  Dims kept(const Shape& x) const {
    std::vector<std::int64_t> axes;
    for (const std::int64_t axis : axes_) {
      const std::int64_t at = axis < 0 ? axis + x.rank() : axis;
      if (at < 1 || at >= x.rank())
        reject(fmt::format("an input with an axis {} besides the batch", axis), x);
      axes.push_back(at);
    }
    std::sort(axes.begin(), axes.end());
    if (std::adjacent_find(axes.begin(), axes.end()) != axes.end()) reject("different axes", x);
    return Dims(axes.begin(), axes.end());
  }

  // The sizes of the kept axes.
  Shape moments_shape(const Shape& x) const {
    Dims sizes;
    for (const std::int64_t axis : kept(x)) sizes.push_back(x.word(axis));
    return Shape(sizes);
  }

  void make_weights(const Shape& x) override {
    const Shape sizes = moments_shape(x);
    if (!sizes.fully_defined()) reject("known sizes of the axes that have means", x);
    check_sizes(sizes.num_elements());
    sizes_ = sizes;
    if (given_) return;
    const VariableOptions fixed{.trainable = false};
    const DType dtype = dtype_policy().variable_dtype() == float64 ? float64 : float32;
    const auto initial = [](const std::vector<double>& values, double otherwise) {
      return Initializer("adapted", [values, otherwise](const Shape& shape, DType of) {
        return values.empty() ? full(shape, otherwise, of)
                              : constant(values, {.dtype = of, .shape = shape});
      });
    };
    mean_variable_ = add_weight("mean", sizes, initial(mean_, 0.0), fixed, dtype);
    variance_variable_ = add_weight("variance", sizes, initial(variance_, 1.0), fixed, dtype);
  }

  void check_sizes(std::int64_t elements) const {
    const std::int64_t got = std::ssize(mean_);
    if (got == 0 || got == elements || (given_ && got == 1)) return;
    fail<InvalidArgumentError>("[{}] expected an input with {} positions along its axes, got {}",
                               label(), got, elements);
  }

  Shape infer(const Shape& x) const override {
    const Shape sizes = moments_shape(x);
    if (sizes_.known() && !may_agree(sizes, sizes_))
      reject(fmt::format("sizes {} of the axes that have means", sizes_.to_string()), x);
    return x;
  }

  Tensor run(const Tensor& x, const CallOptions&) override {
    Shape shape = x.shape();
    const Dims axes = kept(shape);
    for (int i = 0; i < axes.size(); ++i) shape.set(static_cast<int>(axes[i]), sizes_.word(i));
    const Tensor numbers = as_numbers(of_shape(label(), "an input of shape", x, shape));
    const Tensor mean = of_input(mean_, mean_variable_, numbers);
    const Tensor deviation = maximum(sqrt(of_input(variance_, variance_variable_, numbers)), 1e-7);
    const Tensor result = invert_ ? numbers * deviation + mean : (numbers - mean) / deviation;
    return result.to(dtype_policy().compute_dtype());
  }

  // The moments in a shape that broadcasts to the input's.
  Tensor of_input(const std::vector<double>& given, const Variable& variable,
                  const Tensor& x) const {
    const Dims axes = kept(x.shape());
    Dims sizes;
    for (int axis = 0; axis < x.rank(); ++axis) {
      const auto* const found = std::find(axes.begin(), axes.end(), axis);
      sizes.push_back(found == axes.end() ? 1 : sizes_.word(found - axes.begin()));
    }
    if (given_) return constant(given, {.dtype = x.dtype(), .shape = Shape(sizes)});
    return reshape(variable.value().to(x.dtype()), Shape(sizes));
  }

  void add(const Tensor& batch, Moments& moments) const {
    const Shape& shape = batch.shape();
    if (shape.rank() < 1) reject("a batch of examples", shape);
    static_cast<void>(infer(shape));
    const Dims axes = kept(shape);
    Dims others;
    double count = 1.0;
    for (int axis = 0; axis < shape.rank(); ++axis) {
      if (std::find(axes.begin(), axes.end(), axis) != axes.end()) continue;
      others.push_back(axis);
      count *= static_cast<double>(shape.word(axis));
    }
    if (count == 0.0) return;
    const Tensor numbers = cast(batch.cpu(), float64);
    std::vector<double> mean = reduce_mean(numbers, {.axis = others}).to_vector<double>();
    if (moments.count() > 0.0 && mean.size() != moments.mean().size())
      fail<InvalidArgumentError>("[{}] expected batches with {} positions, got shape {}", label(),
                                 moments.mean().size(), shape.to_string());
    moments.add(std::move(mean), reduce_variance(numbers, {.axis = others}).to_vector<double>(),
                count);
  }

  static Tensor filled(const std::vector<double>& values, const Variable& variable) {
    return constant(values, {.dtype = variable.dtype(), .shape = variable.shape()});
  }

  Dims axes_;
  bool invert_, given_;
  std::vector<double> mean_, variance_;  // given, or those of adapt()
  Shape sizes_;                          // of the moments, once built
  Variable mean_variable_, variance_variable_;
};

// A weighted sample of numbers in increasing order, as Keras's.
struct Summary {
  std::vector<float> numbers, weights;
};

Summary summary_of(std::vector<float> numbers, double epsilon) {
  std::sort(numbers.begin(), numbers.end());
  const double step = std::max(static_cast<double>(numbers.size()) * epsilon, 1.0);
  Summary summary;
  for (auto i = static_cast<std::size_t>(step - 1.0); i < numbers.size();
       i += static_cast<std::size_t>(step)) {
    summary.numbers.push_back(numbers[i]);
    summary.weights.push_back(static_cast<float>(step));
  }
  return summary;
}

// Linear interpolation of the points (xs, ys) at `x`, constant beyond them.
double interpolated(double x, const std::vector<double>& xs, const std::vector<double>& ys) {
  const auto above =
      static_cast<std::size_t>(std::upper_bound(xs.begin(), xs.end(), x) - xs.begin());
  if (above == 0) return ys.front();
  if (above == xs.size()) return ys.back();
  const double width = xs[above] - xs[above - 1];
  return ys[above - 1] + (ys[above] - ys[above - 1]) * (x - xs[above - 1]) / width;
}

// About 1 / epsilon numbers that divide the weight equally.
Summary compressed(const Summary& summary, double epsilon) {
  if (static_cast<double>(summary.numbers.size()) * epsilon < 1.0) return summary;
  std::vector<double> numbers(summary.numbers.begin(), summary.numbers.end());
  std::vector<double> sums, parts;
  float sum = 0.0f;
  for (const float weight : summary.weights) sums.push_back(sum += weight);
  for (const double s : sums) parts.push_back(static_cast<double>(static_cast<float>(s) / sum));
  Summary result;
  double before = 0.0;
  const auto count = static_cast<std::int64_t>(std::ceil(1.0 / epsilon));
  for (std::int64_t i = 0; i < count; ++i) {
    const double part = epsilon + static_cast<double>(i) * epsilon;
    result.numbers.push_back(static_cast<float>(interpolated(part, parts, numbers)));
    const double until = interpolated(part, parts, sums);
    result.weights.push_back(static_cast<float>(until - before));
    before = until;
  }
  return result;
}

Summary merged(const Summary& a, const Summary& b, double epsilon) {
  std::vector<std::pair<float, float>> both;
  for (const Summary* one : {&a, &b})
    for (std::size_t i = 0; i < one->numbers.size(); ++i)
      both.emplace_back(one->numbers[i], one->weights[i]);
  std::stable_sort(both.begin(), both.end(),
                   [](const auto& x, const auto& y) { return x.first < y.first; });
  Summary all;
  for (const auto& [number, weight] : both) {
    all.numbers.push_back(number);
    all.weights.push_back(weight);
  }
  return compressed(all, epsilon);
}

class DiscretizationLayer final : public UnaryLayer {
 public:
  explicit DiscretizationLayer(const DiscretizationOptions& options)
      : UnaryLayer("discretization", options),
        boundaries_(options.bin_boundaries),
        num_bins_(options.num_bins),
        epsilon_(options.epsilon),
        mode_(output_mode_from_name(
            label(), options.output_mode,
            {OutputMode::kInt, OutputMode::kOneHot, OutputMode::kMultiHot, OutputMode::kCount})) {
    if (boundaries_.empty() == (num_bins_ == 0))
      fail<InvalidArgumentError>("[{}] expected either bin_boundaries or num_bins, got {}", label(),
                                 boundaries_.empty() ? "none of them" : "both");
    if (num_bins_ != 0 && num_bins_ < 2)
      fail<InvalidArgumentError>("[{}] expected at least 2 bins, got {}", label(), num_bins_);
    if (!(epsilon_ > 0.0 && epsilon_ < 1.0))
      fail<InvalidArgumentError>("[{}] expected epsilon in (0, 1), got {}", label(), epsilon_);
    for (std::size_t i = 0; i < boundaries_.size(); ++i)
      if (std::isnan(boundaries_[i]) || (i > 0 && !(boundaries_[i - 1] < boundaries_[i])))
        fail<InvalidArgumentError>("[{}] expected boundaries that increase, got {} at {}", label(),
                                   boundaries_[i], i);
  }
  bool casts_inputs() const override { return false; }
  bool casts_variables() const override { return false; }

  void adapt(const std::function<void(const std::function<void(const Tensor&)>&)>& each_batch) {
    if (num_bins_ == 0)
      fail<FailedPreconditionError>(
          "[{}] the options have boundaries, which adapt() would replace: give num_bins instead",
          label());
    const data::PipelineScope scope;
    Summary summary;
    each_batch([&](const Tensor& batch) {
      const Tensor numbers = batch.cpu().to(float32);
      if (numbers.size() == 0) return;
      if (static_cast<bool>(reduce_any(is_nan(numbers)).item<bool>()))
        fail<InvalidArgumentError>(
            "[{}] expected numbers to adapt to, got NaN; leave out or fill missing values before",
            label());
      summary = merged(summary_of(numbers.to_vector<float>(), epsilon_), summary, epsilon_);
    });
    if (summary.numbers.empty())
      fail<InvalidArgumentError>("[{}] expected numbers to adapt to, got none", label());
    const Summary bins = compressed(summary, 1.0 / static_cast<double>(num_bins_));
    const std::size_t found =
        std::min(bins.numbers.size(), static_cast<std::size_t>(num_bins_)) - 1;
    boundaries_.assign(bins.numbers.begin(),
                       bins.numbers.begin() + static_cast<std::ptrdiff_t>(found));
    if (variable_.defined()) variable_.assign(constant(padded(), {.dtype = variable_.dtype()}));
  }

  std::vector<double> boundaries() const {
    if (!variable_.defined()) return boundaries_;
    std::vector<double> all = doubles_of(variable_.value().cpu());
    std::erase_if(all, [](double boundary) { return std::isinf(boundary); });
    return all;
  }

 private:
  std::int64_t bins() const { return num_bins_ > 0 ? num_bins_ : std::ssize(boundaries_) + 1; }

  // Infinite boundaries stand for those that adapt() has not found.
  std::vector<double> padded() const {
    std::vector<double> all = boundaries_;
    all.resize(static_cast<std::size_t>(bins() - 1), std::numeric_limits<double>::infinity());
    return all;
  }

  void make_weights(const Shape&) override {
    if (num_bins_ == 0) return;
    const auto initial = [values = padded()](const Shape& shape, DType dtype) {
      return constant(values, {.dtype = dtype, .shape = shape});
    };
    variable_ = add_weight("bin_boundaries", {bins() - 1}, Initializer("adapted", initial),
                           {.trainable = false}, float32);
  }

  Shape infer(const Shape& x) const override { return encoded_shape(mode_, x, bins()); }

  Tensor run(const Tensor& x, const CallOptions&) override {
    const Tensor numbers = as_numbers(x);
    const Tensor boundaries = variable_.defined()
                                  ? variable_.value().to(numbers.dtype())
                                  : constant(boundaries_, {.dtype = numbers.dtype()});
    const Tensor indices = searchsorted(boundaries, numbers, true);
    return encoded(mode_, indices, bins(), dtype_policy().compute_dtype());
  }

  std::vector<double> boundaries_;
  std::int64_t num_bins_;
  double epsilon_;
  OutputMode mode_;
  Variable variable_;
};

class CategoryEncodingLayer final : public KindLayer {
 public:
  CategoryEncodingLayer(std::int64_t num_tokens, const CategoryEncodingOptions& options)
      : KindLayer("category_encoding", options),
        num_tokens_(num_tokens),
        mode_(output_mode_from_name(
            label(), options.output_mode,
            {OutputMode::kOneHot, OutputMode::kMultiHot, OutputMode::kCount})) {
    if (num_tokens < 1)
      fail<InvalidArgumentError>("[{}] expected num_tokens of at least 1, got {}", label(),
                                 num_tokens);
  }
  bool casts_inputs() const override { return false; }
  void build(std::span<const Shape> shapes) override { static_cast<void>(output_shape(shapes)); }

  Tensor call(std::span<const Tensor> inputs, const CallOptions&) override {
    check(inputs.size());
    const Tensor categories = inputs[0].to(int64);
    // The lookup in a table of all categories refuses others.
    const Tensor known = gather(range(Dim(num_tokens_), {.dtype = int64}), categories);
    Tensor weights;
    if (inputs.size() == 2)
      weights = of_shape(label(), "weights of the categories' shape", inputs[1], known.shape());
    return encoded(mode_, known, num_tokens_, dtype_policy().compute_dtype(), weights);
  }
  Shape output_shape(std::span<const Shape> shapes) const override {
    check(shapes.size());
    if (shapes.size() == 2 && !may_agree(shapes[0], shapes[1]))
      reject("weights of the categories' shape " + shapes[0].to_string(), shapes[1]);
    return encoded_shape(mode_, shapes[0], num_tokens_);
  }

 private:
  void check(std::size_t inputs) const {
    if (inputs == 1 || (inputs == 2 && mode_ == OutputMode::kCount)) return;
    fail<InvalidArgumentError>(
        "[{}] expected categories, and with the output mode 'count' perhaps weights, got {} inputs",
        label(), inputs);
  }

  std::int64_t num_tokens_;
  OutputMode mode_;
};

template <class L>
void adapt_to(const tandem::Layer& layer, const Tensor& examples) {
  static_cast<L&>(layer.base()).adapt([&](const auto& use) { use(examples); });
}

template <class L>
void adapt_to(const tandem::Layer& layer, const data::Dataset& batches) {
  auto& base = static_cast<L&>(layer.base());
  base.adapt([&](const auto& use) { for_each_batch(base.label(), batches, use); });
}

}  // namespace

Normalization::Normalization(const NormalizationOptions& options)
    : tandem::Layer(std::make_shared<NormalizationLayer>(options)) {}
void Normalization::adapt(const Tensor& examples) const {
  adapt_to<NormalizationLayer>(*this, examples);
}
void Normalization::adapt(const data::Dataset& batches) const {
  adapt_to<NormalizationLayer>(*this, batches);
}

Discretization::Discretization(const DiscretizationOptions& options)
    : tandem::Layer(std::make_shared<DiscretizationLayer>(options)) {}
void Discretization::adapt(const Tensor& numbers) const {
  adapt_to<DiscretizationLayer>(*this, numbers);
}
void Discretization::adapt(const data::Dataset& batches) const {
  adapt_to<DiscretizationLayer>(*this, batches);
}
std::vector<double> Discretization::bin_boundaries() const {
  return static_cast<DiscretizationLayer&>(base()).boundaries();
}

CategoryEncoding::CategoryEncoding(std::int64_t num_tokens, const CategoryEncodingOptions& options)
    : tandem::Layer(std::make_shared<CategoryEncodingLayer>(num_tokens, options)) {}

}  // namespace tandem::layers
