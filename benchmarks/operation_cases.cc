#include "operation_cases.h"

#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "random_numbers.h"

namespace bench {
namespace {

constexpr std::uint32_t kSlopeStream = 100;

td::Tensor random_values(std::uint32_t stream, const td::Shape& shape, Values values,
                         std::int64_t limit) {
  switch (values) {
    case Values::kSigned: return random_uniform(stream, shape, std::sqrt(12.0));
    case Values::kPositive: return random_uniform(stream, shape, 1.0) + 1.0;
    case Values::kUnit: return random_uniform(stream, shape, 1.0) + 0.5;
    case Values::kNearOne: return random_uniform(stream, shape, 0x1p-7) + 1.0;
    case Values::kClasses: return random_classes(stream, shape, limit);
    case Values::kBool: return td::less(random_uniform(stream, shape, 1.0), 0.0);
  }
  return {};
}

bool is_floating(Values values) { return values != Values::kClasses && values != Values::kBool; }

}  // namespace

const Shapes kMatrix = {td::Shape{64, 64}, td::Shape{512, 512}, td::Shape{4096, 2048}};

void CaseList::unary(const char* name, const char* torch, td::Tensor (*call)(const td::Tensor&),
                     Values values, bool backward) {
  add({.name = name,
       .torch = torch,
       .inputs = {{kMatrix, values}},
       .call = [call](const Arguments& in) { return call(in[0]); },
       .backward = backward,
       .dtypes = is_floating(values)});
}

void CaseList::binary(const char* name, const char* torch,
                      td::Tensor (*call)(const td::Tensor&, const td::Tensor&), Values values,
                      bool backward) {
  add({.name = name,
       .torch = torch,
       .inputs = {{kMatrix, values}, {kMatrix, values}},
       .call = [call](const Arguments& in) { return call(in[0], in[1]); },
       .backward = backward,
       .dtypes = is_floating(values)});
}

void CaseList::matrix(const char* name, const char* torch, Call call, bool backward) {
  add({.name = name,
       .torch = torch,
       .inputs = {{kMatrix}},
       .call = std::move(call),
       .backward = backward});
}

const std::vector<OperationCase>& operation_cases() {
  static const std::vector<OperationCase> cases = [] {
    std::vector<OperationCase> all;
    add_math_cases(CaseList(all));
    add_reduction_cases(CaseList(all));
    add_array_cases(CaseList(all));
    add_nn_cases(CaseList(all));
    return all;
  }();
  return cases;
}

std::vector<td::Tensor> make_inputs(const OperationCase& what, std::size_t size, td::DType dtype) {
  std::vector<td::Tensor> inputs;
  for (std::size_t i = 0; i < what.inputs.size(); ++i) {
    const Input& input = what.inputs[i];
    const td::Tensor values = random_values(static_cast<std::uint32_t>(i), input.shapes[size],
                                            input.values, input.limits[size]);
    const bool convert = is_floating(input.values) && !input.wide;
    inputs.push_back(convert ? td::cast(values, dtype) : values);
  }
  return inputs;
}

bool has_gradient(const Input& input) { return is_floating(input.values) && !input.constant; }

std::vector<td::Tensor> sources_of(const OperationCase& what,
                                   const std::vector<td::Tensor>& inputs) {
  std::vector<td::Tensor> sources;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (has_gradient(what.inputs[i])) sources.push_back(inputs[i]);
  return sources;
}

td::Tensor make_slope(const td::Tensor& result) {
  return td::cast(random_uniform(kSlopeStream, result.shape(), std::sqrt(12.0)), result.dtype());
}

}  // namespace bench
