/// @file
/// Generating sequences, a few positions at a time.
///
///     td::KeyValueCache cache(1024);
///     td::Tensor logits = cache(model, prompt);                  // all positions of the prompt
///     for (...) logits = cache(model, next_token(logits));       // one position
#pragma once

#include <cstdint>
#include <memory>

#include "tandem/layer.h"
#include "tandem/tensor.h"

namespace tandem {

/// Keys and values that the MultiHeadAttention layers of one model have computed for the positions
/// of one batch of sequences, so that the next position costs one position. As StaticCache of
/// transformers.
///
/// The memory is allocated at the first call, for all positions. Calls may be part of a traced
/// function, which needs one trace for the first positions and one for those that follow. A handle:
/// copies refer to the same memory. Not thread-safe: one call at a time.
class KeyValueCache {
 public:
  /// For sequences of at most `capacity` positions. Throws InvalidArgumentError unless it is
  /// positive.
  explicit KeyValueCache(std::int64_t capacity);

  /// The result of `model`, without training and gradients, for positions that follow those of
  /// earlier calls: the last ones of what model(all positions) returns. `input`: [batch, positions]
  /// or [batch, positions, features], as the model takes it, with a known number of positions.
  ///
  /// MultiHeadAttention layers attend to the earlier positions, PositionEmbedding layers continue
  /// to count; other layers must compute each position by itself, as all of a transformer do.
  ///
  /// Throws FailedPreconditionError if the model has no variables yet, UnimplementedError in a
  /// GraphScope and in replicas of a strategy. Throws InvalidArgumentError for a batch of another
  /// size than in the first call, a layer that is not self-attention with use_causal_mask, and
  /// positions beyond the capacity (on a GPU the next wait throws this); call reset() after an
  /// error.
  Tensor operator()(const Layer& model, const Tensor& input) const;
  /// Forgets all positions: the next call has the first positions of other sequences.
  void reset() const;
  std::int64_t capacity() const;  ///< the most positions

  /// For Tandem's own code.
  struct Impl;

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace tandem
