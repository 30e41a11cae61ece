#include "cuda/cudnn/fake_graph.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>

#include "tandem/dtype.h"

namespace tandem::fake_cudnn {
namespace {

void require(bool truth, cudnnStatus_t otherwise = CUDNN_STATUS_BAD_PARAM) {
  if (!truth) throw Refused{otherwise};
}
constexpr auto kShapes = CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;

std::int64_t size_of(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_DOUBLE: return 8;
    case CUDNN_DATA_FLOAT:
    case CUDNN_DATA_INT32: return 4;
    case CUDNN_DATA_HALF:
    case CUDNN_DATA_BFLOAT16: return 2;
    case CUDNN_DATA_BOOLEAN: return 1;
    default: throw Refused{CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE};
  }
}

double load(cudnnDataType_t type, const void* memory, std::int64_t at) {
  switch (type) {
    case CUDNN_DATA_DOUBLE: return static_cast<const double*>(memory)[at];
    case CUDNN_DATA_FLOAT: return static_cast<const float*>(memory)[at];
    case CUDNN_DATA_HALF: return static_cast<const Half*>(memory)[at];
    case CUDNN_DATA_BFLOAT16: return static_cast<const BFloat16*>(memory)[at];
    default: throw Refused{CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE};
  }
}
void store(cudnnDataType_t type, void* memory, std::int64_t at, double value) {
  const auto single = static_cast<float>(value);
  switch (type) {
    case CUDNN_DATA_DOUBLE: static_cast<double*>(memory)[at] = value; return;
    case CUDNN_DATA_FLOAT: static_cast<float*>(memory)[at] = single; return;
    case CUDNN_DATA_HALF: static_cast<Half*>(memory)[at] = Half(single); return;
    case CUDNN_DATA_BFLOAT16: static_cast<BFloat16*>(memory)[at] = BFloat16(single); return;
    default: throw Refused{CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE};
  }
}
double rounded(cudnnDataType_t type, double value) {
  switch (type) {
    case CUDNN_DATA_FLOAT: return static_cast<float>(value);
    case CUDNN_DATA_HALF: return Half(static_cast<float>(value));
    case CUDNN_DATA_BFLOAT16: return BFloat16(static_cast<float>(value));
    default: return value;
  }
}

using Index = std::array<std::int64_t, 4>;

template <class Body>
void for_all(const std::vector<std::int64_t>& sizes, const Body& body) {
  Index at;
  for (at[0] = 0; at[0] < sizes[0]; ++at[0])
    for (at[1] = 0; at[1] < sizes[1]; ++at[1])
      for (at[2] = 0; at[2] < sizes[2]; ++at[2])
        for (at[3] = 0; at[3] < sizes[3]; ++at[3]) body(at);
}
std::size_t count(const Tensor& tensor) {
  std::size_t product = 1;
  for (const std::int64_t size : tensor.sizes) product *= static_cast<std::size_t>(size);
  return product;
}
std::size_t place(const Tensor& tensor, const Index& at) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < 4; ++i) sum = sum * tensor.sizes[i] + at[i];
  return static_cast<std::size_t>(sum);
}
std::int64_t offset(const Tensor& tensor, const Index& at) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < 4; ++i) sum += at[i] * tensor.strides[i];
  return sum;
}

// --- convolutions ---

