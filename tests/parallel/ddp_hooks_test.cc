// Communication hooks of DistributedDataParallel.
#include <gtest/gtest.h>

#include <random>

#include "parallel/ddp_models.h"
#include "support/errors.h"
#include "support/process_groups.h"
#include "support/tensors.h"
#include "tandem/ddp.h"

namespace tandem::ddp_hooks_test {
namespace {

using parallel::CommHook;
using parallel::DistributedDataParallel;
using parallel::GradBucket;
using testing::error_of;
using testing::expect_group;

constexpr std::int64_t kRows = 12, kColumns = 10;

// A model whose gradients each step sets: kernel [12, 10] and bias [10].
class Given {
 public:
  explicit Given(const CommHook& hook)
      : model_(Sequential({layers::Dense(kColumns, {.input_shape = {kRows}})}),
               {.average_by_examples = false}) {
    if (hook) model_.register_comm_hook(hook);
  }
  // The averaged gradient of the kernel.
  std::vector<float> step(const std::vector<float>& gradient) const {
    for (Variable parameter : model_.parameters()) parameter.zero_grad();
    const Tensor direction = constant(gradient, {.shape = {kRows, kColumns}});
    reduce_sum(model_(eye(kRows)) * direction).backward();
    return model_.parameters()[0].grad().to_vector<float>();
  }
  std::vector<float> bias_gradient() const {
    return model_.parameters()[1].grad().to_vector<float>();
  }

 private:
  DistributedDataParallel model_;
};

std::vector<float> numbers(int rank, int step) {
  std::mt19937 engine(static_cast<unsigned>(100 * rank + step + 1));
  std::vector<float> values(kRows * kColumns);
  for (float& value : values) value = static_cast<float>(engine() % 2001) / 1000.0f - 1.0f;
  return values;
}

TEST(CommHooks, HalfPrecisionHooksRoundOnce) {
  expect_group({.size = 3}, [](int rank) {
    const Given half(parallel::hooks::fp16_compress()), brain(parallel::hooks::bf16_compress()),
        exact(nullptr);
    for (int step = 0; step < 3; ++step) {
      const auto gradient = numbers(rank, step);
      const auto expected = exact.step(gradient), fp16 = half.step(gradient),
                 bf16 = brain.step(gradient);
      bool rounded = false;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        // The result of summing three values that are rounded below 1/3, rounded below 1.
        EXPECT_NEAR(fp16[i], expected[i], 3 * 0x1p-13 + 0x1p-12);
        EXPECT_NEAR(bf16[i], expected[i], 3 * 0x1p-10 + 0x1p-9);
        rounded = rounded || fp16[i] != expected[i];
      }
      EXPECT_TRUE(rounded);
      testing::expect_close(constant(half.bias_gradient()), constant(exact.bias_gradient()), 1e-2);
    }
  });
}

// --- PowerSGD ---

using Matrix = std::vector<std::vector<double>>;

Matrix matrix(std::size_t rows, std::size_t columns) {
  return Matrix(rows, std::vector<double>(columns, 0.0));
}
Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c = matrix(a.size(), b[0].size());
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < b[0].size(); ++j)
      for (std::size_t k = 0; k < b.size(); ++k) c[i][j] += a[i][k] * b[k][j];
  return c;
}
Matrix turned(const Matrix& a) {
  Matrix t = matrix(a[0].size(), a.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < a[0].size(); ++j) t[j][i] = a[i][j];
  return t;
}
Matrix sum(const Matrix& a, const Matrix& b, double sign = 1.0) {
  Matrix c = a;
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < a[0].size(); ++j) c[i][j] += sign * b[i][j];
  return c;
}
void orthogonalize(Matrix& a) {
  for (std::size_t j = 0; j < a[0].size(); ++j) {
    for (std::size_t before = 0; before < j; ++before) {
      double dot = 0;
      for (const auto& row : a) dot += row[j] * row[before];
      for (auto& row : a) row[j] -= dot * row[before];
    }
    double length = 0;
    for (const auto& row : a) length += row[j] * row[j];
    for (auto& row : a) row[j] /= std::sqrt(length);
  }
}

