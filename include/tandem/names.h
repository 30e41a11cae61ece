/// @file
/// Second names: what PyTorch, NumPy, TensorFlow, Keras and Horovod call things that have another
/// name in Tandem and are exactly the same. One line each; nothing inside Tandem uses them. The
/// tables of docs/names.md are made from this file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "tandem/amp.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tandem/autograd.h"
#include "tandem/callbacks.h"
#include "tandem/checkpoint.h"
#include "tandem/cluster.h"
#include "tandem/comm.h"
#include "tandem/config.h"
#include "tandem/creation.h"
#include "tandem/data.h"
#include "tandem/data_loader.h"
#include "tandem/data_parallel.h"
#include "tandem/datasets.h"
#include "tandem/ddp.h"
#include "tandem/device.h"
#include "tandem/distribute.h"
#include "tandem/function.h"
#include "tandem/functional.h"
#include "tandem/graph.h"
#include "tandem/hvd.h"
#include "tandem/hvd_callbacks.h"
#include "tandem/image_modules.h"
#include "tandem/initializers.h"
#include "tandem/layers.h"
#include "tandem/linalg.h"
#include "tandem/logging.h"
#include "tandem/losses.h"
#include "tandem/lr_scheduler.h"
#include "tandem/math.h"
#include "tandem/metrics.h"
#include "tandem/model.h"
#include "tandem/nn.h"
#include "tandem/optim.h"
#include "tandem/optimizers.h"
#include "tandem/parallel.h"
#include "tandem/parameter_server.h"
#include "tandem/partitioners.h"
#include "tandem/random.h"
#include "tandem/scatter.h"
#include "tandem/utils.h"
#include "tandem/variable.h"

// One line each.
// clang-format off

// --- tensors ---

namespace tandem {

// PyTorch: dtypes
inline constexpr DType kFloat = float32;    ///< as float32
inline constexpr DType kFloat32 = float32;  ///< as float32
inline constexpr DType kDouble = float64;   ///< as float64
inline constexpr DType kFloat64 = float64;  ///< as float64
inline constexpr DType kHalf = float16;     ///< as float16
inline constexpr DType kFloat16 = float16;  ///< as float16
inline constexpr DType kBFloat16 = bfloat16;  ///< as bfloat16
inline constexpr DType kInt = int32;        ///< as int32
inline constexpr DType kInt32 = int32;      ///< as int32
inline constexpr DType kLong = int64;       ///< as int64
inline constexpr DType kInt64 = int64;      ///< as int64
inline constexpr DType kByte = uint8;       ///< as uint8
inline constexpr DType kUInt8 = uint8;      ///< as uint8
inline constexpr DType kBool = bool_;       ///< as bool_
inline constexpr DType kChar = int8;        ///< as int8
inline constexpr DType kInt8 = int8;        ///< as int8
inline constexpr DType kShort = int16;      ///< as int16
inline constexpr DType kInt16 = int16;      ///< as int16
inline constexpr DType kUInt16 = uint16;    ///< as uint16
inline constexpr DType kUInt32 = uint32;    ///< as uint32
inline constexpr DType kUInt64 = uint64;    ///< as uint64
inline constexpr DType kFloat8_e4m3fn = float8_e4m3fn;  ///< as float8_e4m3fn
inline constexpr DType kFloat8_e5m2 = float8_e5m2;      ///< as float8_e5m2
inline constexpr std::nullopt_t None = std::nullopt;  ///< in a Slice: the end of the axis
using std::nullopt;   ///< as std::nullopt
using std::optional;  ///< as std::optional

// PyTorch: devices
inline constexpr DeviceType kCPU = DeviceType::kCpu;   ///< as DeviceType::kCpu
inline constexpr DeviceType kCUDA = DeviceType::kGpu;  ///< as DeviceType::kGpu

// PyTorch, NumPy: creation
[[nodiscard]] inline Tensor randn(const Shape& shape, const CreationOptions& options = {}) { return detail::with_options(random::normal(shape, {.dtype = options.dtype, .name = options.name}), options); }  ///< as random::normal()
[[nodiscard]] inline Tensor rand(const Shape& shape, const CreationOptions& options = {}) { return detail::with_options(random::uniform(shape, {.dtype = options.dtype, .name = options.name}), options); }  ///< as random::uniform()
[[nodiscard]] inline Tensor randn(const Shape& shape, DType dtype) { return random::normal(shape, {.dtype = dtype}); }  ///< as random::normal()
[[nodiscard]] inline Tensor rand(const Shape& shape, DType dtype) { return random::uniform(shape, {.dtype = dtype}); }  ///< as random::uniform()
[[nodiscard]] inline Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape) { return random::uniform_int(shape, low, high, {.dtype = int64}); }  ///< as random::uniform_int() of int64
[[nodiscard]] inline Tensor randint(std::int64_t high, const Shape& shape) { return randint(0, high, shape); }  ///< the same from 0
[[nodiscard]] inline Tensor randperm(std::int64_t count) { return random::permutation(count); }  ///< as random::permutation()
[[nodiscard]] inline Tensor randn_like(const Tensor& x) { return random::normal(x.shape(), {.dtype = x.dtype()}); }  ///< as random::normal()
[[nodiscard]] inline Tensor rand_like(const Tensor& x) { return random::uniform(x.shape(), {.dtype = x.dtype()}); }  ///< as random::uniform()
[[nodiscard]] inline Tensor full_like(const Tensor& x, double value) { return full(x.shape(), value, x.dtype()); }  ///< as full()
[[nodiscard]] inline Tensor empty(const Shape& shape, const CreationOptions& options = {}) { return zeros(shape, options); }  ///< as zeros()
[[nodiscard]] inline Tensor empty_like(const Tensor& x) { return zeros_like(x); }  ///< as zeros_like()
[[nodiscard]] inline Tensor bernoulli(const Tensor& probabilities) { return random::bernoulli(probabilities); }  ///< as random::bernoulli()
[[nodiscard]] inline Tensor multinomial(const Tensor& probabilities, std::int64_t count, bool replacement = false) { return random::multinomial(probabilities, count, replacement); }  ///< as random::multinomial()
[[nodiscard]] inline Tensor normal(double mean, double std, const Shape& shape) { return random::normal(shape, mean, std); }  ///< as random::normal()
[[nodiscard]] inline TensorOptions dtype(DType dtype) { return TensorOptions().dtype(dtype); }  ///< as TensorOptions::dtype()
[[nodiscard]] inline TensorOptions requires_grad(bool required = true) { return TensorOptions().requires_grad(required); }  ///< as TensorOptions::requires_grad()
[[nodiscard]] inline Tensor fill(const Shape& shape, double value) { return full(shape, value); }  ///< as full()
inline void manual_seed(std::uint64_t seed) { random::set_seed(seed); }  ///< as random::set_seed()
using random::set_seed;  ///< as random::set_seed()

