// The operations that scripts/bench compares with PyTorch's. Each case is a call of a public
// function and the same call as a PyTorch expression, at three sizes.
// tests/op/benchmark_operations_test.cc runs them all.
#pragma once

#include <tandem/tandem.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

namespace bench {

namespace td = tandem;

inline constexpr std::array<const char*, 3> kSizes = {"small", "middle", "large"};
using Shapes = std::array<td::Shape, kSizes.size()>;

enum class Values : std::int8_t {
  kSigned,    // mean 0, variance 1
  kPositive,  // [0.5, 1.5)
  kUnit,      // [0, 1)
  kNearOne,   // 1 +- 2^-8
  kClasses,   // int64, below `limits`
  kBool
};

// How PyTorch stores an input: as Tandem does, or with other axes first.
enum class Layout : std::int8_t {
  kPlain,
  kImage,      // [n, h, w, c] here; [n, c, h, w], channels last, there
  kKernel,     // [h, w, in, out] here
  kDepthwise,  // [h, w, channels, 1] here
  kLinear,     // [in, out] here, [out, in] there
  kHeads       // [batch, positions, heads, depth] here, heads first there
};

struct Input {
  Shapes shapes;
  Values values = Values::kSigned;
  Layout layout = Layout::kPlain;
  std::array<std::int64_t, kSizes.size()> limits = {};
  bool constant = false;  // has no gradient
  bool wide = false;      // float32 in all dtypes
};

struct Arguments {
  const std::vector<td::Tensor>& inputs;
  const td::Shape& shape;  // the case's
  td::DType dtype;

  const td::Tensor& operator[](std::size_t i) const { return inputs[i]; }
};
using Call = std::function<td::Tensor(const Arguments&)>;

struct OperationCase {
  std::string name;
  std::string torch;  // over a, b, c, ... (the inputs), shape and dtype
  std::vector<Input> inputs;
  Call call;
  bool backward = true;  // whether the backward pass is measured
  bool random = false;   // results cannot be compared
  bool dtypes = true;    // whether the dtype matters
  Shapes shapes = {};    // of a result without inputs
};

// Adds cases to a list.
class CaseList {
 public:
  explicit CaseList(std::vector<OperationCase>& cases) : cases_(cases) {}

  void add(OperationCase what) { cases_.push_back(std::move(what)); }
  void unary(const char* name, const char* torch, td::Tensor (*call)(const td::Tensor&),
             Values values = Values::kSigned, bool backward = true);
  void binary(const char* name, const char* torch,
              td::Tensor (*call)(const td::Tensor&, const td::Tensor&),
              Values values = Values::kSigned, bool backward = true);
  // A case with one matrix, of the sizes of element-wise operations.
  void matrix(const char* name, const char* torch, Call call, bool backward = true);

 private:
  std::vector<OperationCase>& cases_;
};

extern const Shapes kMatrix;  // of element-wise operations

void add_math_cases(CaseList list);
void add_reduction_cases(CaseList list);
void add_array_cases(CaseList list);
void add_nn_cases(CaseList list);

const std::vector<OperationCase>& operation_cases();

// The inputs of a case, from random_numbers.h.
std::vector<td::Tensor> make_inputs(const OperationCase& what, std::size_t size, td::DType dtype);
// Whether an input of the case has a gradient.
bool has_gradient(const Input& input);
// The inputs that have a gradient.
std::vector<td::Tensor> sources_of(const OperationCase& what,
                                   const std::vector<td::Tensor>& inputs);
// The gradient of the result.
td::Tensor make_slope(const td::Tensor& result);

}  // namespace bench