// The algorithm of the paper in one place for all ranks: compress gradient and error, aggregate,
// keep the rest.
class Reference {
 public:
  Reference(int ranks, Matrix right, bool feedback)
      : right_(std::move(right)),
        errors_(static_cast<std::size_t>(ranks), matrix(kRows, kColumns)),
        feedback_(feedback) {}
  std::vector<float> step(int number) {
    const std::size_t ranks = errors_.size();
    std::vector<Matrix> values;
    Matrix left = matrix(kRows, right_[0].size());
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const auto given = numbers(static_cast<int>(rank), number);
      Matrix value = errors_[rank];
      for (std::size_t i = 0; i < kRows; ++i)
        for (std::size_t j = 0; j < kColumns; ++j)
          value[i][j] += given[i * kColumns + j] / static_cast<double>(ranks);
      left = sum(left, product(value, right_));
      values.push_back(std::move(value));
    }
    orthogonalize(left);
    Matrix right = matrix(kColumns, right_[0].size());
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const Matrix mine = product(turned(values[rank]), left);
      if (feedback_) errors_[rank] = sum(values[rank], product(left, turned(mine)), -1.0);
      right = sum(right, mine);
    }
    right_ = right;
    const Matrix result = product(left, turned(right));
    std::vector<float> flat;
    for (const auto& row : result)
      for (double element : row) flat.push_back(static_cast<float>(element));
    return flat;
  }

 private:
  Matrix right_;
  std::vector<Matrix> errors_;
  bool feedback_;
};

TEST(CommHooks, PowerSgdEqualsThePapersAlgorithm) {
  for (const bool feedback : {true, false})
    for (const std::int64_t thin : {1, 2})
      expect_group({.size = 2}, [&](int rank) {
        const Given compressed(parallel::hooks::power_sgd({.matrix_approximation_rank = thin,
                                                           .start_step = 0,
                                                           .min_compression_rate = 1.0,
                                                           .use_error_feedback = feedback}));
        const Given exact(nullptr);
        // The initial right factor of the hook.
        std::mt19937_64 engine(0);
        Matrix right = matrix(kColumns, static_cast<std::size_t>(thin));
        for (auto& row : right)
          for (double& element : row) element = static_cast<double>(engine() >> 11) * 0x1p-52 - 1.0;
        Reference reference(2, right, feedback);
        for (int step = 0; step < 6; ++step) {
          const auto found = compressed.step(numbers(rank, step));
          const auto expected = reference.step(step);
          for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 2e-4);
          const auto plain = exact.step(numbers(rank, step));
          EXPECT_NE(found, plain);
          EXPECT_EQ(compressed.bias_gradient(),
                    exact.bias_gradient());  // vectors are not compressed
        }
      });
}

TEST(CommHooks, PowerSgdStartsWithUncompressedSteps) {
  expect_group({.size = 2}, [](int rank) {
    const Given compressed(
        parallel::hooks::power_sgd({.start_step = 2, .min_compression_rate = 1}));
    const Given exact(nullptr);
    for (int step = 0; step < 4; ++step) {
      const auto gradient = numbers(rank, step);
      EXPECT_EQ(compressed.step(gradient) == exact.step(gradient), step < 2);
    }
  });
}

// --- custom hooks ---

TEST(CommHooks, AHookSeesItsBucket) {
  expect_group({.size = 2}, [](int rank) {
    int calls = 0;
    const CommHook hook = [&](const GradBucket& bucket) -> std::function<std::vector<Tensor>()> {
      ++calls;
      EXPECT_EQ(bucket.index, 0u);
      EXPECT_TRUE(bucket.is_last);
      EXPECT_EQ(bucket.parameters.size(), 2u);
      for (std::size_t i = 0; i < 2; ++i)
        EXPECT_EQ(bucket.gradients[i].shape(), bucket.parameters[i].shape());
      const auto parts = bucket.split(bucket.buffer);
      for (std::size_t i = 0; i < 2; ++i)
        EXPECT_EQ(parts[i].to_vector<float>(), bucket.gradients[i].to_vector<float>());
      // A hook that takes the maximum of the ranks' weighted gradients.
      comm::Work work =
          comm::all_reduce_async(bucket.buffer, {.op = ReduceOp::kMax, .group = bucket.group});
      return [work, bucket]() mutable { return bucket.split(work.result()); };
    };
    const Given model(hook);
    const auto found = model.step(numbers(rank, 0));
    const auto a = numbers(0, 0), b = numbers(1, 0);
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_EQ(found[i], std::max(a[i] * 0.5f, b[i] * 0.5f));
    EXPECT_EQ(calls, 1);
  });
}