// PyTorch: arrays
[[nodiscard]] inline Tensor cat(TensorList tensors, std::int64_t axis = 0) { return concat(tensors, axis); }  ///< as concat()
[[nodiscard]] inline Tensor concatenate(TensorList tensors, std::int64_t axis = 0) { return concat(tensors, axis); }  ///< as concat()
[[nodiscard]] inline Tensor cat(TensorList tensors, const AxisOptions& options) { return concat(tensors, options); }  ///< as concat()
[[nodiscard]] inline Tensor concatenate(TensorList tensors, const AxisOptions& options) { return concat(tensors, options); }  ///< as concat()
[[nodiscard]] inline Tensor unsqueeze(const Tensor& x, std::int64_t axis) { return expand_dims(x, axis); }  ///< as expand_dims()
[[nodiscard]] inline Tensor permute(const Tensor& x, const Dims& axes) { return transpose(x, axes); }  ///< as transpose()
[[nodiscard]] inline Tensor transpose(const Tensor& x, std::int64_t axis, std::int64_t other) { return x.transpose(axis, other); }  ///< as Tensor::transpose()
[[nodiscard]] inline Tensor swapaxes(const Tensor& x, std::int64_t axis, std::int64_t other) { return x.transpose(axis, other); }  ///< as Tensor::transpose()
[[nodiscard]] inline Tensor view(const Tensor& x, const Shape& shape) { return reshape(x, shape); }  ///< as reshape()
template <detail::Integer Axis> [[nodiscard]] Tensor squeeze(const Tensor& x, Axis axis) { return x.squeeze(axis); }  ///< as Tensor::squeeze()
[[nodiscard]] inline std::vector<Tensor> chunk(const Tensor& x, std::int64_t parts, std::int64_t axis = 0) { return x.chunk(parts, axis); }  ///< as Tensor::chunk()
[[nodiscard]] inline std::vector<Tensor> unbind(const Tensor& x, std::int64_t axis = 0) { return unstack(x, axis); }  ///< as unstack()
[[nodiscard]] inline Tensor narrow(const Tensor& x, std::int64_t axis, std::int64_t begin, std::int64_t length) { return x.narrow(axis, begin, length); }  ///< as Tensor::narrow()
[[nodiscard]] inline Tensor select(const Tensor& x, std::int64_t axis, std::int64_t index) { return x.select(axis, index); }  ///< as Tensor::select()
[[nodiscard]] inline Tensor flatten(const Tensor& x) { return x.flatten(); }  ///< as Tensor::flatten()
[[nodiscard]] inline Tensor flatten(const Tensor& x, std::int64_t start, std::int64_t end = -1) { return x.flatten(start, end); }  ///< as Tensor::flatten()
[[nodiscard]] inline Tensor diagonal(const Tensor& x, std::int64_t offset = 0, std::int64_t axis = 0, std::int64_t other = 1) { return x.diagonal(offset, axis, other); }  ///< as Tensor::diagonal()
[[nodiscard]] inline Tensor trace(const Tensor& x) { return reduce_sum(x.diagonal()); }  ///< the sum of the diagonal of a matrix
[[nodiscard]] inline Tensor diag(const Tensor& x) { return x.rank() == 1 ? expand_dims(x, 1) * eye(x.dim(0), -1, {.dtype = x.dtype()}) : x.diagonal(); }  ///< the diagonal of a matrix, or the matrix with this diagonal
[[nodiscard]] inline Tensor masked_fill(const Tensor& x, const Tensor& mask, double value) { return x.masked_fill(mask, value); }  ///< as Tensor::masked_fill()
inline Dim numel(const Tensor& x) { return x.size(); }  ///< as Tensor::size()
[[nodiscard]] inline Tensor flip(const Tensor& x, const Dims& axes) { return reverse(x, axes); }  ///< as reverse()
[[nodiscard]] inline Tensor index_select(const Tensor& x, std::int64_t axis, const Tensor& indices) { return gather(x, indices, axis); }  ///< as gather()
[[nodiscard]] inline Tensor take_along_dim(const Tensor& x, const Tensor& indices, std::int64_t axis) { return take_along_axis(x, indices, axis); }  ///< as take_along_axis()
[[nodiscard]] inline Tensor masked_select(const Tensor& x, const Tensor& mask) { return boolean_mask(x, mask); }  ///< as boolean_mask()

