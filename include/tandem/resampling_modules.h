/// @file
/// Resizing of sequences, images and volumes [batch, channels, ...], windows as columns and the
/// reverse, further pooling, and products of two inputs; as functions and modules with PyTorch's
/// names, layouts and defaults. As torch.nn.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/convolution_modules.h"
#include "tandem/image_modules.h"
#include "tandem/module.h"
#include "tandem/tensor.h"
#include "tandem/variable.h"

namespace tandem::nn {

/// Options of functional::interpolate() and Upsample. As the arguments of
/// torch.nn.functional.interpolate, without antialiasing: see image::resize() for that.
struct InterpolateOptions {
  std::vector<std::int64_t> size{};    ///< sizes of the result: one for all axes, or one for each
  std::vector<double> scale_factor{};  ///< or factors: one for all axes, or one for each
  /// "nearest", "nearest-exact", "linear" (of sequences), "bilinear" and "bicubic" (of images),
  /// "trilinear" (of volumes) or "area".
  std::string mode = "nearest";
  /// Whether the centers of the elements at the corners stay, of the modes between "linear" and
  /// "trilinear"; else the edges of these elements do.
  bool align_corners = false;
  bool recompute_scale_factor = false;  ///< whether factors are computed anew from the sizes
};
/// Options of functional::unfold(), fold() and their modules. As the arguments of torch.nn.Unfold.
struct FoldOptions {
  Pair dilation = 1;  ///< spacing of the elements of a window
  Pair padding = 0;   ///< zeros on each side
  Pair stride = 1;    ///< distance of windows
};
/// Options of functional::lp_pool1d(). As its arguments in PyTorch.
struct LpPool1dArguments {
  std::optional<std::int64_t> stride{};  ///< default: the size of windows
  bool ceil_mode = false;                ///< whether a window may end beyond the input
};
/// The same of lp_pool2d().
struct LpPool2dArguments {
  OptionalPair stride{};   ///< default: the size of windows
  bool ceil_mode = false;  ///< whether a window may end beyond the input
};
/// The same of lp_pool3d().
struct LpPool3dArguments {
  OptionalTriple stride{};  ///< default: the size of windows
  bool ceil_mode = false;   ///< whether a window may end beyond the input
};

namespace functional {
/// x resized along its axes after the channels. Throws InvalidArgumentError unless there is either
/// a size or a factor, and for a mode of another rank. As torch.nn.functional.interpolate.
[[nodiscard]] Tensor interpolate(const Tensor& x, const InterpolateOptions& options);
/// The windows of images [batch, channels, height, width] as columns: [batch, channels * elements
/// of a window, windows]; also without the batch axis. Throws InvalidArgumentError for windows that
/// do not fit. As torch.nn.functional.unfold.
[[nodiscard]] Tensor unfold(const Tensor& x, Pair kernel_size, const FoldOptions& options = {});
/// The reverse, where elements of several windows are added: images of `output_size`. Throws
/// ShapeError for another number of columns. As torch.nn.functional.fold.
[[nodiscard]] Tensor fold(const Tensor& x, Pair output_size, Pair kernel_size,
                          const FoldOptions& options = {});
/// @{
/// The root of order p of the sum of the elements of windows to the power of p. As
/// torch.nn.functional.lp_pool1d.
[[nodiscard]] Tensor lp_pool1d(const Tensor& x, double p, std::int64_t kernel_size,
                               const LpPool1dArguments& options = {});
[[nodiscard]] Tensor lp_pool2d(const Tensor& x, double p, Pair kernel_size,
                               const LpPool2dArguments& options = {});
[[nodiscard]] Tensor lp_pool3d(const Tensor& x, double p, Triple kernel_size,
                               const LpPool3dArguments& options = {});
/// @}
/// x1^T W_o x2 for each of the matrices of `weight`, [out, in1, in2], plus `bias`, [out], which may
/// be undefined: [..., out] from [..., in1] and [..., in2]. As torch.nn.functional.bilinear.
[[nodiscard]] Tensor bilinear(const Tensor& x1, const Tensor& x2, const Tensor& weight,
                              const Tensor& bias = {});
/// The p-norms of the differences of all pairs of rows of a matrix. As
/// torch.nn.functional.pdist.
[[nodiscard]] Tensor pdist(const Tensor& x, double p = 2.0);
}  // namespace functional

/// functional::interpolate() as a module. As torch.nn.Upsample.
class Upsample : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  explicit Upsample(const InterpolateOptions& options);  ///< a module
};
/// functional::unfold() as a module. As torch.nn.Unfold.
class Unfold : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  explicit Unfold(Pair kernel_size, const FoldOptions& options = {});  ///< a module
};
/// functional::fold() as a module. As torch.nn.Fold.
class Fold : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  Fold(Pair output_size, Pair kernel_size, const FoldOptions& options = {});  ///< a module
};
/// functional::lp_pool1d() as a module. As torch.nn.LPPool1d.
class LPPool1d : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  LPPool1d(double norm_type, std::int64_t kernel_size,
           const LpPool1dArguments& options = {});  ///< a module
};
/// functional::lp_pool2d() as a module. As torch.nn.LPPool2d.
class LPPool2d : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  LPPool2d(double norm_type, Pair kernel_size,
           const LpPool2dArguments& options = {});  ///< a module
};
/// functional::lp_pool3d() as a module. As torch.nn.LPPool3d.
class LPPool3d : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  LPPool3d(double norm_type, Triple kernel_size,
           const LpPool3dArguments& options = {});  ///< a module
};

/// The module of Bilinear.
class BilinearImpl : public Module {
 public:
  BilinearImpl(std::int64_t in1, std::int64_t in2, std::int64_t out, bool bias);  ///< as Bilinear
  /// functional::bilinear()
  Tensor forward(const Tensor& input1, const Tensor& input2) override;

  Variable weight;  ///< [out, in1, in2]
  Variable bias;    ///< [out]; undefined without a bias
};
/// functional::bilinear() as a module, whose parameters start uniform in +-1 / sqrt(in1_features).
/// As torch.nn.Bilinear.
class Bilinear : public ModuleHolder<BilinearImpl> {
 public:
  using ModuleHolder::ModuleHolder;
  Bilinear() = default;  ///< an empty handle, to be assigned
  /// Throws InvalidArgumentError for a number of features below 1.
  Bilinear(std::int64_t in1_features, std::int64_t in2_features, std::int64_t out_features,
           bool bias = true);
};

}  // namespace tandem::nn
