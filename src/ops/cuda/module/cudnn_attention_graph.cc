#include "ops/cuda/module/cudnn_attention_graph.h"

#include <utility>

namespace tandem::cuda {
namespace {

constexpr cudnnDataType_t kCompute = CUDNN_DATA_FLOAT;

class AttentionMaker {
 public:
  AttentionMaker(const CudnnLibrary& library, const CudnnAttention& attention)
      : causal_(attention.causal),
        grouped_(attention.sizes.kv_heads != attention.sizes.heads),
        tensors_(describe(attention)),
        type_(tensors_.query.type),
        graph_(library, kAttentionAlignment, kCompute) {
    const AttentionSizes& s = attention.sizes;
    rows_ = {s.batch, s.heads, s.queries, 1};
    scores_ = {s.batch, s.heads, s.queries, s.keys};
    transposed_ = {s.batch, s.heads, s.keys, s.queries};
    by_row_ = packed_strides(scores_);
    std::swap(by_row_[2], by_row_[3]);
  }

  CudnnGraph forward(const CudnnTarget& target) {
    const Tensor query = graph_.tensor(tensors_.query), key = graph_.tensor(tensors_.key),
                 value = graph_.tensor(tensors_.value), result = graph_.tensor(tensors_.result),
                 log_sums = graph_.tensor(tensors_.log_sums);
    const Tensor scores =
        masked(scaled(graph_.matmul(query, key, like_scores()), graph_.by_value(kIdScale)));
    const Tensor largest = graph_.reduce(CUDNN_REDUCE_TENSOR_MAX, scores, one_per_row());
    const Tensor below = graph_.pointwise({CUDNN_POINTWISE_SUB}, {scores, largest}, like_scores());
    const Tensor weights = graph_.pointwise({CUDNN_POINTWISE_EXP}, {below}, like_scores());
    const Tensor sums = graph_.reduce(CUDNN_REDUCE_TENSOR_ADD, weights, one_per_row());
    const Tensor logs = graph_.pointwise({CUDNN_POINTWISE_LOG}, {sums}, one_per_row());
    graph_.pointwise({CUDNN_POINTWISE_ADD}, {largest, logs}, log_sums);
    const Tensor shares =
        graph_.pointwise({CUDNN_POINTWISE_DIV}, {weights, sums}, graph_.between(type_, scores_));
    graph_.matmul(shares, value, result);
    return graph_.finish(target);
  }

  CudnnGraph backward(const CudnnTarget& target, bool deterministic) {
    const Tensor query = graph_.tensor(tensors_.query), key = graph_.tensor(tensors_.key),
                 value = graph_.tensor(tensors_.value), result = graph_.tensor(tensors_.result),
                 log_sums = graph_.tensor(tensors_.log_sums),
                 dresult = graph_.tensor(tensors_.dresult), scale = graph_.by_value(kIdScale);
    const Tensor products = graph_.pointwise({CUDNN_POINTWISE_MUL}, {dresult, result},
                                             graph_.between(kCompute, tensors_.result.sizes));
    const Tensor summed = graph_.reduce(CUDNN_REDUCE_TENSOR_ADD, products, one_per_row());
    const Tensor row_products =
        graph_.pointwise({CUDNN_POINTWISE_MUL}, {summed, graph_.by_value(kIdOne)},
                         graph_.tensor(tensors_.row_products));

    const Tensor scores = scaled(graph_.matmul(query, key, like_scores()), scale);
    const Tensor logs =
        masked(graph_.pointwise({CUDNN_POINTWISE_SUB}, {scores, log_sums}, like_scores()));
    const Tensor weights = graph_.pointwise({CUDNN_POINTWISE_EXP}, {logs}, like_scores());
    of_keys(weights, dresult, tensors_.dvalue);

    const Tensor dweights = graph_.matmul(dresult, value, like_scores());
    const Tensor centred =
        graph_.pointwise({CUDNN_POINTWISE_SUB}, {dweights, row_products}, like_scores());
    const Tensor dscores =
        scaled(graph_.pointwise({CUDNN_POINTWISE_MUL}, {centred, weights}, like_scores()), scale);
    of_keys(dscores, query, tensors_.dkey);

    TensorDescription keys = tensors_.key;
    std::swap(keys.sizes[2], keys.sizes[3]);
    std::swap(keys.strides[2], keys.strides[3]);
    const Tensor as_rows = graph_.reshape(key, graph_.between(type_, keys.sizes, keys.strides));
    const Tensor dquery = graph_.tensor(tensors_.dquery);
    if (deterministic)
      graph_.matmul(dscores, as_rows, dquery);
    else
      graph_.pointwise({CUDNN_POINTWISE_IDENTITY},
                       {graph_.matmul(dscores, as_rows, graph_.tensor(tensors_.dquery_sums))},
                       dquery);
    return graph_.finish(target);
  }