// PyTorch, NumPy: math
[[nodiscard]] inline Tensor sub(const Tensor& a, const Tensor& b) { return subtract(a, b); }  ///< as subtract()
[[nodiscard]] inline Tensor mul(const Tensor& a, const Tensor& b) { return multiply(a, b); }  ///< as multiply()
[[nodiscard]] inline Tensor div(const Tensor& a, const Tensor& b) { return divide(a, b); }  ///< as divide()
[[nodiscard]] inline Tensor neg(const Tensor& x) { return negative(x); }  ///< as negative()
[[nodiscard]] inline Tensor power(const Tensor& a, double b) { return pow(a, b); }  ///< as pow()
[[nodiscard]] inline Tensor mm(const Tensor& a, const Tensor& b) { return matmul(a, b); }  ///< as matmul()
[[nodiscard]] inline Tensor bmm(const Tensor& a, const Tensor& b) { return matmul(a, b); }  ///< as matmul()
[[nodiscard]] inline Tensor mv(const Tensor& a, const Tensor& b) { return matmul(a, b); }  ///< as matmul()
[[nodiscard]] inline Tensor dot(const Tensor& a, const Tensor& b) { return matmul(a, b); }  ///< as matmul()
[[nodiscard]] inline Tensor clamp(const Tensor& x, double low, double high) { return clip_by_value(x, low, high); }  ///< as clip_by_value()
[[nodiscard]] inline Tensor clip(const Tensor& x, double low, double high) { return clip_by_value(x, low, high); }  ///< as clip_by_value()
[[nodiscard]] inline Tensor clamp(const Tensor& x, double low) { return maximum(x, low); }  ///< as maximum()
[[nodiscard]] inline Tensor outer(const Tensor& a, const Tensor& b) { return expand_dims(a, 1) * expand_dims(b, 0); }  ///< products of all pairs of elements
[[nodiscard]] inline Tensor ger(const Tensor& a, const Tensor& b) { return outer(a, b); }  ///< as outer()
[[nodiscard]] inline Tensor addmm(const Tensor& c, const Tensor& a, const Tensor& b) { return c + matmul(a, b); }  ///< c + matmul(a, b)
[[nodiscard]] inline Tensor lerp(const Tensor& a, const Tensor& b, double weight) { return a + (b - a) * weight; }  ///< a + (b - a) * weight
[[nodiscard]] inline Tensor remainder(const Tensor& a, double b) { return floor_mod(a, b); }  ///< as floor_mod()
[[nodiscard]] inline Tensor remainder(const Tensor& a, const Tensor& b) { return floor_mod(a, b); }  ///< as floor_mod()
[[nodiscard]] inline Tensor isinf(const Tensor& x) { return is_inf(x); }  ///< as is_inf()
[[nodiscard]] inline Tensor isnan(const Tensor& x) { return is_nan(x); }  ///< as is_nan()
[[nodiscard]] inline Tensor isfinite(const Tensor& x) { return is_finite(x); }  ///< as is_finite()
[[nodiscard]] inline Tensor eq(const Tensor& a, const Tensor& b) { return equal(a, b); }  ///< as equal()
[[nodiscard]] inline Tensor ne(const Tensor& a, const Tensor& b) { return not_equal(a, b); }  ///< as not_equal()
[[nodiscard]] inline Tensor lt(const Tensor& a, const Tensor& b) { return less(a, b); }  ///< as less()
[[nodiscard]] inline Tensor le(const Tensor& a, const Tensor& b) { return less_equal(a, b); }  ///< as less_equal()
[[nodiscard]] inline Tensor gt(const Tensor& a, const Tensor& b) { return greater(a, b); }  ///< as greater()
[[nodiscard]] inline Tensor ge(const Tensor& a, const Tensor& b) { return greater_equal(a, b); }  ///< as greater_equal()
[[nodiscard]] inline Tensor max(const Tensor& a, const Tensor& b) { return maximum(a, b); }  ///< as maximum()
[[nodiscard]] inline Tensor min(const Tensor& a, const Tensor& b) { return minimum(a, b); }  ///< as minimum()
template <std::floating_point Number> [[nodiscard]] Tensor max(const Tensor& x, Number other) { return maximum(x, other); }  ///< as maximum()
template <std::floating_point Number> [[nodiscard]] Tensor min(const Tensor& x, Number other) { return minimum(x, other); }  ///< as minimum()
[[nodiscard]] inline Tensor max(const Tensor& x) { return reduce_max(x); }  ///< as reduce_max()
[[nodiscard]] inline Tensor min(const Tensor& x) { return reduce_min(x); }  ///< as reduce_min()
template <class... Options> [[nodiscard]] Tensor sum(const Tensor& x, const Options&... options) { return reduce_sum(x, options...); }  ///< as reduce_sum()
template <class... Options> [[nodiscard]] Tensor mean(const Tensor& x, const Options&... options) { return reduce_mean(x, options...); }  ///< as reduce_mean()
template <class... Options> [[nodiscard]] Tensor prod(const Tensor& x, const Options&... options) { return reduce_prod(x, options...); }  ///< as reduce_prod()
template <class... Options> [[nodiscard]] Tensor any(const Tensor& x, const Options&... options) { return reduce_any(x, options...); }  ///< as reduce_any()
template <class... Options> [[nodiscard]] Tensor all(const Tensor& x, const Options&... options) { return reduce_all(x, options...); }  ///< as reduce_all()
template <class... Options> [[nodiscard]] Tensor logsumexp(const Tensor& x, const Options&... options) { return reduce_logsumexp(x, options...); }  ///< as reduce_logsumexp()
[[nodiscard]] inline Tensor sum(const Tensor& x, const ReduceOptions& options) { return reduce_sum(x, options); }  ///< as reduce_sum()
[[nodiscard]] inline Tensor mean(const Tensor& x, const ReduceOptions& options) { return reduce_mean(x, options); }  ///< as reduce_mean()
template <detail::Integer Axis> [[nodiscard]] Tensor sum(const Tensor& x, std::initializer_list<Axis> axes, bool keepdims = false) { return reduce_sum(x, axes, keepdims); }  ///< as reduce_sum()
template <detail::Integer Axis> [[nodiscard]] Tensor mean(const Tensor& x, std::initializer_list<Axis> axes, bool keepdims = false) { return reduce_mean(x, axes, keepdims); }  ///< as reduce_mean()
template <class... Args> [[nodiscard]] Tensor std(const Tensor& x, const Args&... args) { return x.std(args...); }  ///< as Tensor::std()
template <class... Args> [[nodiscard]] Tensor var(const Tensor& x, const Args&... args) { return x.var(args...); }  ///< as Tensor::var()
template <class... Args> [[nodiscard]] Tensor amax(const Tensor& x, const Args&... args) { return x.amax(args...); }  ///< as Tensor::amax()
template <class... Args> [[nodiscard]] Tensor amin(const Tensor& x, const Args&... args) { return x.amin(args...); }  ///< as Tensor::amin()
[[nodiscard]] inline Tensor inverse(const Tensor& x) { return linalg::inv(x); }  ///< as linalg::inv()

