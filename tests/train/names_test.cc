// The names of other libraries (tandem/names.h) are the things that they stand for.
#include "tandem/names.h"

#include <gtest/gtest.h>

#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::names_test {
namespace {

using testing::expect_error;
using testing::values_of;

// In braces and parentheses as users write them.
TEST(Names, OfTensorsAreThoseOfTheMainFunctions) {
  const Tensor x = constant({{1.0, -2.0, 3.0}, {4.0, 5.0, -6.0}}), y = constant({1.0, 2.0, 3.0});
  const auto same = [](const Tensor& a, const Tensor& b) {
    EXPECT_EQ(a.dtype(), b.dtype());
    EXPECT_EQ(a.shape(), b.shape());
    EXPECT_EQ(values_of(a), values_of(b));
  };
  same(cat({x, x}, 1), concat({x, x}, 1));
  EXPECT_EQ(random::randint(2, 3, {2}).to_vector<std::int64_t>(),
            (std::vector<std::int64_t>{2, 2}));
  same(cat({x, x}, {.axis = 1}), concat({x, x}, 1));
  same(concatenate({x, x}, {.axis = 0}), concat({x, x}, 0));
  same(unsqueeze(y, 0), expand_dims(y, 0));
  same(permute(x, {1, 0}), transpose(x));
  same(flip(x, {1}), reverse(x, {1}));
  same(index_select(x, 1, constant({2, 0})), gather(x, constant({2, 0}), 1));
  same(masked_select(x, x > 0), boolean_mask(x, x > 0));
  same(sub(x, y), x - y);
  same(mul(x, y), x * y);
  same(div(x, y), x / y);
  same(neg(x), -x);
  same(mm(x, transpose(x)), matmul(x, transpose(x)));
  same(mv(x, y), matmul(x, y));
  same(dot(y, y), matmul(y, y));
  same(clamp(x, -1, 1), clip_by_value(x, -1, 1));
  same(isnan(x), is_nan(x));
  same(eq(x, y), equal(x, y));
  same(ne(x, y), not_equal(x, y));
  same(lt(x, y), less(x, y));
  same(le(x, y), less_equal(x, y));
  same(gt(x, y), greater(x, y));
  same(ge(x, y), greater_equal(x, y));
  same(max(x, y), maximum(x, y));
  same(min(x, y), minimum(x, y));
  same(max(x), reduce_max(x));
  same(min(x), reduce_min(x));
  same(sum(x), reduce_sum(x));
  same(sum(x, 1, true), reduce_sum(x, {.axis = 1, .keepdims = true}));
  same(sum(x, {0, 1}), reduce_sum(x));
  same(mean(x, 0), reduce_mean(x, {.axis = 0}));
  same(prod(x, 1), reduce_prod(x, {.axis = 1}));
  same(any(x > 4), reduce_any(x > 4));
  same(all(x > 4), reduce_all(x > 4));
  same(logsumexp(x, 1), reduce_logsumexp(x, {.axis = 1}));
  same(relu(x), nn::relu(x));
  same(softmax(x, 1), nn::softmax(x, 1));
  same(log_softmax(x, 0), nn::log_softmax(x, 0));
  same(silu(x), nn::swish(x));
  same(full_like(x, 2), full({2, 3}, 2));
  same(empty({2}), zeros({2}));
  same(math::reduce_sum(x, 0), reduce_sum(x, 0));
  same(linalg::matmul(x, y), matmul(x, y));
  same(nn::softmax_cross_entropy_with_logits(nn::softmax(x), x),
       nn::softmax_cross_entropy(nn::softmax(x), x));
  same(x.index({indexing::Slice{None, 1}}), x(Slice(None, 1)));
}

TEST(Names, OfRandomNumbersAreThoseOfTheMainFunctions) {
  const auto after_seed = [](const auto& f) {
    manual_seed(3);
    return values_of(f());
  };
  EXPECT_EQ(after_seed([] { return randn({5}); }), after_seed([] { return random::normal({5}); }));
  EXPECT_EQ(after_seed([] { return rand({5}); }), after_seed([] { return random::uniform({5}); }));
  EXPECT_EQ(after_seed([] { return randint(2, 9, {5}); }),
            after_seed([] { return random::uniform_int({5}, 2, 9, {.dtype = int64}); }));
  EXPECT_EQ(randint(4, {3}).dtype(), kLong);
  EXPECT_EQ(after_seed([] { return randperm(6); }),
            after_seed([] { return random::permutation(6); }));
  EXPECT_EQ(randn_like(ones({2}, float64)).dtype(), kDouble);
}

TEST(Names, PairGradientsWithVariables) {
  const Variable a(constant(2.0)), b(constant(3.0));
  optimizers::SGD sgd(0.5);
  sgd.apply_gradients(optimizers::zip({constant(1.0), constant(2.0)}, {a, b}));
  EXPECT_EQ(a.item(), 1.5);
  EXPECT_EQ(b.item(), 2.0);
  expect_error<InvalidArgumentError>(
      [&] {
        optimizers::zip({constant(1.0)}, {a, b});
      },
      "[zip] expected a gradient per variable, got 1 for 2");
}

TEST(Names, FreezeOneVariable) {
  const Variable w(constant(2.0)), fixed(constant(1.0), {.trainable = false});
  w.requires_grad_(false);
  EXPECT_FALSE(w.requires_grad());
  (w.requires_grad_(true).value() * 3.0).backward();
  EXPECT_EQ(w.grad().item(), 3.0);
  expect_error<InvalidArgumentError>(
      [&] { fixed.requires_grad_(); },
      "[requires_grad_] expected a variable that was made trainable");
}

TEST(Names, SetTheLevelOfTheLog) {
  const std::string before(logging::get_level());
  log::set_level("error");
  EXPECT_EQ(logging::get_level(), "error");
  logging::set_level(before);
  EXPECT_EQ(values_of(log(ones({1}))), (std::vector<double>{0}));  // the logarithm
}

TEST(Names, VariablesChangeInPlace) {
  Variable w(constant({1.0, 2.0}));
  const Variable same = w;
  w -= 0.5 * constant({1.0, 2.0});
  w += same;
  EXPECT_EQ(values_of(same.value()), (std::vector<double>{1.0, 2.0}));
}

}  // namespace
}  // namespace tandem::names_test
