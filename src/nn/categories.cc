#include "nn/categories.h"

#include <algorithm>

#include "core/dim.h"
#include "core/status.h"
#include "data/stream.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/math.h"
#include "tensor/tensor_impl.h"

namespace tandem {
namespace {

constexpr const char* kModes[] = {"int", "one_hot", "multi_hot", "count", "tf_idf"};

// [batch, 1] is [batch] for one_hot.
bool drops_last(const Shape& indices) {
  return indices.rank() > 1 &&
         dim::known("one_hot", indices.word(indices.rank() - 1), "the rank of the result") == 1;
}

}  // namespace

OutputMode output_mode_from_name(const std::string& label, const std::string& name,
                                 std::initializer_list<OutputMode> allowed) {
  std::string names;
  for (const OutputMode mode : allowed) {
    const char* const known = kModes[static_cast<int>(mode)];
    if (name == known) return mode;
    names += (names.empty() ? "" : ", ") + std::string(known);
  }
  fail<InvalidArgumentError>("[{}] expected one of the output modes {}; got '{}'", label, names,
                             name);
}

Shape encoded_shape(OutputMode mode, const Shape& indices, std::int64_t depth) {
  if (mode == OutputMode::kInt) return indices;
  Dims sizes = indices.words();
  const bool drops = mode != OutputMode::kOneHot || drops_last(indices);
  if (drops && !sizes.empty()) sizes = Dims(sizes.begin(), sizes.end() - 1);
  sizes.push_back(depth);
  return Shape(sizes);
}

Tensor encoded(OutputMode mode, const Tensor& indices, std::int64_t depth, DType dtype,
               const Tensor& weights, const Tensor& idf) {
  if (mode == OutputMode::kInt) return indices;
  if (mode == OutputMode::kOneHot) {
    const bool drops = drops_last(indices.shape());
    return one_hot(drops ? squeeze(indices, {indices.rank() - 1}) : indices, depth,
                   {.dtype = dtype});
  }
  const Tensor each = indices.rank() == 0 ? expand_dims(indices, 0) : indices;
  Tensor vectors = one_hot(each, depth, {.dtype = dtype});
  if (mode == OutputMode::kMultiHot) return reduce_max(vectors, {.axis = {-2}});
  if (weights.defined()) vectors = vectors * expand_dims(weights.to(dtype), -1);
  const Tensor sums = reduce_sum(vectors, {.axis = {-2}});
  return idf.defined() ? sums * idf : sums;
}

Tensor encoded_rows(OutputMode mode, const std::vector<std::vector<std::int64_t>>& rows,
                    std::int64_t depth, const std::vector<double>& idf) {
  const data::PipelineScope scope;
  const Shape shape{static_cast<std::int64_t>(rows.size()), depth};
  Tensor vectors = make_tensor(DeviceManager::get().host(), shape, float32);
  auto* to = reinterpret_cast<float*>(impl_of(vectors).data());
  std::fill_n(to, shape.num_elements(), 0.0f);
  for (const auto& row : rows) {
    for (const std::int64_t index : row) {
      if (index < 0 || index >= depth) continue;
      if (mode == OutputMode::kCount || mode == OutputMode::kTfIdf)
        to[index] += 1.0f;
      else
        to[index] = 1.0f;
    }
    if (mode == OutputMode::kTfIdf)
      for (std::size_t i = 0; i < idf.size(); ++i) to[i] *= static_cast<float>(idf[i]);
    to += depth;
  }
  return vectors;
}

std::vector<double> doubles_of(const Tensor& x) { return x.to(float64).to_vector<double>(); }

std::vector<std::int64_t> integers_of(const Tensor& x) {
  return x.to(int64).to_vector<std::int64_t>();
}

}  // namespace tandem