// PyTorch: activations
using nn::relu;  ///< nn::relu()
using nn::softmax;  ///< nn::softmax()
using nn::log_softmax;  ///< nn::log_softmax()
using nn::gelu;  ///< nn::gelu()
[[nodiscard]] inline Tensor silu(const Tensor& x) { return nn::swish(x); }  ///< as nn::swish()
using nn::elu;  ///< nn::elu()
using nn::leaky_relu;  ///< nn::leaky_relu()
using nn::selu;  ///< nn::selu()
using nn::softplus;  ///< nn::softplus()

// PyTorch: gradients
using NoGradGuard = NoGradScope;  ///< as NoGradScope
using no_grad = NoGradScope;      ///< as NoGradScope
using InferenceMode = NoGradScope;  ///< as NoGradScope
using amp::autocast;                ///< as amp::autocast
inline bool is_grad_enabled() { return grad_enabled(); }  ///< as grad_enabled()
inline Variable& operator+=(Variable& variable, const Tensor& delta) { variable.assign_add(delta); return variable; }  ///< as Variable::assign_add()
inline Variable& operator-=(Variable& variable, const Tensor& delta) { variable.assign_sub(delta); return variable; }  ///< as Variable::assign_sub()
namespace autograd {
using AutogradContext = Context;            ///< as Context
using variable_list = std::vector<Tensor>;  ///< a list of tensors
}  // namespace autograd

// PyTorch: namespaces
/// As torch::indexing.
namespace indexing {
using tandem::Ellipsis;
using tandem::None;
using tandem::Slice;
}  // namespace indexing

// TensorFlow: shapes
inline int rank(const Tensor& x) { return x.rank(); }  ///< as Tensor::rank()
inline Shape shape(const Tensor& x) { return x.shape(); }  ///< as Tensor::shape()

