/// @file
/// Sampling of images and volumes at any positions, and sums of rows of a table, with PyTorch's
/// names, layouts and defaults. As torch.nn.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "tandem/module.h"
#include "tandem/shape.h"
#include "tandem/tensor.h"
#include "tandem/variable.h"

namespace tandem::nn {

/// Options of grid_sample(). As the arguments of torch.nn.functional.grid_sample.
struct GridSampleOptions {
  std::string mode = "bilinear";  ///< "bilinear", "nearest" or "bicubic"
  /// The elements beyond the input: "zeros", that at the "border", or its "reflection".
  std::string padding_mode = "zeros";
  /// Whether -1 and 1 are the centers of the elements at the corners; else the edges of these
  /// elements.
  bool align_corners = false;
};
/// Options of affine_grid().
struct AffineGridOptions {
  bool align_corners = false;  ///< as GridSampleOptions::align_corners
};
/// Options of embedding_bag(). As the arguments of torch.nn.functional.embedding_bag, without
/// max_norm, scale_grad_by_freq and sparse, and with its layout of offsets.
struct EmbeddingBagOptions {
  std::string mode = "mean";  ///< "sum", "mean" or "max"
  /// A factor for each index, of the indices' shape; of sums alone. Undefined: all 1.
  Tensor per_sample_weights{};
  bool include_last_offset = false;  ///< whether the offsets end with the number of indices
  std::optional<std::int64_t> padding_idx{};  ///< an index that does not count; default: none
};

namespace functional {
/// The elements of x [batch, channels, height, width] at the positions of `grid` [batch, rows,
/// columns, 2], as (column, row) from -1 to 1: [batch, channels, rows, columns]; or of volumes
/// [batch, channels, depth, height, width] at [batch, slices, rows, columns, 3], as (column, row,
/// slice). Differentiable with respect to both. Throws ShapeError for other shapes, DTypeError for
/// other dtypes than one floating dtype of both, and InvalidArgumentError for other modes. As
/// torch.nn.functional.grid_sample.
[[nodiscard]] Tensor grid_sample(const Tensor& x, const Tensor& grid,
                                 const GridSampleOptions& options = {});
/// The grid by which grid_sample() transforms images: at each position of images of shape `size`,
/// [batch, channels, height, width], the product of theta [batch, 2, 3] and (column, row, 1); or
/// of volumes with theta [batch, 3, 4]. Throws ShapeError for other shapes. As
/// torch.nn.functional.affine_grid.
[[nodiscard]] Tensor affine_grid(const Tensor& theta, const Shape& size,
                                 const AffineGridOptions& options = {});
/// The sum, mean or maximum of the rows of `weight` [rows, features] at the indices of each bag:
/// [bags, features], zeros for a bag without any. `input` [bags, indices] has a bag per row; or it
/// is a vector, and `offsets`, a vector of int32 or int64, says where each bag begins, the first
/// one at 0. Throws ShapeError for other shapes, DTypeError for other dtypes, and
/// InvalidArgumentError for another mode and for an index out of range. As
/// torch.nn.functional.embedding_bag.
[[nodiscard]] Tensor embedding_bag(const Tensor& input, const Tensor& weight,
                                   const Tensor& offsets = {},
                                   const EmbeddingBagOptions& options = {});
}  // namespace functional

/// Options of EmbeddingBag. As the arguments of torch.nn.EmbeddingBag, likewise.
struct EmbeddingBagArguments {
  std::string mode = "mean";                  ///< "sum", "mean" or "max"
  bool include_last_offset = false;           ///< as EmbeddingBagOptions::include_last_offset
  std::optional<std::int64_t> padding_idx{};  ///< an index that does not count; default: none
};
/// The module of EmbeddingBag.
class EmbeddingBagImpl : public Module {
 public:
  EmbeddingBagImpl(std::int64_t num_embeddings, std::int64_t embedding_dim,
                   const EmbeddingBagArguments& options);  ///< as EmbeddingBag
  Tensor forward(const Tensor& input) const override;      ///< of a matrix: a bag per row
  Tensor forward(const Tensor& input, const Tensor& offsets) override;  ///< of a vector
  bool casts_inputs() const override { return false; }

  Variable weight;  ///< [num_embeddings, embedding_dim]

 private:
  EmbeddingBagArguments options_;
};
/// functional::embedding_bag() with a table that starts standard normal, with zeros in the row of
/// padding_idx. As torch.nn.EmbeddingBag.
class EmbeddingBag : public ModuleHolder<EmbeddingBagImpl> {
 public:
  using ModuleHolder::ModuleHolder;
  EmbeddingBag() = default;  ///< an empty handle, to be assigned
  /// A table of this size. Throws InvalidArgumentError for a size below 1 and a padding_idx out of
  /// range.
  EmbeddingBag(std::int64_t num_embeddings, std::int64_t embedding_dim,
               const EmbeddingBagArguments& options = {});
};

}  // namespace tandem::nn
