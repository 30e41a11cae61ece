// PowerSGD: gradients as products of low-rank matrices.
#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <random>
#include <unordered_map>

#include "core/status.h"
#include "graph/graph.h"
#include "runtime/placement.h"
#include "runtime/trace.h"
#include "runtime/variable_impl.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/ddp.h"
#include "tandem/math.h"

namespace tandem::parallel::hooks {
namespace {

// The state of a parameter between steps.
struct Factor {
  Tensor start;    // initial value of `right`: random, [columns, rank]
  Variable right;  // Q of the last step
  Variable error;  // [rows, columns]; undefined without error feedback
};

std::int64_t columns_of(const Shape& shape) { return shape.word(-1); }
std::int64_t rows_of(const Shape& shape) { return shape.num_elements() / columns_of(shape); }

// Orthonormal columns (Gram-Schmidt). A column that depends on those before it becomes zeros.
Tensor orthogonalized(const Tensor& matrix) {
  std::vector<Tensor> columns;
  for (Tensor column : split(matrix, matrix.size_word(1), {.axis = 1})) {
    for (const Tensor& before : columns) column = column - before * reduce_sum(before * column);
    columns.push_back(column / maximum(norm(column), 1e-20));
  }
  return columns.size() == 1 ? columns.front() : concat(columns, 1);
}

Tensor flatten(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> flat;
  flat.reserve(tensors.size());
  for (const Tensor& tensor : tensors) flat.push_back(reshape(tensor, {-1}));
  return concat(flat, 0);
}

// The inverse of flatten(): tensors of the shapes of `like`.
std::vector<Tensor> unflatten(const Tensor& flat, const std::vector<Tensor>& like) {
  std::vector<std::int64_t> sizes;
  sizes.reserve(like.size());
  for (const Tensor& tensor : like) sizes.push_back(tensor.size());
  std::vector<Tensor> parts = tandem::split(flat, sizes);
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i] = reshape(parts[i], like[i].shape());
  return parts;
}

class PowerSgd : public std::enable_shared_from_this<PowerSgd> {
 public:
  explicit PowerSgd(const PowerSGDOptions& options) : options_(options) {
    if (options.matrix_approximation_rank < 1)
      fail<InvalidArgumentError>(
          "[power_sgd] expected a matrix_approximation_rank of at least 1, "
          "got {}",
          options.matrix_approximation_rank);
  }

  std::function<std::vector<Tensor>()> start(const GradBucket& bucket) {
    note_setting(compresses_);
    const std::int64_t step = step_;
    if (bucket.is_last && context.graph)
      context.graph->after_run([self = shared_from_this()] { self->advance(); });
    else if (bucket.is_last)
      advance();
    if (step < options_.start_step) {
      comm::Work work = comm::all_reduce_async(bucket.buffer, {.group = bucket.group});
      return [work, bucket]() mutable { return bucket.split(work.result()); };
    }
    if (context.graph && !options_.warm_start)
      throw UnimplementedError(
          "[power_sgd] expected warm_start in a traced step: without it every step generates new "
          "random numbers, which a trace cannot");
    return compress(bucket);
  }

 private:
  void advance() {
    if (++step_ == options_.start_step) *compresses_ = true;
  }

  // A bucket whose first collective (P = M Q) was launched.
  struct Compressed {
    GradBucket bucket;
    std::vector<std::size_t> matrices, plain;  // which of the bucket's gradients
    std::vector<Tensor> values, lefts;         // M and P of each matrix
    std::vector<Tensor> plain_values;
    std::optional<comm::Work> lefts_work, plain_work;
  };

  bool compressible(const Tensor& gradient) const {
    if (gradient.rank() < 2 || gradient.size() == 0) return false;
    const double rows = static_cast<double>(rows_of(gradient.shape()));
    const double columns = static_cast<double>(columns_of(gradient.shape()));
    return (rows + columns) * static_cast<double>(options_.matrix_approximation_rank) *
               options_.min_compression_rate <
           rows * columns;
  }