// TensorFlow: math
namespace math {
using tandem::abs; using tandem::add; using tandem::add_n; using tandem::argmax; using tandem::argmin; using tandem::ceil; using tandem::cos; using tandem::cumsum; using tandem::divide; using tandem::equal; using tandem::erf; using tandem::exp; using tandem::expm1; using tandem::floor; using tandem::greater; using tandem::greater_equal; using tandem::is_finite; using tandem::is_inf; using tandem::is_nan; using tandem::less; using tandem::less_equal; using tandem::log; using tandem::log1p; using tandem::logical_and; using tandem::logical_not; using tandem::logical_or; using tandem::maximum; using tandem::minimum; using tandem::multiply; using tandem::negative; using tandem::not_equal; using tandem::pow; using tandem::reciprocal; using tandem::reduce_all; using tandem::reduce_any; using tandem::reduce_logsumexp; using tandem::reduce_max; using tandem::reduce_mean; using tandem::reduce_min; using tandem::reduce_prod; using tandem::reduce_std; using tandem::reduce_sum; using tandem::reduce_variance; using tandem::round; using tandem::rsqrt; using tandem::sigmoid; using tandem::sign; using tandem::sin; using tandem::sqrt; using tandem::square; using tandem::squared_difference; using tandem::subtract; using tandem::tanh; using tandem::top_k;
using nn::softplus;
[[nodiscard]] inline Tensor l2_normalize(const Tensor& x, std::int64_t axis = -1, double epsilon = 1e-12) { return x * rsqrt(maximum(reduce_sum(square(x), axis, true), epsilon)); }  ///< x divided by its norm along an axis
[[nodiscard]] inline Tensor floormod(const Tensor& a, const Tensor& b) { return floor_mod(a, b); }  ///< as floor_mod()
[[nodiscard]] inline Tensor floormod(const Tensor& a, double b) { return floor_mod(a, b); }  ///< as floor_mod()
[[nodiscard]] inline Tensor floordiv(const Tensor& a, const Tensor& b) { return floor_divide(a, b); }  ///< as floor_divide()
[[nodiscard]] inline Tensor floordiv(const Tensor& a, double b) { return floor_divide(a, b); }  ///< as floor_divide()
[[nodiscard]] inline Tensor divide_no_nan(const Tensor& a, const Tensor& b) { return where(equal(b, 0.0), zeros_like(a), a / where(equal(b, 0.0), ones_like(b), b)); }  ///< a / b, and 0 where b is 0
using tandem::bincount; using tandem::segment_mean; using tandem::segment_sum; using tandem::unsorted_segment_mean; using tandem::unsorted_segment_sum;
template <detail::Integer Classes> [[nodiscard]] Tensor confusion_matrix(const Tensor& labels, const Tensor& predictions, Classes num_classes) { return confusion_matrix(labels, predictions, ConfusionMatrixOptions{.num_classes = static_cast<std::int64_t>(num_classes)}); }  ///< as confusion_matrix()
}  // namespace math
namespace linalg {
[[nodiscard]] inline Tensor inverse(const Tensor& x) { return inv(x); }  ///< as inv()
[[nodiscard]] inline Tensor diag_part(const Tensor& x) { return x.diagonal(0, -2, -1); }  ///< as Tensor::diagonal() of the last two axes
using tandem::trace;
using math::l2_normalize; using tandem::eye; using tandem::global_norm; using tandem::matmul; using tandem::norm;
}  // namespace linalg
namespace nn {
using tandem::sigmoid; using tandem::tanh;
[[nodiscard]] inline Tensor silu(const Tensor& x) { return swish(x); }  ///< as swish()
[[nodiscard]] inline Tensor softmax_cross_entropy_with_logits(const Tensor& labels, const Tensor& logits) { return softmax_cross_entropy(labels, logits); }  ///< as softmax_cross_entropy()
[[nodiscard]] inline Tensor sparse_softmax_cross_entropy_with_logits(const Tensor& labels, const Tensor& logits) { return sparse_softmax_cross_entropy(labels, logits); }  ///< as sparse_softmax_cross_entropy()
[[nodiscard]] inline Tensor sigmoid_cross_entropy_with_logits(const Tensor& labels, const Tensor& logits) { return sigmoid_cross_entropy(labels, logits); }  ///< as sigmoid_cross_entropy()
using tandem::top_k;
}  // namespace nn

}  // namespace tandem

// --- training ---
namespace tandem {
using nn::functional::adaptive_avg_pool2d;                                  ///< torch
using nn::functional::adaptive_max_pool2d;                                  ///< torch
using nn::functional::avg_pool2d;                                           ///< torch
using nn::functional::conv2d;                                               ///< torch
using nn::functional::max_pool2d;                                           ///< torch
using nn::functional::cross_entropy;                                        ///< torch
using nn::functional::dropout;                                              ///< torch
using nn::functional::linear;                                               ///< torch
using nn::functional::binary_cross_entropy;                                 ///< torch
using nn::functional::binary_cross_entropy_with_logits;                     ///< torch
using nn::functional::huber_loss;                                           ///< torch
using nn::functional::kl_div;                                               ///< torch
using nn::functional::l1_loss;                                              ///< torch
using nn::functional::mse_loss;                                             ///< torch
using nn::functional::nll_loss;                                             ///< torch
using nn::functional::smooth_l1_loss;                                       ///< torch
using nn::utils::clip_grad_norm_;                                           ///< torch.nn.utils
using nn::utils::clip_grad_value_;                                          ///< torch.nn.utils
inline constexpr auto& cross_entropy_loss = nn::functional::cross_entropy;  ///< torch

namespace optim {
using lr_scheduler::StepLR;                                          ///< libtorch
using ReduceLROnPlateauScheduler = lr_scheduler::ReduceLROnPlateau;  ///< libtorch
}  // namespace optim

using optimizers::zip;  ///< Python's zip(gradients, variables)
inline void save(const optim::Optimizer& optimizer, const std::filesystem::path& path) { save(optimizer.state_dict(), path); }  ///< save() of state_dict()
template <std::convertible_to<std::filesystem::path> Path, class Saved> requires(!std::convertible_to<const Saved&, std::filesystem::path>) void save(const Path& path, const Saved& saved) { save(saved, path); }  ///< save() with the path first, as NumPy's
inline void load(const optim::Optimizer& optimizer, const std::filesystem::path& path) { optimizer.load_state_dict(load(path)); }  ///< load_state_dict() of load()
using Logs = callbacks::Logs;  ///< as callbacks::Logs
using data::Dataset;           ///< data::Dataset
using losses::Loss;            ///< losses::Loss
using metrics::Metric;         ///< metrics::Metric
using optimizers::Optimizer;   ///< optimizers::Optimizer
using callbacks::Callback;     ///< callbacks::Callback, in a list of callbacks

namespace data {
/// As torch::data::samplers.
namespace samplers {
using data::RandomSampler;                                 ///< as RandomSampler
using data::SequentialSampler;                             ///< as SequentialSampler
using DistributedRandomSampler = data::DistributedSampler;  ///< as DistributedSampler
}  // namespace samplers
using Options = DatasetOptions;  ///< as DatasetOptions
}  // namespace data

namespace optimizers {
/// As from_name(): keras.optimizers.get.
inline Optimizer get(std::string_view name) { return from_name(name); }
}  // namespace optimizers

namespace losses {
/// As from_name(): keras.losses.get.
inline Loss get(std::string_view name) { return from_name(name); }
/// @{
/// The names of Keras's functions.
[[nodiscard]] inline Tensor mean_squared_error(const Tensor& y_true, const Tensor& y_pred) {
  return mse(y_true, y_pred);
}
[[nodiscard]] inline Tensor mean_absolute_error(const Tensor& y_true, const Tensor& y_pred) {
  return mae(y_true, y_pred);
}
/// @}
}  // namespace losses

namespace metrics {
/// As from_name(): keras.metrics.get.
inline Metric get(std::string_view name) { return from_name(name); }
}  // namespace metrics
}  // namespace tandem

