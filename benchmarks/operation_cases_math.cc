// Element-wise operations, comparisons, matrix products, constants and random numbers.
#include "operation_cases.h"

namespace bench {
namespace {

using Number = td::Tensor (*)(const td::Tensor&, double);

// The right-hand side is a number that PyTorch's expression contains.
void add_number(CaseList& list, const char* name, const char* torch, Number call, double number,
                bool backward = true) {
  list.matrix(
      name, torch, [=](const Arguments& in) { return call(in[0], number); }, backward);
}

void add_arithmetic(CaseList& list) {
  list.binary("add", "a + b", td::add);
  list.binary("subtract", "a - b", td::subtract);
  list.binary("multiply", "a * b", td::multiply);
  list.binary("divide", "a / b", td::divide, Values::kPositive);
  list.binary("floor_divide", "torch.floor_divide(a, b)", td::floor_divide, Values::kPositive,
              false);
  list.binary("floor_mod", "torch.remainder(a, b)", td::floor_mod, Values::kPositive);
  list.binary("pow", "torch.pow(a, b)", td::pow, Values::kPositive);
  list.binary("maximum", "torch.maximum(a, b)", td::maximum);
  list.binary("minimum", "torch.minimum(a, b)", td::minimum);
  list.binary("squared_difference", "torch.square(a - b)", td::squared_difference);
  const auto sum = [](const Arguments& in) { return td::add(in[0], in[1]); };
  list.add({.name = "add_row",
            .torch = "a + b",
            .inputs = {{kMatrix}, {{td::Shape{64}, td::Shape{512}, td::Shape{2048}}}},
            .call = sum});
  list.add({.name = "add_column",
            .torch = "a + b",
            .inputs = {{kMatrix}, {{td::Shape{64, 1}, td::Shape{512, 1}, td::Shape{4096, 1}}}},
            .call = sum});
  list.add({.name = "add_n",
            .torch = "a + b + c + d",
            .inputs = {{kMatrix}, {kMatrix}, {kMatrix}, {kMatrix}},
            .call = [](const Arguments& in) { return td::add_n(in.inputs); }});

  add_number(list, "add_number", "a + 1.5", td::add, 1.5);
  add_number(list, "subtract_number", "a - 1.5", td::subtract, 1.5);
  add_number(list, "multiply_number", "a * 1.5", td::multiply, 1.5);
  add_number(list, "divide_number", "a / 1.5", td::divide, 1.5);
  add_number(list, "maximum_number", "torch.clamp(a, min=0.25)", td::maximum, 0.25);
  add_number(list, "minimum_number", "torch.clamp(a, max=0.25)", td::minimum, 0.25);
  list.matrix("number_minus", "1.5 - a",
              [](const Arguments& in) { return td::subtract(1.5, in[0]); });
  list.add({.name = "number_over",
            .torch = "1.5 / a",
            .inputs = {{kMatrix, Values::kPositive}},
            .call = [](const Arguments& in) { return td::divide(1.5, in[0]); }});
  list.add({.name = "pow_number",
            .torch = "torch.pow(a, 2.5)",
            .inputs = {{kMatrix, Values::kPositive}},
            .call = [](const Arguments& in) { return td::pow(in[0], 2.5); }});
}

void add_functions(CaseList& list) {
  list.unary("negative", "-a", td::negative);
  list.unary("abs", "torch.abs(a)", td::abs);
  list.unary("sign", "torch.sign(a)", td::sign, Values::kSigned, false);
  list.unary("square", "torch.square(a)", td::square);
  list.unary("sqrt", "torch.sqrt(a)", td::sqrt, Values::kPositive);
  list.unary("rsqrt", "torch.rsqrt(a)", td::rsqrt, Values::kPositive);
  list.unary("reciprocal", "torch.reciprocal(a)", td::reciprocal, Values::kPositive);
  list.unary("exp", "torch.exp(a)", td::exp);
  list.unary("expm1", "torch.expm1(a)", td::expm1);
  list.unary("log", "torch.log(a)", td::log, Values::kPositive);
  list.unary("log1p", "torch.log1p(a)", td::log1p, Values::kUnit);
  list.unary("sin", "torch.sin(a)", td::sin);
  list.unary("cos", "torch.cos(a)", td::cos);
  list.unary("tanh", "torch.tanh(a)", td::tanh);
  list.unary("sigmoid", "torch.sigmoid(a)", td::sigmoid);
  list.unary("erf", "torch.erf(a)", td::erf);
  list.unary("floor", "torch.floor(a)", td::floor, Values::kSigned, false);
  list.unary("ceil", "torch.ceil(a)", td::ceil, Values::kSigned, false);
  list.unary("round", "torch.round(a)", td::round, Values::kSigned, false);
  list.unary("is_nan", "torch.isnan(a)", td::is_nan, Values::kSigned, false);
  list.unary("is_finite", "torch.isfinite(a)", td::is_finite, Values::kSigned, false);
  list.matrix("cast", "a.to(torch.bfloat16 if dtype == torch.float32 else torch.float32)",
              [](const Arguments& in) {
                return td::cast(in[0], in.dtype == td::float32 ? td::bfloat16 : td::float32);
              });
  list.matrix(
      "cast_to_int", "a.to(torch.int32)",
      [](const Arguments& in) { return td::cast(in[0], td::int32); }, false);
  list.matrix(
      "cast_to_int16", "a.to(torch.int16)",
      [](const Arguments& in) { return td::cast(in[0], td::int16); }, false);
  list.matrix("clip_by_value", "torch.clamp(a, -0.5, 0.5)",
              [](const Arguments& in) { return td::clip_by_value(in[0], -0.5, 0.5); });
}

void add_comparisons(CaseList& list) {
  list.binary("equal", "a == b", td::equal, Values::kSigned, false);
  list.binary("not_equal", "a != b", td::not_equal, Values::kSigned, false);
  list.binary("less", "a < b", td::less, Values::kSigned, false);
  list.binary("less_equal", "a <= b", td::less_equal, Values::kSigned, false);
  list.binary("greater", "a > b", td::greater, Values::kSigned, false);
  list.binary("greater_equal", "a >= b", td::greater_equal, Values::kSigned, false);
  add_number(list, "equal_number", "a == 0.25", td::equal, 0.25, false);
  add_number(list, "not_equal_number", "a != 0.25", td::not_equal, 0.25, false);
  add_number(list, "less_number", "a < 0.25", td::less, 0.25, false);
  add_number(list, "less_equal_number", "a <= 0.25", td::less_equal, 0.25, false);
  add_number(list, "greater_number", "a > 0.25", td::greater, 0.25, false);
  add_number(list, "greater_equal_number", "a >= 0.25", td::greater_equal, 0.25, false);
  list.binary("logical_and", "torch.logical_and(a, b)", td::logical_and, Values::kBool, false);
  list.binary("logical_or", "torch.logical_or(a, b)", td::logical_or, Values::kBool, false);
  list.unary("logical_not", "torch.logical_not(a)", td::logical_not, Values::kBool, false);
  list.add({.name = "where",
            .torch = "torch.where(a, b, c)",
            .inputs = {{kMatrix, Values::kBool}, {kMatrix}, {kMatrix}},
            .call = [](const Arguments& in) { return td::where(in[0], in[1], in[2]); }});
}

void add_products(CaseList& list) {
  const Shapes square = {td::Shape{64, 64}, td::Shape{512, 512}, td::Shape{1536, 1536}};
  list.add({.name = "matmul",
            .torch = "a @ b",
            .inputs = {{square}, {square}},
            .call = [](const Arguments& in) { return td::matmul(in[0], in[1]); }});
  list.add({.name = "matmul_transposed",
            .torch = "a @ b.t()",
            .inputs = {{square}, {square}},
            .call = [](const Arguments& in) {
              return td::matmul(in[0], in[1], {.transpose_b = true});
            }});
  list.add({.name = "matmul_batch",
            .torch = "a @ b",
            .inputs = {{{td::Shape{8, 32, 32}, td::Shape{32, 128, 64}, td::Shape{96, 256, 64}}},
                       {{td::Shape{8, 32, 32}, td::Shape{32, 64, 128}, td::Shape{96, 64, 256}}}},
            .call = [](const Arguments& in) { return td::matmul(in[0], in[1]); }});
}

// Symmetric with eigenvalues of at least 1.
td::Tensor positive(const td::Tensor& x) {
  return td::matmul(x, x, {.transpose_b = true}) + td::linalg::matrix_power(x, 0);
}

void add_linear_algebra(CaseList& list) {
  const Shapes square = {td::Shape{2, 6, 6}, td::Shape{16, 64, 64}, td::Shape{2, 384, 384}};
  const Shapes right = {td::Shape{2, 6, 3}, td::Shape{16, 64, 16}, td::Shape{2, 384, 64}};
  const auto add = [&](const char* name, const char* torch, std::vector<Input> inputs, Call call) {
    list.add({.name = name,
              .torch = torch,
              .inputs = std::move(inputs),
              .call = std::move(call),
              .dtypes = false});
  };
  add("solve", "torch.linalg.solve(a, b)", {{square}, {right}},
      [](const Arguments& in) { return td::linalg::solve(in[0], in[1]); });
  add("solve_triangular",
      "torch.linalg.solve_triangular(a @ a.mT + a.matrix_power(0), b, upper=False)",
      {{square}, {right}},
      [](const Arguments& in) { return td::linalg::solve_triangular(positive(in[0]), in[1]); });
  add("cholesky", "torch.linalg.cholesky(a @ a.mT + a.matrix_power(0))", {{square}},
      [](const Arguments& in) { return td::linalg::cholesky(positive(in[0])); });
  add("slogdet", "torch.linalg.slogdet(a).logabsdet", {{square}},
      [](const Arguments& in) { return td::linalg::slogdet(in[0]).logabsdet; });
  add("qr", "torch.linalg.qr(a).R", {{right}},
      [](const Arguments& in) { return td::linalg::qr(in[0]).r; });
  add("eigvalsh", "torch.linalg.eigvalsh(a + a.mT)", {{square}}, [](const Arguments& in) {
    return td::linalg::eigvalsh(in[0] + td::transpose(in[0], {0, 2, 1}));
  });
  add("svdvals", "torch.linalg.svdvals(a)", {{right}},
      [](const Arguments& in) { return td::linalg::svdvals(in[0]); });
  add("pinv", "torch.linalg.pinv(a)", {{right}},
      [](const Arguments& in) { return td::linalg::pinv(in[0]); });
}

// A case without inputs.
void add_source(CaseList& list, const char* name, const char* torch, Call call,
                const Shapes& shapes = kMatrix, bool random = false, bool dtypes = true) {
  list.add({.name = name,
            .torch = torch,
            .inputs = {},
            .call = std::move(call),
            .backward = false,
            .random = random,
            .dtypes = dtypes,
            .shapes = shapes});
}

void add_constants(CaseList& list) {
  const Shapes vector = {td::Shape{4096}, td::Shape{1 << 18}, td::Shape{1 << 23}};
  const Shapes square = {td::Shape{64, 64}, td::Shape{512, 512}, td::Shape{2048, 2048}};
  add_source(list, "zeros", "torch.zeros(shape, dtype=dtype)",
             [](const Arguments& in) { return td::zeros(in.shape, {.dtype = in.dtype}); });
  add_source(list, "full", "torch.full(shape, 1.5, dtype=dtype)",
             [](const Arguments& in) { return td::full(in.shape, 1.5, {.dtype = in.dtype}); });
  add_source(
      list, "range", "torch.arange(shape[0], dtype=torch.int32)",
      [](const Arguments& in) { return td::range(in.shape[0]); }, vector, false, false);
  add_source(
      list, "linspace", "torch.linspace(0, 1, shape[0])",
      [](const Arguments& in) { return td::linspace(0, 1, in.shape[0]); }, vector, false, false);
  add_source(
      list, "eye", "torch.eye(shape[0], dtype=dtype)",
      [](const Arguments& in) { return td::eye(in.shape[0], -1, {.dtype = in.dtype}); }, square);
}

void add_random_numbers(CaseList& list) {
  const Shapes vector = {td::Shape{1000}, td::Shape{100'000}, td::Shape{1'000'000}};
  const auto source = [&](const char* name, const char* torch, Call call) {
    add_source(list, name, torch, std::move(call), kMatrix, true);
  };
  source("random_normal", "torch.empty(shape, dtype=dtype).normal_()", [](const Arguments& in) {
    return td::random::normal(in.shape, 0, 1, {.dtype = in.dtype});
  });
  source("truncated_normal",
         "torch.nn.init.trunc_normal_(torch.empty(shape, dtype=dtype), a=-2.0, b=2.0)",
         [](const Arguments& in) {
           return td::random::truncated_normal(in.shape, 0, 1, {.dtype = in.dtype});
         });
  source("random_uniform", "torch.empty(shape, dtype=dtype).uniform_()", [](const Arguments& in) {
    return td::random::uniform(in.shape, 0, 1, {.dtype = in.dtype});
  });
  source("random_bernoulli", "torch.empty(shape, dtype=dtype).bernoulli_(0.3)",
         [](const Arguments& in) {
           return td::random::bernoulli(in.shape, 0.3, {.dtype = in.dtype});
         });
  add_source(
      list, "random_uniform_int", "torch.randint(0, 1000, shape, dtype=torch.int32)",
      [](const Arguments& in) { return td::random::uniform_int(in.shape, 0, 1000); }, kMatrix, true,
      false);
  add_source(
      list, "random_permutation", "torch.randperm(shape[0])",
      [](const Arguments& in) { return td::random::permutation(in.shape[0]); }, vector, true,
      false);
}

}  // namespace

void add_math_cases(CaseList list) {
  add_arithmetic(list);
  add_functions(list);
  add_comparisons(list);
  add_products(list);
  add_linear_algebra(list);
  add_constants(list);
  add_random_numbers(list);
}

}  // namespace bench