class Convolution {
 public:
  Convolution(const Node& what, Tensor x, Tensor kernel, Tensor y)
      : x_(std::move(x)),
        kernel_(std::move(kernel)),
        y_(std::move(y)),
        pads_(what.all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS)),
        strides_(what.all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES)),
        dilations_(what.all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS)) {
    require(x_.sizes[0] == y_.sizes[0] && y_.sizes[1] == kernel_.sizes[0] &&
                x_.sizes[1] % kernel_.sizes[1] == 0,
            kShapes);
    // Some engines of cuDNN ignore the padding after the image.
    require(what.all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS) == pads_,
            CUDNN_STATUS_NOT_SUPPORTED);
    for (std::size_t i = 0; i < 2; ++i)
      require(y_.sizes[i + 2] ==
                  (x_.sizes[i + 2] + 2 * pads_[i] - dilations_[i] * (kernel_.sizes[i + 2] - 1) -
                   1) / strides_[i] +
                      1,
              kShapes);
  }

  Operation forward() const {
    return {{x_, kernel_}, y_, [c = *this](const auto& in) {
              Values y(count(c.y_));
              c.for_windows([&](const Index& x, const Index& kernel, const Index& to) {
                y[place(c.y_, to)] += (*in[0])[place(c.x_, x)] * (*in[1])[place(c.kernel_, kernel)];
              });
              return y;
            }};
  }
  Operation backward_input() const {
    return {{y_, kernel_}, x_, [c = *this](const auto& in) {
              Values x(count(c.x_));
              c.for_windows([&](const Index& to, const Index& kernel, const Index& y) {
                x[place(c.x_, to)] += (*in[0])[place(c.y_, y)] * (*in[1])[place(c.kernel_, kernel)];
              });
              return x;
            }};
  }
  Operation backward_kernel() const {
    return {{y_, x_}, kernel_, [c = *this](const auto& in) {
              Values kernel(count(c.kernel_));
              c.for_windows([&](const Index& x, const Index& to, const Index& y) {
                kernel[place(c.kernel_, to)] += (*in[0])[place(c.y_, y)] * (*in[1])[place(c.x_, x)];
              });
              return kernel;
            }};
  }

 private:
  // Calls body(index in x, index in the kernel, index in y) for all index triples of the
  // convolution.
  template <class Body>
  void for_windows(const Body& body) const {
    const std::int64_t in = kernel_.sizes[1], out = y_.sizes[1] / (x_.sizes[1] / in);
    for_all(y_.sizes, [&](const Index& y) {
      for (std::int64_t ky = 0; ky < kernel_.sizes[2]; ++ky)
        for (std::int64_t kx = 0; kx < kernel_.sizes[3]; ++kx) {
          const std::int64_t row = y[2] * strides_[0] - pads_[0] + ky * dilations_[0];
          const std::int64_t column = y[3] * strides_[1] - pads_[1] + kx * dilations_[1];
          if (row < 0 || row >= x_.sizes[2] || column < 0 || column >= x_.sizes[3]) continue;
          for (std::int64_t i = 0; i < in; ++i)
            body(Index{y[0], y[1] / out * in + i, row, column}, Index{y[1], i, ky, kx}, y);
        }
    });
  }

  Tensor x_, kernel_, y_;
  std::vector<std::int64_t> pads_, strides_, dilations_;
};

Operation convolution(const Node& node) {
  const auto made = [&](auto what, auto x, auto kernel, auto y) {
    return Convolution(node.node(what), Tensor(node.node(x)), Tensor(node.node(kernel)),
                       Tensor(node.node(y)));
  };
  switch (node.type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
      return made(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y)
          .forward();
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
      return made(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY)
          .backward_input();
    default:
      return made(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY)
          .backward_kernel();
  }
}

// --- other operations ---

// Arguments: the operands' elements and the element's index.
using Function = std::function<double(const std::array<double, 3>&, const Index&)>;
struct Pointwise {
  std::size_t operands;
  Function f;
};

Pointwise function_of(const Node& what, const std::vector<Tensor>& operands, const Tensor& y) {
  using In = std::array<double, 3>;
  const auto is = [](const Tensor& tensor, cudnnDataType_t type) { require(tensor.type == type); };
  switch (what.one<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE)) {
    case CUDNN_POINTWISE_ADD: return {2, [](const In& in, auto&) { return in[0] + in[1]; }};
    case CUDNN_POINTWISE_SUB: return {2, [](const In& in, auto&) { return in[0] - in[1]; }};
    case CUDNN_POINTWISE_MUL: return {2, [](const In& in, auto&) { return in[0] * in[1]; }};
    case CUDNN_POINTWISE_DIV: return {2, [](const In& in, auto&) { return in[0] / in[1]; }};
    case CUDNN_POINTWISE_EXP: return {1, [](const In& in, auto&) { return std::exp(in[0]); }};
    case CUDNN_POINTWISE_LOG: return {1, [](const In& in, auto&) { return std::log(in[0]); }};
    case CUDNN_POINTWISE_IDENTITY: return {1, [](const In& in, auto&) { return in[0]; }};
    case CUDNN_POINTWISE_RELU_FWD: {
      const double most = what.one_or(CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP,
                                      std::numeric_limits<double>::infinity());
      return {1, [most](const In& in, auto&) {
                return in[0] < 0 ? 0 : in[0] > most ? most : in[0];
              }};
    }
    case CUDNN_POINTWISE_GEN_INDEX: {
      const auto axis = what.one<std::int64_t>(CUDNN_ATTR_POINTWISE_AXIS);
      require(axis >= 0 && axis < 4);
      is(y, CUDNN_DATA_INT32);
      return {1, [axis](const In&, const Index& at) {
                return static_cast<double>(at[static_cast<std::size_t>(axis)]);
              }};
    }
    case CUDNN_POINTWISE_CMP_GE:
      is(y, CUDNN_DATA_BOOLEAN);
      return {2, [](const In& in, auto&) { return in[0] >= in[1] ? 1.0 : 0.0; }};
    case CUDNN_POINTWISE_BINARY_SELECT:
      require(operands.size() == 3);
      is(operands[2], CUDNN_DATA_BOOLEAN);
      return {3, [](const In& in, auto&) { return in[2] != 0.0 ? in[0] : in[1]; }};
    default: throw Refused{CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN};
  }
}