// --- models ---
namespace tandem {
using KerasTensor = SymbolicInput;  ///< as SymbolicInput, in Keras
}
namespace tandem::models {
using tandem::Model;       ///< as Model, in Keras
using tandem::Sequential;  ///< as Sequential, in Keras
}  // namespace tandem::models
namespace tandem::layers {
using tandem::Input;                             ///< as Input(), in Keras
using MaxPool2D = MaxPooling2D;                  ///< as MaxPooling2D, in Keras
using AvgPool2D = AveragePooling2D;              ///< as AveragePooling2D, in Keras
using GlobalAvgPool2D = GlobalAveragePooling2D;  ///< as GlobalAveragePooling2D, in Keras
using GlobalMaxPool2D = GlobalMaxPooling2D;      ///< as GlobalMaxPooling2D, in Keras
using Convolution2D = Conv2D;                    ///< as Conv2D, in Keras
inline SymbolicInput add(const std::vector<SymbolicInput>& inputs) { return Add()(inputs); }  ///< as Add, in Keras
inline SymbolicInput subtract(const std::vector<SymbolicInput>& inputs) { return Subtract()(inputs); }  ///< as Subtract, in Keras
inline SymbolicInput multiply(const std::vector<SymbolicInput>& inputs) { return Multiply()(inputs); }  ///< as Multiply, in Keras
inline SymbolicInput average(const std::vector<SymbolicInput>& inputs) { return Average()(inputs); }  ///< as Average, in Keras
inline SymbolicInput maximum(const std::vector<SymbolicInput>& inputs) { return Maximum()(inputs); }  ///< as Maximum, in Keras
inline SymbolicInput concatenate(const std::vector<SymbolicInput>& inputs, std::int64_t axis = -1) { return Concatenate({.axis = axis})(inputs); }  ///< as Concatenate, in Keras
/// As Input(), in Keras.
template <class... Args>
SymbolicInput InputLayer(const Shape& shape, const Args&... args) {
  return Input(shape, args...);
}
/// As Input(), in Keras.
template <std::same_as<InputOptions> Options = InputOptions>
SymbolicInput InputLayer(const Options& options) {
  return Input(options);
}
}  // namespace tandem::layers
/// As tf.keras.regularizers.
namespace tandem::regularizers {
inline Regularizer l1(double l1 = 0.01) { return L1(l1); }  ///< as L1, in Keras
inline Regularizer l2(double l2 = 0.01) { return L2(l2); }  ///< as L2, in Keras
inline Regularizer l1_l2(double l1 = 0.01, double l2 = 0.01) { return L1L2(l1, l2); }  ///< as L1L2, in Keras
}  // namespace tandem::regularizers
namespace tandem::initializers {
inline Initializer Zeros() { return zeros(); }                         ///< as zeros(), in Keras
inline Initializer Ones() { return ones(); }                           ///< as ones(), in Keras
inline Initializer Constant(double value) { return constant(value); }  ///< as constant(), in Keras
inline Initializer RandomNormal(double mean = 0.0, double stddev = 0.05) { return random_normal(mean, stddev); }  ///< as random_normal(), in Keras
inline Initializer RandomUniform(double minval = -0.05, double maxval = 0.05) { return random_uniform(minval, maxval); }  ///< as random_uniform(), in Keras
inline Initializer TruncatedNormal(double mean = 0.0, double stddev = 0.05) { return truncated_normal(mean, stddev); }  ///< as truncated_normal(), in Keras
inline Initializer GlorotUniform() { return glorot_uniform(); }  ///< as glorot_uniform(), in Keras
inline Initializer GlorotNormal() { return glorot_normal(); }    ///< as glorot_normal(), in Keras
inline Initializer HeUniform() { return he_uniform(); }          ///< as he_uniform(), in Keras
inline Initializer HeNormal() { return he_normal(); }            ///< as he_normal(), in Keras
inline Initializer LecunUniform() { return lecun_uniform(); }    ///< as lecun_uniform(), in Keras
inline Initializer LecunNormal() { return lecun_normal(); }      ///< as lecun_normal(), in Keras
}  // namespace tandem::initializers

