/// @file
/// Normalization of each example, as functions and modules with PyTorch's names, layouts [batch,
/// channels, ...] and defaults. As torch.nn. 16-bit dtypes are computed in float32.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "tandem/module.h"
#include "tandem/tensor.h"
#include "tandem/variable.h"

namespace tandem::nn {

namespace functional {
/// Zero mean and unit variance in each of `groups` groups of channels of each example, which the
/// groups must divide (ShapeError); then times `weight` and plus `bias`, [channels], which may be
/// undefined. As torch.nn.functional.group_norm.
[[nodiscard]] Tensor group_norm(const Tensor& x, std::int64_t groups, const Tensor& weight = {},
                                const Tensor& bias = {}, double eps = 1e-5);
/// The same in each channel. As torch.nn.functional.instance_norm with its moments of the input.
[[nodiscard]] Tensor instance_norm(const Tensor& x, const Tensor& weight = {},
                                   const Tensor& bias = {}, double eps = 1e-5);
/// x divided by the root of the mean of its squares over the last axes, which have the sizes
/// `normalized_shape` (ShapeError otherwise); then times `weight`, of this shape, which may be
/// undefined. `eps` is added to the mean; by default it is the distance of 1 to the next number of
/// the dtype that is computed in. As torch.nn.functional.rms_norm.
[[nodiscard]] Tensor rms_norm(const Tensor& x, const Dims& normalized_shape,
                              const Tensor& weight = {}, std::optional<double> eps = std::nullopt);
/// x / (k + alpha * m)^beta, where m is the mean of the squares of `size` channels around each one,
/// with zeros outside. Throws InvalidArgumentError for a size below 1. As
/// torch.nn.functional.local_response_norm.
[[nodiscard]] Tensor local_response_norm(const Tensor& x, std::int64_t size, double alpha = 1e-4,
                                         double beta = 0.75, double k = 1.0);
}  // namespace functional

/// Options of GroupNorm. As the arguments of torch.nn.GroupNorm.
struct GroupNormOptions {
  double eps = 1e-5;   ///< added to the variance
  bool affine = true;  ///< whether there are a weight and a bias
};
/// Options of InstanceNorm1d, 2d and 3d. As the arguments of torch.nn.InstanceNorm2d, without
/// running moments.
struct InstanceNormOptions {
  double eps = 1e-5;    ///< added to the variance
  bool affine = false;  ///< whether there are a weight and a bias
};
/// The module of GroupNorm and of InstanceNorm1d, 2d and 3d.
class GroupNormImpl : public Module {
 public:
  /// `least_rank`: of the input, and `most_rank`.
  GroupNormImpl(const char* kind, std::int64_t groups, std::int64_t channels, int least_rank,
                int most_rank, double eps, bool affine);
  Tensor forward(const Tensor& input) const override;  ///< functional::group_norm()
  std::string kind() const override { return kind_; }

  Variable weight;  ///< [channels]; undefined unless affine
  Variable bias;    ///< [channels]; undefined unless affine

 private:
  const char* kind_;
  std::int64_t groups_, channels_;
  int least_rank_, most_rank_;
  double eps_;
};
/// functional::group_norm() as a module. As torch.nn.GroupNorm.
class GroupNorm : public ModuleHolder<GroupNormImpl> {
 public:
  using ModuleHolder::ModuleHolder;
  GroupNorm() = default;  ///< an empty handle, to be assigned
  /// Throws InvalidArgumentError unless the groups divide the channels.
  GroupNorm(std::int64_t num_groups, std::int64_t num_channels,
            const GroupNormOptions& options = {});
};
/// For Tandem's own code: functional::instance_norm() of inputs with `kAxes` axes after the
/// channels.
template <int kAxes>
class InstanceNorm : public ModuleHolder<GroupNormImpl> {
 public:
  using ModuleHolder<GroupNormImpl>::ModuleHolder;
  InstanceNorm() = default;  ///< an empty handle, to be assigned
  /// For this number of channels.
  explicit InstanceNorm(std::int64_t num_features, const InstanceNormOptions& options = {})
      : ModuleHolder<GroupNormImpl>(
            std::make_shared<GroupNormImpl>("instance_norm", num_features, num_features, kAxes + 2,
                                            kAxes + 2, options.eps, options.affine)) {}
};
using InstanceNorm1d = InstanceNorm<1>;  ///< as torch.nn.InstanceNorm1d
using InstanceNorm2d = InstanceNorm<2>;  ///< as torch.nn.InstanceNorm2d
using InstanceNorm3d = InstanceNorm<3>;  ///< as torch.nn.InstanceNorm3d

/// Options of RMSNorm. As the arguments of torch.nn.RMSNorm.
struct RMSNormOptions {
  std::optional<double> eps{};     ///< added to the mean; default: that of functional::rms_norm()
  bool elementwise_affine = true;  ///< whether there is a weight
};
/// The module of RMSNorm.
class RMSNormImpl : public Module {
 public:
  RMSNormImpl(const Dims& normalized_shape, const RMSNormOptions& options);  ///< as RMSNorm
  Tensor forward(const Tensor& input) const override;  ///< functional::rms_norm()

  Variable weight;  ///< of the normalized shape; undefined unless elementwise_affine

 private:
  Dims shape_;
  std::optional<double> eps_;
};
/// functional::rms_norm() as a module. As torch.nn.RMSNorm.
class RMSNorm : public ModuleHolder<RMSNormImpl> {
 public:
  using ModuleHolder::ModuleHolder;
  RMSNorm() = default;  ///< an empty handle, to be assigned
  /// @{
  /// Over the last axes, of these sizes, or over the last one.
  explicit RMSNorm(const Dims& normalized_shape, const RMSNormOptions& options = {});
  explicit RMSNorm(std::int64_t size, const RMSNormOptions& options = {})
      : RMSNorm(Dims{size}, options) {}
  /// @}
};

/// Options of LocalResponseNorm. As the arguments of torch.nn.LocalResponseNorm.
struct LocalResponseNormOptions {
  double alpha = 1e-4;  ///< factor of the mean of squares
  double beta = 0.75;   ///< exponent
  double k = 1.0;       ///< added
};
/// functional::local_response_norm() as a module. As torch.nn.LocalResponseNorm.
class LocalResponseNorm : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  /// Over this number of channels.
  explicit LocalResponseNorm(std::int64_t size, const LocalResponseNormOptions& options = {});
};

}  // namespace tandem::nn