// Traced steps give the same weights as eager ones, through the same phases of a hook.
void expect_traced_as_eager(const std::function<CommHook()>& make_hook) {
  expect_group({.size = 2}, [&](int rank) {
    const auto train = [&](bool traced) {
      random::set_seed(3);
      const DistributedDataParallel model(
          Sequential({layers::Dense(32, {.activation = "tanh", .input_shape = {6}}),
                      layers::Dense(16, {.activation = "tanh"}), layers::Dense(3)}),
          {.average_by_examples = false});
      model.register_comm_hook(make_hook());
      auto optimizer = optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9}, model.parameters());
      const auto body = [&](const Tensor& x, const Tensor& y) {
        optimizer.zero_grad();
        const Tensor loss = testing::loss_of(model(x, {.training = true}), y);
        loss.backward();
        optimizer.step();
        return loss;
      };
      const auto replayed = function(body);
      const testing::Examples data = testing::examples(60);
      for (int i = 0; i < 12; ++i) {
        const testing::Examples mine = data.rows(4 * i + 2 * rank, 4 * i + 2 * rank + 2);
        if (traced && i != 7)  // traced and eager steps may alternate
          replayed(mine.x, mine.y);
        else
          body(mine.x, mine.y);
      }
      return testing::weights_of(model);
    };
    const auto traced = train(true), eager = train(false);
    testing::expect_near(traced, eager);
    const auto together = comm::all_gather(constant(traced[0]));
    EXPECT_EQ(testing::values_of(together[0]), testing::values_of(together[1]));
  });
}

// Three kernels of 1 MiB: all fit one bucket of 25 MiB, but not one of 1 MiB.
TEST(CommHooks, BucketsHaveTheirSizesInTracedStepsToo) {
  expect_group({.size = 2}, [](int) {
    const auto buckets_of = [](bool traced, std::int64_t cap) {
      const auto dense = [] {
        return layers::Dense(512, {.use_bias = false, .input_shape = {512}});
      };
      const DistributedDataParallel model(Sequential({dense(), dense(), dense()}),
                                          {.bucket_cap_mb = cap});
      std::vector<std::size_t> sizes;
      model.register_comm_hook(
          [&](const GradBucket& bucket) -> std::function<std::vector<Tensor>()> {
            sizes.push_back(bucket.parameters.size());
            return [gradients = bucket.gradients] { return gradients; };
          });
      const auto body = [&](const Tensor& x) {
        const Tensor loss = reduce_sum(model(x));
        loss.backward();
        return loss;
      };
      if (traced)
        function(body)(ones({1, 512}));
      else
        body(ones({1, 512}));
      return sizes;
    };
    for (const bool traced : {false, true}) {
      EXPECT_EQ(buckets_of(traced, 1), (std::vector<std::size_t>{1, 1, 1})) << traced;
      EXPECT_EQ(buckets_of(traced, 25), (std::vector<std::size_t>{1, 2})) << traced;
    }
  });
}

TEST(CommHooks, HalfPrecisionHooksInTracedSteps) {
  expect_traced_as_eager(parallel::hooks::bf16_compress);
  expect_traced_as_eager(parallel::hooks::fp16_compress);
}

TEST(CommHooks, PowerSgdInTracedSteps) {
  for (const std::int64_t start : {0, 4})
    for (const bool feedback : {false, true})
      expect_traced_as_eager([=] {
        return parallel::hooks::power_sgd(
            {.matrix_approximation_rank = 2, .start_step = start, .use_error_feedback = feedback});
      });
}

TEST(CommHooks, PowerSgdWithoutWarmStartCannotBeTraced) {
  expect_group({.size = 1}, [](int) {
    const DistributedDataParallel model(
        Sequential({layers::Dense(kColumns, {.input_shape = {kRows}})}));
    model.register_comm_hook(parallel::hooks::power_sgd({.start_step = 0, .warm_start = false}));
    const auto step = function([&](const Tensor& x) {
      const Tensor loss = reduce_sum(model(x));
      loss.backward();
      return loss;
    });
    EXPECT_NE(error_of<UnimplementedError>([&] { step(eye(kRows)); }).find("warm_start"),
              std::string::npos);
  });
}

TEST(CommHooks, InvalidHooksAreRefused) {
  expect_group({.size = 1}, [](int) {
    const auto hook = parallel::hooks::fp16_compress();
    DistributedDataParallel model(Sequential({layers::Dense(2, {.input_shape = {3}})}));
    model.register_comm_hook(hook);
    EXPECT_EQ(error_of<FailedPreconditionError>([&] { model.register_comm_hook(hook); }),
              "[DistributedDataParallel] register_comm_hook can only be called once.");
    const Given wrong([](const GradBucket&) -> std::function<std::vector<Tensor>()> {
      return [] { return std::vector<Tensor>{ones({2}), ones({3})}; };
    });
    EXPECT_NE(error_of<InvalidArgumentError>([&] {
                wrong.step(numbers(0, 0));
              }).find("expected a combined gradient of shape"),
              std::string::npos);
    EXPECT_THROW(parallel::hooks::power_sgd({.matrix_approximation_rank = 0}),
                 InvalidArgumentError);
  });
}

}  // namespace
}  // namespace tandem::ddp_hooks_test