/// As keras.activations.
namespace tandem::activations {
using nn::celu; using nn::elu; using nn::gelu; using nn::glu; using nn::hard_shrink; using nn::hard_sigmoid; using nn::hard_swish; using nn::hard_tanh; using nn::leaky_relu; using nn::log_sigmoid; using nn::log_softmax; using nn::mish; using nn::relu; using nn::relu6; using nn::selu; using nn::soft_shrink; using nn::softmax; using nn::softplus; using nn::softsign; using nn::sparse_plus; using nn::sparse_sigmoid; using nn::squareplus; using nn::swish; using nn::tanh_shrink; using nn::threshold;
using tandem::exp; using tandem::sigmoid; using tandem::tanh;
}  // namespace tandem::activations
namespace tandem::utils {
namespace data = tandem::data;  // as torch.utils.data
inline void set_random_seed(std::uint64_t seed) { random::set_seed(seed); }  ///< as random::set_seed(), in Keras
}  // namespace tandem::utils
/// As tf.keras.
namespace tandem::keras {
using tandem::Functional;
using tandem::Input;
using tandem::Model;
using tandem::Sequential;
namespace activations = tandem::activations;    // as td::activations
namespace callbacks = tandem::callbacks;        // as td::callbacks
namespace datasets = tandem::datasets;          // as td::datasets
namespace initializers = tandem::initializers;  // as td::initializers
namespace layers = tandem::layers;              // as td::layers
namespace losses = tandem::losses;              // as td::losses
namespace metrics = tandem::metrics;            // as td::metrics
namespace optimizers = tandem::optimizers;      // as td::optimizers
namespace regularizers = tandem::regularizers;  // as td::regularizers
namespace models = tandem::models;              // as td::models
namespace utils = tandem::utils;                // as td::utils
}  // namespace tandem::keras

// --- processes ---

namespace tandem {
namespace distributed = comm;  // as torch.distributed
namespace horovod = hvd;       // as Horovod
}  // namespace tandem

namespace tandem::comm {
using parallel::GradBucket;                            ///< as torch.distributed.GradBucket
using parallel::spawn;                                 ///< as parallel::spawn()
using tandem::ReduceOp;                                ///< as torch.distributed.ReduceOp
inline constexpr bool is_available() { return true; }  ///< as torch.distributed.is_available
inline int rank(const ProcessGroup& group = {}) { return get_rank(group); }  ///< get_rank()
inline int size(const ProcessGroup& group = {}) { return get_world_size(group); }  ///< get_world_size()
inline int world_size(const ProcessGroup& group = {}) { return get_world_size(group); }  ///< get_world_size()
inline std::vector<int> get_process_group_ranks(const ProcessGroup& group) { return group.ranks(); }  ///< ProcessGroup::ranks()
inline Work isend(const Tensor& tensor, int destination, const CollectiveOptions& options = {}) { return send_async(tensor, destination, options); }  ///< send_async()
inline Work irecv(const Shape& shape, int source, const ReceiveOptions& options = {}) { return recv_async(shape, source, options); }  ///< recv_async()
/// reduce_scatter_tensor().
template <std::same_as<Tensor> T>
[[nodiscard]] Tensor reduce_scatter(const T& tensor, const ReduceOptions& options = {}) {
  return reduce_scatter_tensor(tensor, options);
}

// MPI: processes
using Group = ProcessGroup;  ///< as ProcessGroup
inline void init(int* = nullptr, char*** = nullptr) { init_process_group(); }  ///< as init_process_group()
inline void finalize() { destroy_process_group(); }  ///< as destroy_process_group()
}  // namespace tandem::comm

namespace tandem::hvd {
inline constexpr Op Average = kAverage;  ///< kAverage
inline constexpr Op Sum = kSum;          ///< kSum
inline constexpr Op Adasum = kAdasum;    ///< kAdasum
inline constexpr Op Min = kMin;          ///< kMin
inline constexpr Op Max = kMax;          ///< kMax
inline constexpr Op Product = kProduct;  ///< kProduct
namespace callbacks {
using BroadcastGlobalVariablesCallback = BroadcastGlobalVariables;  ///< as Horovod
}
}  // namespace tandem::hvd

namespace tandem::nn {
namespace parallel = tandem::parallel;  // as torch.nn.parallel
using tandem::parallel::DataParallel;   ///< as torch.nn.DataParallel
}  // namespace tandem::nn

/// As torch.multiprocessing.
namespace tandem::multiprocessing {
using tandem::parallel::spawn;  ///< as torch.multiprocessing.spawn
}