Operation pointwise(const Node& node) {
  std::vector<Tensor> operands;
  for (const auto name :
       {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
        CUDNN_ATTR_OPERATION_POINTWISE_TDESC})
    if (node.has(name)) operands.emplace_back(node.node(name));
  const Tensor y(node.node(CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
  const Pointwise function =
      function_of(node.node(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR), operands, y);
  require(operands.size() == function.operands);
  for (const Tensor& each : operands)
    for (std::size_t i = 0; i < 4; ++i)
      require(each.sizes[i] == 1 || each.sizes[i] == y.sizes[i], kShapes);
  return {operands, y, [operands, y, f = function.f](const auto& in) {
            Values result(count(y));
            for_all(y.sizes, [&](const Index& at) {
              std::array<double, 3> elements{};
              for (std::size_t i = 0; i < operands.size(); ++i) {
                Index from = at;
                for (std::size_t axis = 0; axis < 4; ++axis)
                  if (operands[i].sizes[axis] == 1) from[axis] = 0;
                elements[i] = (*in[i])[place(operands[i], from)];
              }
              result[place(y, at)] = f(elements, at);
            });
            return result;
          }};
}

// Maps an index of an axis of size `of` to an axis of `size`; neighbours have one element.
std::int64_t shared(std::int64_t index, std::int64_t of, std::int64_t size) {
  return index / (of / size);
}

Operation matmul(const Node& node) {
  const Tensor a(node.node(CUDNN_ATTR_OPERATION_MATMUL_ADESC)),
      b(node.node(CUDNN_ATTR_OPERATION_MATMUL_BDESC)),
      c(node.node(CUDNN_ATTR_OPERATION_MATMUL_CDESC));
  for (const std::size_t i : {0u, 1u})
    require(c.sizes[i] % a.sizes[i] == 0 && c.sizes[i] % b.sizes[i] == 0, kShapes);
  require(a.sizes[2] == c.sizes[2] && b.sizes[3] == c.sizes[3] && a.sizes[3] == b.sizes[2],
          kShapes);
  return {{a, b}, c, [a, b, c](const auto& in) {
            Values result(count(c));
            for_all(c.sizes, [&](const Index& at) {
              const auto batch = [&](const Tensor& of, std::size_t axis) {
                return shared(at[axis], c.sizes[axis], of.sizes[axis]);
              };
              double sum = 0.0;
              for (std::int64_t k = 0; k < a.sizes[3]; ++k)
                sum += (*in[0])[place(a, {batch(a, 0), batch(a, 1), at[2], k})] *
                       (*in[1])[place(b, {batch(b, 0), batch(b, 1), k, at[3]})];
              result[place(c, at)] = sum;
            });
            return result;
          }};
}

Operation reduction(const Node& node) {
  const Tensor x(node.node(CUDNN_ATTR_OPERATION_REDUCTION_XDESC)),
      y(node.node(CUDNN_ATTR_OPERATION_REDUCTION_YDESC));
  for (std::size_t i = 0; i < 4; ++i) require(x.sizes[i] % y.sizes[i] == 0, kShapes);
  const auto what = node.node(CUDNN_ATTR_OPERATION_REDUCTION_DESC)
                        .one<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR);
  const bool largest = what == CUDNN_REDUCE_TENSOR_MAX;
  require(largest || what == CUDNN_REDUCE_TENSOR_ADD, CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN);
  return {{x}, y, [x, y, largest](const auto& in) {
            Values result(count(y), largest ? -std::numeric_limits<double>::infinity() : 0.0);
            for_all(x.sizes, [&](const Index& at) {
              Index to;
              for (std::size_t i = 0; i < 4; ++i) to[i] = shared(at[i], x.sizes[i], y.sizes[i]);
              double& sum = result[place(y, to)];
              const double each = (*in[0])[place(x, at)];
              sum = largest ? std::fmax(sum, each) : sum + each;
            });
            return result;
          }};
}

// The same memory with other strides.
Operation reshape(const Node& node) {
  const Tensor x(node.node(CUDNN_ATTR_OPERATION_RESHAPE_XDESC)),
      y(node.node(CUDNN_ATTR_OPERATION_RESHAPE_YDESC));
  std::map<std::int64_t, std::size_t> places;  // index in x, by address
  for_all(x.sizes, [&](const Index& at) { places[offset(x, at)] = place(x, at); });
  std::vector<std::size_t> from(count(y));
  for_all(y.sizes, [&](const Index& at) {
    const auto found = places.find(offset(y, at));
    require(found != places.end(), kShapes);
    from[place(y, at)] = found->second;
  });
  require(count(x) == count(y) && places.size() == count(x), kShapes);
  return {{x}, y, [from](const auto& in) {
            Values result(from.size());
            for (std::size_t i = 0; i < from.size(); ++i) result[i] = (*in[0])[from[i]];
            return result;
          }};
}

Operation operation_of(const Node& node) {
  switch (node.type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR: return convolution(node);
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: return pointwise(node);
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: return matmul(node);
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR: return reduction(node);
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR: return reshape(node);
    default: throw Refused{CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN};
  }
}

Values loaded(const Tensor& tensor, const void* memory) {
  Values values(count(tensor));
  for_all(tensor.sizes, [&](const Index& at) {
    values[place(tensor, at)] = load(tensor.type, memory, offset(tensor, at));
  });
  return values;
}
void stored(const Tensor& tensor, const Values& values, void* memory) {
  for_all(tensor.sizes, [&](const Index& at) {
    store(tensor.type, memory, offset(tensor, at), values[place(tensor, at)]);
  });
}

}  // namespace