 private:
  using Tensor = GraphMaker::Tensor;

  Tensor like_scores(cudnnDataType_t type = kCompute) { return graph_.between(type, scores_); }
  Tensor one_per_row() { return graph_.between(kCompute, rows_); }

  Tensor scaled(Tensor scores, Tensor scale) {
    return graph_.pointwise({CUDNN_POINTWISE_MUL}, {scores, scale}, like_scores());
  }

  Tensor index(Tensor scores, std::int64_t axis) {
    return graph_.pointwise({.mode = CUDNN_POINTWISE_GEN_INDEX, .axis = axis}, {scores},
                            like_scores(CUDNN_DATA_INT32));
  }
  // In causal attention, a query attends to the keys up to its own position.
  Tensor masked(Tensor scores) {
    if (!causal_) return scores;
    const Tensor query = index(scores, 2), key = index(scores, 3);
    const Tensor seen =
        graph_.pointwise({.mode = CUDNN_POINTWISE_CMP_GE, .compute = CUDNN_DATA_BOOLEAN},
                         {query, key}, like_scores(CUDNN_DATA_BOOLEAN));
    return graph_.pointwise({CUDNN_POINTWISE_BINARY_SELECT},
                            {scores, graph_.by_value(kIdNever), seen}, like_scores());
  }

  // to = weights^T of_queries, summed over the heads that share a key.
  void of_keys(Tensor weights, Tensor of_queries, const TensorDescription& to) {
    const Tensor by_key = graph_.reshape(weights, graph_.between(type_, transposed_, by_row_));
    const Tensor sums = graph_.tensor(to);
    if (!grouped_) {
      graph_.matmul(by_key, of_queries, sums);
      return;
    }
    CudnnSizes each_head = to.sizes;
    each_head[1] = scores_[1];
    graph_.reduce(CUDNN_REDUCE_TENSOR_ADD,
                  graph_.matmul(by_key, of_queries, graph_.between(type_, each_head)), sums);
  }

  const bool causal_, grouped_;
  const AttentionDescription tensors_;
  const cudnnDataType_t type_;
  CudnnSizes rows_, scores_, transposed_, by_row_;
  GraphMaker graph_;
};

}  // namespace

AttentionDescription describe(const CudnnAttention& attention) {
  const AttentionSizes& s = attention.sizes;
  const cudnnDataType_t type = cudnn_type_of(attention.dtype);
  // Describes a tensor [batch, positions, heads, depth].
  const auto tensor = [&](std::int64_t id, std::int64_t heads, std::int64_t positions,
                          std::int64_t depth) -> TensorDescription {
    return {.id = id,
            .type = type,
            .sizes = {s.batch, heads, positions, depth},
            .strides = {positions * heads * depth, depth, heads * depth, 1}};
  };
  const auto transposed = [](TensorDescription of) {
    std::swap(of.sizes[2], of.sizes[3]);
    std::swap(of.strides[2], of.strides[3]);
    return of;
  };
  const auto packed = [&](std::int64_t id, std::int64_t depth) -> TensorDescription {
    const CudnnSizes sizes = {s.batch, s.heads, s.queries, depth};
    return {.id = id, .type = kCompute, .sizes = sizes, .strides = packed_strides(sizes)};
  };
  const TensorDescription value = tensor(3, s.kv_heads, s.keys, s.value_depth);
  return {.query = tensor(1, s.heads, s.queries, s.depth),
          .key = transposed(tensor(2, s.kv_heads, s.keys, s.depth)),
          .value = attention.pass == AttentionPass::kForward ? value : transposed(value),
          .result = tensor(4, s.heads, s.queries, s.value_depth),
          .log_sums = packed(5, 1),
          .dresult = tensor(6, s.heads, s.queries, s.value_depth),
          .dquery = tensor(7, s.heads, s.queries, s.depth),
          .dkey = tensor(8, s.kv_heads, s.keys, s.depth),
          .dvalue = tensor(9, s.kv_heads, s.keys, s.value_depth),
          .row_products = packed(10, 1),
          .dquery_sums = packed(11, s.depth)};
}

CudnnGraph make_graph(const CudnnLibrary& library, const CudnnTarget& target,
                      const CudnnAttention& attention, bool deterministic) {
  AttentionMaker maker(library, attention);
  return attention.pass == AttentionPass::kForward ? maker.forward(target)
                                                   : maker.backward(target, deterministic);
}

}  // namespace tandem::cuda