namespace tandem::distribute {
using tandem::ReduceOp;                             ///< as tf.distribute.ReduceOp
using MirroredStrategyOptions = MirroredOptions;    ///< as MirroredOptions
using CentralStorageStrategyOptions = CentralStorageOptions;              ///< as CentralStorageOptions
using MultiWorkerMirroredStrategyOptions = MultiWorkerMirroredOptions;    ///< as MultiWorkerMirroredOptions
using ParameterServerStrategyOptions = ParameterServerOptions;            ///< as ParameterServerOptions
using CommunicationImplementation = Communication;  ///< as tf.distribute.experimental's
/// @{
/// As InProcessCluster.
inline InProcessCluster create_in_process_cluster(int num_workers, int num_ps) { return {num_workers, num_ps}; }
inline InProcessCluster create_in_process_cluster(const InProcessClusterOptions& options) { return InProcessCluster(options); }
/// @}
/// As tf.distribute.cluster_resolver.
namespace cluster_resolver {
using distribute::ClusterResolver;          ///< as tf.distribute.cluster_resolver's
using distribute::SimpleClusterResolver;    ///< as tf.distribute.cluster_resolver's
using distribute::TFConfigClusterResolver;  ///< as tf.distribute.cluster_resolver's
}  // namespace cluster_resolver
/// As tf.distribute.coordinator.
namespace coordinator {
using distribute::ClusterCoordinator;  ///< as tf.distribute.coordinator's
using distribute::PerWorkerValues;     ///< as tf.distribute.coordinator's
using distribute::RemoteValue;         ///< as tf.distribute.coordinator's
}  // namespace coordinator
/// As tf.distribute.experimental.
namespace experimental {
namespace coordinator = distribute::coordinator;  // as tf.distribute.experimental's
using distribute::ParameterServerStrategy;      ///< as tf.distribute.experimental's
using distribute::CentralStorageStrategy;       ///< as tf.distribute.experimental's
using distribute::CommunicationOptions;         ///< as tf.distribute.experimental's
using distribute::CommunicationImplementation;  ///< as tf.distribute.experimental's
using distribute::MultiWorkerMirroredStrategy;  ///< as tf.distribute.experimental's
/// As tf.distribute.experimental.partitioners.
namespace partitioners {
using distribute::FixedShardsPartitioner;  ///< as tf.distribute.experimental.partitioners'
using distribute::MaxSizePartitioner;      ///< as tf.distribute.experimental.partitioners'
using distribute::MinSizePartitioner;      ///< as tf.distribute.experimental.partitioners'
}  // namespace partitioners
}  // namespace experimental
}  // namespace tandem::distribute

// --- data and runtime ---

namespace tandem::data {
inline constexpr int AUTOTUNE = kAutotune;                                  ///< as in TensorFlow
inline constexpr std::int64_t INFINITE_CARDINALITY = kInfiniteCardinality;  ///< as in TensorFlow
inline constexpr std::int64_t UNKNOWN_CARDINALITY = kUnknownCardinality;    ///< as in TensorFlow
}  // namespace tandem::data

namespace tandem {
using device = DeviceScope;  ///< as in TensorFlow
using name_scope = NameScope;  ///< as NameScope
inline Graph::Operation global_variables_initializer() { return get_default_graph().initializer(); }  ///< as Graph::initializer()
using config::LogicalDeviceConfiguration;  ///< as config::LogicalDeviceConfiguration
}  // namespace tandem

/// As tf.config.threading.
namespace tandem::config::threading {
using config::get_intra_op_parallelism_threads;
using config::set_inter_op_parallelism_threads;
using config::set_intra_op_parallelism_threads;
}  // namespace tandem::config::threading

/// As tf.config.experimental.
namespace tandem::config::experimental {
using config::get_device_details;
using config::get_memory_growth;
using config::get_memory_info;
using config::get_visible_devices;
using config::list_logical_devices;
using config::list_physical_devices;
using config::reset_memory_stats;
using config::set_memory_growth;
using config::set_visible_devices;
using VirtualDeviceConfiguration = LogicalDeviceConfiguration;  ///< as LogicalDeviceConfiguration
/// As set_logical_device_configuration().
inline void set_virtual_device_configuration(
    const PhysicalDevice& physical, const std::vector<LogicalDeviceConfiguration>& devices) {
  config::set_logical_device_configuration(physical, devices);
}
}  // namespace tandem::config::experimental

namespace tandem {
/// As in PyTorch, but before the first operation.
inline void set_num_threads(int n) { config::set_intra_op_parallelism_threads(n); }
}  // namespace tandem

/// As numpy.random.
namespace tandem::random {
using tandem::randint;  ///< as randint()
}  // namespace tandem::random

/// As torch.cuda.
namespace tandem::cuda {
using tandem::synchronize;  ///< of all devices
/// As torch.cuda.amp.
namespace amp {
using tandem::amp::GradScaler;  ///< as amp::GradScaler
/// As amp::autocast.
class autocast : public tandem::amp::autocast {
 public:
  explicit autocast(bool enabled = true) : tandem::amp::autocast({.enabled = enabled}) {}  ///< on, or off
};
}  // namespace amp
/// Whether there is a GPU.
inline bool is_available() { return !config::list_physical_devices("GPU").empty(); }
/// The number of GPUs.
inline int device_count() { return static_cast<int>(config::list_physical_devices("GPU").size()); }
}  // namespace tandem::cuda

/// As tf.errors.
namespace tandem::errors {
using tandem::AbortedError; using tandem::AlreadyExistsError; using tandem::DataLossError; using tandem::DeadlineExceededError; using tandem::FailedPreconditionError; using tandem::InternalError; using tandem::InvalidArgumentError; using tandem::NotFoundError; using tandem::OutOfRangeError; using tandem::ResourceExhaustedError; using tandem::UnavailableError; using tandem::UnimplementedError;
}  // namespace tandem::errors

/// As tf.train.
namespace tandem::train {
using tandem::Checkpoint;
using tandem::CheckpointManager;
using tandem::CheckpointReader;
using tandem::latest_checkpoint;
}  // namespace tandem::train

namespace tandem {
/// `log::set_level("warning")` is logging::set_level(). (log(x) is the logarithm: a function hides a class.)
struct log {
  static void set_level(std::string_view level) { logging::set_level(level); }  ///< as logging::set_level()
};
}  // namespace tandem
// clang-format on