Tensor::Tensor(const Node& node)
    : id(node.one<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID)),
      alignment(node.one<std::int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT)),
      type(node.one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE)),
      sizes(node.all<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS)),
      strides(node.all<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES)),
      is_virtual(node.one_or(CUDNN_ATTR_TENSOR_IS_VIRTUAL, false)),
      is_by_value(node.one_or(CUDNN_ATTR_TENSOR_IS_BY_VALUE, false)) {
  require(sizes.size() == 4 && strides.size() == 4, CUDNN_STATUS_NOT_SUPPORTED_SHAPE);
  for (std::size_t i = 0; i < 4; ++i) require(sizes[i] > 0 && strides[i] > 0);
  require(alignment % size_of(type) == 0);
  require(!(is_virtual && is_by_value));
  if (is_by_value) require(count(*this) == 1);
}

Graph::Graph(const Node& operation_graph) {
  std::map<std::int64_t, bool> is_made;
  for (void* each : operation_graph.all<void*>(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    Operation& operation = operations_.emplace_back(operation_of(*static_cast<const Node*>(each)));
    for (const Tensor& input : operation.inputs) {
      require(tensors_.try_emplace(input.id, input).first->second == input);
      require(!input.is_virtual || is_made[input.id]);
    }
    const Tensor& output = operation.output;
    require(tensors_.try_emplace(output.id, output).second,
            CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES);
    require(!output.is_by_value);
    is_made[output.id] = true;
  }
}

std::function<void()> Graph::task(const std::map<std::int64_t, void*>& addresses) const {
  std::map<std::int64_t, Values> numbers;
  for (const auto& [id, tensor] : tensors_) {
    const auto found = addresses.find(id);
    require((found == addresses.end()) == tensor.is_virtual);
    if (tensor.is_virtual) continue;
    require(found->second != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
    if (tensor.is_by_value)
      numbers[id] = loaded(tensor, found->second);
    else
      require(reinterpret_cast<std::uintptr_t>(found->second) %
                      static_cast<std::uintptr_t>(tensor.alignment) ==
                  0,
              CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
  }
  for (const auto& [id, address] : addresses) require(tensors_.contains(id));
  return [operations = operations_, numbers, addresses] {
    std::map<std::int64_t, Values> known = numbers;
    for (const Operation& each : operations) {
      std::vector<const Values*> inputs;
      for (const Tensor& input : each.inputs) {
        auto at = known.find(input.id);
        if (at == known.end())
          at = known.emplace(input.id, loaded(input, addresses.at(input.id))).first;
        inputs.push_back(&at->second);
      }
      Values made = each.compute(inputs);
      for (double& value : made) value = rounded(each.output.type, value);
      if (!each.output.is_virtual) stored(each.output, made, addresses.at(each.output.id));
      known[each.output.id] = std::move(made);
    }
  };
}

}  // namespace tandem::fake_cudnn
