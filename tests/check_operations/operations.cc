#include "operations.h"

#include <cmath>
#include <concepts>
#include <utility>

namespace check_operations {

double Call::number(const char* name) const {
  const Json& value = attributes.at(name);
  return value.is_string() ? std::stod(value.get<std::string>()) : value.get<double>();
}

td::Dims Call::dims(const char* name) const {
  td::Dims result;
  for (const Json& item : attributes.at(name)) result.push_back(item.get<std::int64_t>());
  return result;
}

td::nn::Pair Call::pair(const char* name) const {
  const td::Dims both = dims(name);
  return {both[0], both[1]};
}

td::nn::WindowPadding padding_of(const Call& c) {
  return c.has("pad") ? td::nn::WindowPadding(c.pair("pad")) : c.text("padding");
}

td::ReduceOptions reduce_options(const Call& c) {
  td::ReduceOptions options{.keepdims = c.flag("keepdims")};
  if (c.has("axis")) options.axis = td::Axes(std::optional<td::Dims>(c.dims("axis")));
  return options;
}

td::AxisIndex index(const Json& item) {
  if (item.is_number()) return item.get<std::int64_t>();
  td::Slice slice;
  if (!item[0].is_null()) slice.start = item[0].get<std::int64_t>();
  if (!item[1].is_null()) slice.stop = item[1].get<std::int64_t>();
  if (!item[2].is_null()) slice.step = item[2].get<std::int64_t>();
  return slice;
}

namespace {

using td::Tensor;
using Table = std::map<std::string, Operation>;
using Paddings = std::vector<std::pair<std::int64_t, std::int64_t>>;

Paddings paddings(const Call& c) {
  Paddings result;
  for (const Json& pair : c.attributes.at("pad"))
    result.emplace_back(pair[0].get<std::int64_t>(), pair[1].get<std::int64_t>());
  return result;
}

// `f` of the call, which returns a tensor or several.
template <class F>
Operation call(F f) {
  return [f](const Call& c) -> Tensors {
    if constexpr (std::same_as<std::invoke_result_t<F, const Call&>, Tensor>)
      return {f(c)};
    else
      return f(c);
  };
}

// `f` of two tensors, or of one and the number "b" (or "a", on the left). Where there is no
// overload for the number, it is a tensor.
template <class F>
Operation binary(F f) {
  return call([f](const Call& c) {
    if (c.x.size() == 2) return f(c.x[0], c.x[1]);
    const double number = c.number(c.has("a") ? "a" : "b");
    const auto tensor = [&] {
      return td::full(td::Shape::scalar(), number, {.dtype = c.x[0].dtype()});
    };
    if constexpr (std::invocable<F, double, Tensor>)
      if (c.has("a")) return f(number, c.x[0]);
    if (c.has("a")) return f(tensor(), c.x[0]);
    if constexpr (std::invocable<F, Tensor, double>) return f(c.x[0], number);
    return f(c.x[0], tensor());
  });
}

// As PyTorch's losses end: weighted, and reduced over all elements.
Tensor reduced(const Tensor& loss, const Call& c) {
  const Tensor weighted = c.x.size() > 2 ? loss * c.x[2] : loss;
  const std::string how = c.text("reduction");
  return how == "sum"    ? td::reduce_sum(weighted)
         : how == "mean" ? td::reduce_mean(weighted)
                         : weighted;
}

// A loss function, which reduces the last axis, of single elements.
template <class F>
Operation loss(F f) {
  return call([f](const Call& c) {
    return reduced(f(td::expand_dims(c.x[0], -1), td::expand_dims(c.x[1], -1), c), c);
  });
}

Tensor indexed(const Call& c) {
  const Json& i = c.attributes.at("index");
  const Tensor& x = c.x[0];
  switch (i.size()) {
    case 1: return x(index(i[0]));
    case 2: return x(index(i[0]), index(i[1]));
    case 3: return x(index(i[0]), index(i[1]), index(i[2]));
    default: return x(index(i[0]), index(i[1]), index(i[2]), index(i[3]));
  }
}

Tensor optional(const Call& c, std::size_t i) { return i < c.x.size() ? c.x[i] : Tensor(); }

#define UNARY(name)                                         \
  {                                                         \
#name, call([](const Call& c) { return name(c.x[0]); }) \
  }
#define BINARY(name)                                                                               \
  {                                                                                                \
#name, binary([](const auto& a, const auto& b) -> decltype(name(a, b)) { return name(a, b); }) \
  }
#define REDUCTION(name)                                                        \
  {                                                                            \
#name, call([](const Call& c) { return name(c.x[0], reduce_options(c)); }) \
  }

Table element_wise() {
  using namespace td;
  using namespace td::nn;
  return {
      UNARY(abs),
      UNARY(ceil),
      UNARY(cos),
      UNARY(erf),
      UNARY(exp),
      UNARY(expm1),
      UNARY(floor),
      UNARY(identity),
      UNARY(is_finite),
      UNARY(is_nan),
      UNARY(log),
      UNARY(log1p),
      UNARY(logical_not),
      UNARY(negative),
      UNARY(ones_like),
      UNARY(reciprocal),
      UNARY(relu),
      UNARY(relu6),
      UNARY(round),
      UNARY(rsqrt),
      UNARY(selu),
      UNARY(sigmoid),
      UNARY(sign),
      UNARY(sin),
      UNARY(softplus),
      UNARY(sqrt),
      UNARY(square),
      UNARY(swish),
      UNARY(tanh),
      UNARY(zeros_like),
      BINARY(add),
      BINARY(divide),
      BINARY(equal),
      BINARY(floor_divide),
      BINARY(floor_mod),
      BINARY(greater),
      BINARY(greater_equal),
      BINARY(less),
      BINARY(less_equal),
      BINARY(logical_and),
      BINARY(logical_or),
      BINARY(maximum),
      BINARY(minimum),
      BINARY(multiply),
      BINARY(not_equal),
      BINARY(pow),
      BINARY(squared_difference),
      BINARY(subtract),
      {"add_n", call([](const Call& c) { return add_n(c.x); })},
      {"cast", call([](const Call& c) { return cast(c.x[0], c.dtype().dtype); })},
      {"clip_by_value", call([](const Call& c) {
         return clip_by_value(c.x[0], c.number("low"), c.number("high"));
       })},
      {"elu", call([](const Call& c) { return elu(c.x[0], c.number("alpha")); })},
      {"gelu", call([](const Call& c) { return gelu(c.x[0], c.flag("approximate")); })},
      {"leaky_relu", call([](const Call& c) { return leaky_relu(c.x[0], c.number("alpha")); })},
      {"where", call([](const Call& c) { return where(c.x[0], c.x[1], c.x[2]); })},
  };
}

Table reductions() {
  using namespace td;
  const auto position = [](auto f) {
    return call([f](const Call& c) {
      return c.has("axis") ? f(c.x[0], c.integer("axis")) : f(reshape(c.x[0], {-1}), 0);
    });
  };
  return {
      REDUCTION(norm),
      REDUCTION(reduce_all),
      REDUCTION(reduce_any),
      REDUCTION(reduce_logsumexp),
      REDUCTION(reduce_max),
      REDUCTION(reduce_mean),
      REDUCTION(reduce_min),
      REDUCTION(reduce_prod),
      REDUCTION(reduce_std),
      REDUCTION(reduce_sum),
      REDUCTION(reduce_variance),
      {"argmax", position([](const Tensor& x, std::int64_t axis) { return argmax(x, axis); })},
      {"argmin", position([](const Tensor& x, std::int64_t axis) { return argmin(x, axis); })},
      {"cumsum", call([](const Call& c) { return cumsum(c.x[0], c.integer("axis")); })},
  };
}

Table arrays() {
  using namespace td;
  return {
      {"reshape", call([](const Call& c) { return reshape(c.x[0], c.shape()); })},
      {"expand_dims", call([](const Call& c) { return expand_dims(c.x[0], c.integer("axis")); })},
      {"squeeze", call([](const Call& c) { return squeeze(c.x[0], c.dims("axes")); })},
      {"transpose", call([](const Call& c) { return transpose(c.x[0], c.dims("permutation")); })},
      {"broadcast_to", call([](const Call& c) { return broadcast_to(c.x[0], c.shape()); })},
      {"concat", call([](const Call& c) { return concat(c.x, c.integer("axis")); })},
      {"stack", call([](const Call& c) { return stack(c.x, c.integer("axis")); })},
      {"split", call([](const Call& c) {
         if (c.has("parts")) return split(c.x[0], c.integer("parts"), {.axis = c.integer("axis")});
         return split(c.x[0], c.attributes.at("sizes").get<std::vector<std::int64_t>>(),
                      c.integer("axis"));
       })},
      {"unstack", call([](const Call& c) { return unstack(c.x[0], c.integer("axis")); })},
      {"slice", call([](const Call& c) { return slice(c.x[0], c.dims("begin"), c.dims("size")); })},
      {"index", call(indexed)},
      {"pad", call([](const Call& c) { return pad(c.x[0], paddings(c), c.number("value")); })},
      {"tile", call([](const Call& c) { return tile(c.x[0], c.dims("multiples")); })},
      {"reverse", call([](const Call& c) { return reverse(c.x[0], c.dims("axes")); })},
      {"gather", call([](const Call& c) { return gather(c.x[0], c.x[1], c.integer("axis")); })},
      {"one_hot",
       call([](const Call& c) { return one_hot(c.x[0], c.integer("depth"), {.dtype = int64}); })},
      {"zeros", call([](const Call& c) { return zeros(c.shape(), c.dtype()); })},
      {"ones", call([](const Call& c) { return ones(c.shape(), c.dtype()); })},
      {"full", call([](const Call& c) { return full(c.shape(), c.number("value"), c.dtype()); })},
      {"range", call([](const Call& c) {
         return range(c.number("start"), c.number("stop"), c.number("step"), c.dtype());
       })},
      {"linspace", call([](const Call& c) {
         return linspace(c.number("start"), c.number("stop"), c.integer("count"), c.dtype());
       })},
      {"eye", call([](const Call& c) {
         return c.has("columns") ? eye(c.integer("rows"), c.integer("columns"), c.dtype())
                                 : eye(c.integer("rows"), -1, c.dtype());
       })},
  };
}

Table networks() {
  using namespace td;
  using namespace td::nn;
  return {
      {"matmul", call([](const Call& c) { return matmul(c.x[0], c.x[1]); })},
      {"dense", call([](const Call& c) { return dense(c.x[0], c.x[1], optional(c, 2)); })},
      {"softmax", call([](const Call& c) { return softmax(c.x[0], c.integer("axis")); })},
      {"log_softmax", call([](const Call& c) { return log_softmax(c.x[0], c.integer("axis")); })},
      {"layer_norm",
       call([](const Call& c) { return layer_norm(c.x[0], c.x[1], c.x[2], c.number("epsilon")); })},
      {"batch_norm_training", call([](const Call& c) {
         return batch_norm_training(c.x[0], c.x[1], c.x[2], c.number("epsilon")).y;
       })},
      {"batch_norm_inference", call([](const Call& c) {
         return batch_norm_inference(c.x[0], c.x[1], c.x[2], c.x[3], c.x[4], c.number("epsilon"));
       })},
      {"conv2d", call([](const Call& c) {
         return conv2d(c.x[0], c.x[1], optional(c, 2),
                       {.strides = c.pair("strides"),
                        .padding = padding_of(c),
                        .dilations = c.pair("dilations"),
                        .groups = c.integer("groups")});
       })},
      {"embedding_lookup", call([](const Call& c) { return embedding_lookup(c.x[0], c.x[1]); })},
      {"scaled_dot_product_attention", call([](const Call& c) {
         AttentionOptions options{.mask = optional(c, 3), .causal = c.flag("causal")};
         if (c.has("scale")) options.scale = c.number("scale");
         return scaled_dot_product_attention(c.x[0], c.x[1], c.x[2], options);
       })},
      {"sparse_softmax_cross_entropy", call([](const Call& c) {
         return reduced(sparse_softmax_cross_entropy(c.x[0], c.x[1]), c);
       })},
      {"softmax_cross_entropy",
       call([](const Call& c) { return reduced(softmax_cross_entropy(c.x[0], c.x[1]), c); })},
      {"sigmoid_cross_entropy",
       call([](const Call& c) { return reduced(sigmoid_cross_entropy(c.x[0], c.x[1]), c); })},
      {"mse", loss([](const auto& y, const auto& p, const Call&) { return losses::mse(y, p); })},
      {"mae", loss([](const auto& y, const auto& p, const Call&) { return losses::mae(y, p); })},
      {"huber", loss([](const auto& y, const auto& p, const Call& c) {
         return losses::huber(y, p, c.number("delta"));
       })},
      {"binary_crossentropy", loss([](const auto& y, const auto& p, const Call&) {
         return losses::binary_crossentropy(y, p);
       })},
      {"kl_divergence", loss([](const auto& y, const auto& p, const Call& c) {
         return losses::kl_divergence(c.flag("log_target") ? td::exp(y) : y, td::exp(p));
       })},
  };
}

}  // namespace

const Table& operations() {
  static const Table all = [] {
    Table joined = element_wise();
    for (Table part : {reductions(), arrays(), networks(), layers(), torch_functions(),
                       array_functions(), linear_algebra()})
      joined.merge(part);
    return joined;
  }();
  return all;
}

}  // namespace check_operations