  std::function<std::vector<Tensor>()> compress(const GradBucket& bucket) {
    auto compressed = std::make_shared<Compressed>();
    Compressed& now = *compressed;
    now.bucket = bucket;
    for (std::size_t i = 0; i < bucket.gradients.size(); ++i) {
      const Tensor& gradient = bucket.gradients[i];
      if (!compressible(gradient)) {
        now.plain.push_back(i);
        now.plain_values.push_back(gradient);
        continue;
      }
      const Shape shape = {rows_of(gradient.shape()), columns_of(gradient.shape())};
      Factor& factor = factor_of(bucket.parameters[i], shape, gradient.dtype());
      Tensor value = reshape(gradient, shape);
      if (factor.error.defined()) value = value + factor.error.value();
      now.matrices.push_back(i);
      now.values.push_back(value);
      now.lefts.push_back(matmul(value, factor.right.value()));
    }
    const comm::ReduceOptions sum{.group = bucket.group};
    if (!now.plain.empty()) now.plain_work = comm::all_reduce_async(flatten(now.plain_values), sum);
    if (!now.matrices.empty()) now.lefts_work = comm::all_reduce_async(flatten(now.lefts), sum);
    return [self = shared_from_this(), compressed] { return self->finish(*compressed); };
  }

  std::vector<Tensor> finish(Compressed& now) {
    std::vector<Tensor> combined(now.bucket.gradients.size());
    if (now.plain_work) {
      const std::vector<Tensor> sums = unflatten(now.plain_work->result(), now.plain_values);
      for (std::size_t k = 0; k < sums.size(); ++k) combined[now.plain[k]] = sums[k];
    }
    if (!now.lefts_work) return combined;
    std::vector<Tensor> lefts = unflatten(now.lefts_work->result(), now.lefts), rights;
    for (std::size_t k = 0; k < lefts.size(); ++k) {
      lefts[k] = orthogonalized(lefts[k]);
      rights.push_back(matmul(transpose(now.values[k]), lefts[k]));
      if (options_.use_error_feedback)
        factor(now, k).error.assign(now.values[k] - matmul(lefts[k], transpose(rights[k])));
    }
    const std::vector<Tensor> sums =
        unflatten(comm::all_reduce(flatten(rights), {.group = now.bucket.group}), rights);
    for (std::size_t k = 0; k < sums.size(); ++k) {
      const Tensor& gradient = now.bucket.gradients[now.matrices[k]];
      combined[now.matrices[k]] = reshape(matmul(lefts[k], transpose(sums[k])), gradient.shape());
      Factor& kept = factor(now, k);
      if (options_.warm_start)  // a Q of zeros would stay zero
        kept.right.assign(where(equal(norm(sums[k]), 0.0), kept.start, sums[k]));
      else
        kept.right.assign(random(sums[k].shape(), sums[k].dtype()));
    }
    return combined;
  }

  Factor& factor(const Compressed& now, std::size_t k) {
    return factors_.at(&now.bucket.parameters[now.matrices[k]].impl());
  }
  Factor& factor_of(const Variable& parameter, const Shape& shape, DType dtype) {
    const auto [found, fresh] = factors_.try_emplace(&parameter.impl());
    Factor& factor = found->second;
    if (!fresh) return factor;
    const OutsideTrace at_once;
    const OnDevice there(parameter.impl().device());
    factor.start = random({shape.word(1), rank_for(shape)}, dtype);
    factor.right = Variable(factor.start, {.trainable = false});
    if (options_.use_error_feedback)
      factor.error = Variable(zeros(shape, {.dtype = dtype}), {.trainable = false});
    return factor;
  }
  std::int64_t rank_for(const Shape& shape) const {
    return std::min({options_.matrix_approximation_rank, shape.word(0), shape.word(1)});
  }

  // The same numbers on every rank, because all ranks generate equally often.
  Tensor random(const Shape& shape, DType dtype) {
    std::mt19937_64 engine(options_.seed + generated_++);
    std::vector<float> values(static_cast<std::size_t>(shape.num_elements()));
    for (float& value : values)  // uniform in [-1, 1), on every standard library
      value = static_cast<float>(static_cast<double>(engine() >> 11) * 0x1p-52 - 1.0);
    return cast(constant(values, {.shape = shape}), dtype);
  }

  PowerSGDOptions options_;
  std::int64_t step_ = 0;
  // Set before the first compressed step, for which functions are traced again.
  std::shared_ptr<std::atomic<bool>> compresses_ = std::make_shared<std::atomic<bool>>(false);
  std::uint64_t generated_ = 0;
  std::unordered_map<const VariableImpl*, Factor> factors_;
};

}  // namespace

CommHook power_sgd(const PowerSGDOptions& options) {
  auto state = std::make_shared<PowerSgd>(options);
  return [state](const GradBucket& bucket) { return state->start(bucket); };
}

}  // namespace tandem::parallel::hooks
