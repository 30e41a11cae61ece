/// @file
/// Data parallelism with the threads of one process: each step copies the model to several devices,
/// each of which computes a part of the batch. As torch.nn.DataParallel, and as DataParallelModel
/// and DataParallelCriterion of PyTorch-Encoding.
/// @code
/// td::parallel::DataParallelModel model(net, {.device_ids = {0, 1, 2, 3}});
/// td::parallel::DataParallelCriterion criterion(td::losses::SparseCategoricalCrossentropy());
/// td::Tensor loss = criterion(model(inputs, {.training = true}), labels);
/// optimizer.zero_grad();
/// loss.backward();
/// optimizer.step();
/// @endcode
///
/// The variables stay on the first device; parameters() are the module's. Copies of them are made
/// in each forward pass and recorded: backward() adds the copies' gradients to the variables', in
/// the order of the devices. Random numbers of an example depend on its position in the batch, so
/// outputs and gradients are those of one device. Replicas compute and exchange nothing: each one
/// normalizes its own part of the batch, and only the first one's assignments to variables (moving
/// averages) are kept, as in PyTorch.
///
/// All of it works inside td::function too, for batches of known sizes. Calls inside a strategy's
/// replica throw RuntimeError.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tandem/errors.h"
#include "tandem/function.h"
#include "tandem/losses.h"
#include "tandem/model.h"

namespace tandem::parallel {

class DeviceGroup;

/// A device: the index of a GPU, or a name such as "/cpu:1".
class DeviceId {
 public:
  /// GPU:`gpu`.
  DeviceId(int gpu) : gpu_(gpu) {}  // NOLINT: as in device_ids = {0, 1}
  /// @{
  /// The device of this name.
  DeviceId(const char* name) : name_(name) {}             // NOLINT
  DeviceId(std::string name) : name_(std::move(name)) {}  // NOLINT
  /// @}
  bool is_index() const { return gpu_.has_value(); }  ///< whether it is the index of a GPU
  /// "GPU:1", or the name that was given.
  std::string name() const { return gpu_ ? "GPU:" + std::to_string(*gpu_) : name_; }

 private:
  std::optional<int> gpu_;
  std::string name_;
};

/// One value for each device that has a part of a batch. Fewer examples than devices give fewer
/// values: those of the first devices. May be an argument and a result of a traced function.
template <class T>
class PerDevice {
 public:
  PerDevice() = default;
  /// For Tandem's own code.
  PerDevice(std::vector<T> values, std::vector<std::int64_t> sizes, std::int64_t dim,
            std::shared_ptr<DeviceGroup> group)
      : values_(std::move(values)), sizes_(std::move(sizes)), dim_(dim), group_(std::move(group)) {}

  std::size_t size() const { return values_.size(); }       ///< number of values
  const std::vector<T>& values() const { return values_; }  ///< the values
  /// The value of a device. Throws OutOfRangeError unless i < size().
  const T& operator[](std::size_t i) const {
    return values_[tandem::detail::checked_index("PerDevice", i, values_.size())];
  }
  /// Sizes of the parts along dim(): the number of examples per device.
  const std::vector<std::int64_t>& sizes() const { return sizes_; }
  std::int64_t dim() const { return dim_; }  ///< the axis that was split
  /// For Tandem's own code.
  const std::shared_ptr<DeviceGroup>& group() const { return group_; }

  /// Lets traced functions take and return it.
  template <class V, class K>
  void visit(const V& visit, const K& key) {
    using tandem::detail::visit_tensors;
    key(static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(group_.get())));
    key(static_cast<std::uint64_t>(dim_));
    visit_tensors(sizes_, visit, key);
    visit_tensors(values_, visit, key);
  }

 private:
  std::vector<T> values_;
  std::vector<std::int64_t> sizes_;
  std::int64_t dim_ = 0;
  std::shared_ptr<DeviceGroup> group_;
};

/// As for other values (tandem/function.h).
template <class T, class V, class K>
void visit_tensors(PerDevice<T>& value, const V& visit, const K& key) {
  value.visit(visit, key);
}

namespace detail {

using TensorLists = std::vector<std::vector<Tensor>>;  // the tensors of a value, per device

std::shared_ptr<DeviceGroup> group_of(const std::vector<DeviceId>& device_ids, const char* who);
// The sizes of the parts of `tensors`, which must be equally long along `dim`.
std::vector<std::int64_t> sizes_of(const std::vector<Tensor>& tensors, DeviceGroup& group,
                                   std::int64_t dim);
TensorLists scatter(const std::vector<Tensor>& tensors, const std::vector<std::int64_t>& sizes,
                    DeviceGroup& group, std::int64_t dim);
// Throws InvalidArgumentError without a group.
std::vector<Tensor> gather(const TensorLists& tensors, DeviceGroup* group,
                           const std::optional<DeviceId>& device, std::int64_t dim);

// The defined tensors of a value.
template <class T>
std::vector<Tensor> tensors_of(const T& value) {
  using tandem::detail::visit_tensors;
  std::vector<Tensor> tensors;
  const auto collect = [&](Tensor& tensor) {
    if (tensor.defined()) tensors.push_back(tensor);
  };
  visit_tensors(const_cast<T&>(value), collect, [](const auto&) {});  // it is not changed
  return tensors;
}

// `value` with other tensors.
template <class T>
T with_tensors(T value, const std::vector<Tensor>& tensors) {
  using tandem::detail::visit_tensors;
  std::size_t next = 0;
  const auto replace = [&](Tensor& tensor) {
    if (tensor.defined()) tensor = tensors[next++];
  };
  visit_tensors(value, replace, [](const auto&) {});
  return value;
}

template <class T>
PerDevice<T> scatter_value(const T& value, const std::shared_ptr<DeviceGroup>& group,
                           std::int64_t dim, std::vector<std::int64_t> sizes) {
  std::vector<T> values;
  for (const auto& tensors : scatter(tensors_of(value), sizes, *group, dim))
    values.push_back(with_tensors(value, tensors));
  return {std::move(values), std::move(sizes), dim, group};
}

template <class T>
PerDevice<T> scatter_value(const T& value, const std::shared_ptr<DeviceGroup>& group,
                           std::int64_t dim) {
  return scatter_value(value, group, dim, sizes_of(tensors_of(value), *group, dim));
}

template <class T>
T gather_values(const PerDevice<T>& values, const std::optional<DeviceId>& device,
                std::int64_t dim) {
  TensorLists tensors;
  for (const T& value : values.values()) tensors.push_back(tensors_of(value));
  const std::vector<Tensor> gathered = gather(tensors, values.group().get(), device, dim);
  return with_tensors(values[0], gathered);
}

}  // namespace detail

// --- the parts of DataParallel ---

/// Splits the tensors of `inputs` (a tensor, an example, or a container or tuple of these) along
/// `dim` into equal parts, which differ by at most one element, and copies them to the devices.
/// Everything else in `inputs` is shared. Differentiable. As torch.nn.parallel.scatter, whose parts
/// are as large as the first one.
///
/// `device_ids`: default: all GPUs. Without a GPU there is one part, `inputs`. Throws
/// InvalidArgumentError for devices that do not exist or are named twice, and for tensors without
/// `dim` or with different sizes along it.
template <class T>
PerDevice<T> scatter(const T& inputs, const std::vector<DeviceId>& device_ids = {},
                     std::int64_t dim = 0) {
  return detail::scatter_value(inputs, detail::group_of(device_ids, "scatter"), dim);
}

/// Concatenates the values along `dim` on a device; scalars become a vector, with a warning.
/// Values may be nested as in scatter(); other parts are the first device's. Differentiable. Throws
/// InvalidArgumentError if the values have different numbers of tensors. As
/// torch.nn.parallel.gather.
template <class T>
T gather(const PerDevice<T>& outputs, const DeviceId& target_device, std::int64_t dim = 0) {
  return detail::gather_values(outputs, target_device, dim);
}

/// The replicas of a model: copies of its variables on several devices.
class Replicas {
 public:
  /// For Tandem's own code; users call replicate().
  struct State;
  /// For Tandem's own code.
  explicit Replicas(std::shared_ptr<State> state) : state_(std::move(state)) {}

  std::size_t size() const;     ///< number of replicas
  const Model& module() const;  ///< the model
  /// For Tandem's own code: calls `call` with the number of each device that has a part of `sizes`.
  void run(const std::vector<std::int64_t>& sizes, std::int64_t dim,
           const std::function<void(std::size_t)>& call) const;

 private:
  std::shared_ptr<State> state_;
};

/// Copies the model's variables to the devices. Differentiable: gradients of the copies are summed
/// into the variables'. The copies keep their values when the variables change. As
/// torch.nn.parallel.replicate.
///
/// Throws InvalidArgumentError "module must have its parameters and buffers on device ...
/// (device_ids[0]) but found one of them on device: ..." if a variable is elsewhere, and for
/// variables of a strategy. Throws FailedPreconditionError if the model is not built.
Replicas replicate(const Model& module, const std::vector<DeviceId>& device_ids = {});

/// Calls `forward(part)` for each part, in parallel, on the part's device. In a call, variables of
/// the replicated model are the device's copies. The threads have the caller's grad mode and random
/// generator. If a call throws, the first error is thrown here. As
/// torch.nn.parallel.parallel_apply.
///
/// Optimizer steps, collectives and assignments to variables of other models throw in `forward`,
/// and so do traced functions that read variables.
template <std::invocable<const Tensor&> Forward>
auto parallel_apply(const Replicas& replicas, const Forward& forward,
                    const PerDevice<Tensor>& inputs) {
  std::vector<std::invoke_result_t<const Forward&, const Tensor&>> results(inputs.size());
  replicas.run(inputs.sizes(), inputs.dim(),
               [&](std::size_t device) { results[device] = forward(inputs[device]); });
  return PerDevice(std::move(results), inputs.sizes(), inputs.dim(), inputs.group());
}

/// The same for arguments that were scattered as a tuple.
template <class Forward, class... Args>
auto parallel_apply(const Replicas& replicas, const Forward& forward,
                    const PerDevice<std::tuple<Args...>>& inputs) {
  std::vector<std::invoke_result_t<const Forward&, const Args&...>> results(inputs.size());
  replicas.run(inputs.sizes(), inputs.dim(),
               [&](std::size_t device) { results[device] = std::apply(forward, inputs[device]); });
  return PerDevice(std::move(results), inputs.sizes(), inputs.dim(), inputs.group());
}

// --- models ---

/// Options of DataParallelModel. As the arguments of its namesake in PyTorch-Encoding.
struct DataParallelModelOptions {
  /// Devices; the model's variables are on the first one. Default: all GPUs. Without a GPU, indices
  /// are ignored and a call is a plain call of the model, as in PyTorch.
  std::vector<DeviceId> device_ids{};
  std::int64_t dim = 0;  ///< axis along which inputs are split
};

/// A model whose batches are computed by several devices and whose outputs stay there, so that no
/// device holds all of them. DataParallelCriterion computes the loss. A shared handle; one thread
/// at a time may call it. As DataParallelModel of PyTorch-Encoding.
class DataParallelModel {
 public:
  /// Throws InvalidArgumentError for devices that do not exist or are named twice. Logs a warning
  /// "There is an imbalance between your GPUs. ..." if a device has less than 75 % of another one's
  /// memory or cores.
  explicit DataParallelModel(Model module, const DataParallelModelOptions& options = {});

  /// @{
  /// Runs the forward pass on each device that gets a part of the inputs; on the first one alone if
  /// there are no examples. Builds the model if necessary. Throws the errors of scatter() and
  /// replicate(), and UnimplementedError for a batch of unknown size in a traced function.
  PerDevice<Tensor> operator()(const Tensor& input, const CallOptions& options = {}) const;
  PerDevice<Tensor> operator()(TensorList inputs, const CallOptions& options = {}) const;
  /// @}
  /// Runs `forward` on each device with its parts of `args`, which may be nested as in scatter().
  /// `forward` calls the model or its layers and returns any value of tensors: several outputs, a
  /// struct with visit_tensors(). See parallel_apply().
  template <class Forward, class... Args>
  auto run(const Forward& forward, const Args&... args) const {
    using Parts = std::tuple<std::decay_t<const Args>...>;
    const PerDevice<Parts> parts = detail::scatter_value(Parts{args...}, group_, dim_);
    return parallel_apply(replicas(parts.size()), forward, parts);
  }

  const Model& module() const { return module_; }  ///< the wrapped model
  /// The wrapped model, as in save_weights(model, path).
  operator const Model&() const { return module(); }  // NOLINT: as in save_weights(model, path)
  /// All variables of the model.
  std::vector<Variable> variables() const { return module().variables(); }
  /// Trainable variables of the model.
  std::vector<Variable> parameters() const { return module().trainable_variables(); }
  /// Full names of the devices; none if calls are plain calls.
  std::vector<std::string> devices() const;
  std::int64_t dim() const { return dim_; }  ///< axis along which inputs are split

 private:
  Replicas replicas(std::size_t count) const;

  Model module_;
  std::int64_t dim_;
  std::shared_ptr<DeviceGroup> group_;
};

/// Options of DataParallel. As the arguments of torch.nn.DataParallel.
struct DataParallelOptions {
  /// Devices; the model's variables are on the first one. Default: all GPUs. Without a GPU, indices
  /// are ignored and a call is a plain call of the model, as in PyTorch.
  std::vector<DeviceId> device_ids{};
  /// Device of the outputs. Default: the first device.
  std::optional<DeviceId> output_device{};
  std::int64_t dim = 0;  ///< axis along which inputs are split and outputs are joined
};

/// A model whose batches are computed by several devices and whose outputs are gathered on one. A
/// shared handle; one thread at a time may call it. As torch.nn.DataParallel.
///
/// A call is replicate(), scatter(), parallel_apply() and gather(). The output device holds the
/// outputs of all devices; DataParallelModel balances the memory. Operations on the outputs run
/// where placement puts them: open a DeviceScope of the output device for the loss.
class DataParallel {
 public:
  /// As DataParallelModel's constructor.
  explicit DataParallel(Model module, const DataParallelOptions& options = {});

  /// @{
  /// Runs the forward pass, as DataParallelModel does, and returns the gathered outputs.
  Tensor operator()(const Tensor& input, const CallOptions& options = {}) const;
  Tensor operator()(TensorList inputs, const CallOptions& options = {}) const;
  /// @}
  /// As DataParallelModel::run(), with the results gathered: each tensor of the results is joined
  /// along dim.
  template <class Forward, class... Args>
  auto run(const Forward& forward, const Args&... args) const {
    return detail::gather_values(model_.run(forward, args...), output_device_, model_.dim());
  }

  const Model& module() const { return model_.module(); }  ///< the wrapped model
  /// The wrapped model, as in save_weights(model, path).
  operator const Model&() const { return module(); }  // NOLINT: as in save_weights(model, path)
  /// All variables of the model.
  std::vector<Variable> variables() const { return module().variables(); }
  /// Trainable variables of the model.
  std::vector<Variable> parameters() const { return module().trainable_variables(); }
  /// Full names of the devices; none if calls are plain calls.
  std::vector<std::string> devices() const { return model_.devices(); }

 private:
  DataParallelModel model_;
  std::optional<DeviceId> output_device_;
};

// --- the loss ---

/// Options of DataParallelCriterion.
struct DataParallelCriterionOptions {
  /// Weights the devices' losses by their numbers of examples: the result is the loss of the whole
  /// batch, also if it is uneven. If false: the mean of the devices' losses, as in
  /// PyTorch-Encoding.
  bool average_by_examples = true;
  /// Device of the result. Default: the first device.
  std::optional<DeviceId> output_device{};
};

namespace detail {

enum class Combine { kWeightedMean, kMean, kSum };
// Combines scalars as `combine` says; joins other tensors along the first axis.
Tensor combine_losses(const PerDevice<Tensor>& losses, Combine combine,
                      const std::optional<DeviceId>& device);
// Calls `call` for each device that `values` has a value of.
void run_on_devices(DeviceGroup& group, const std::vector<std::int64_t>& sizes, std::int64_t dim,
                    const std::function<void(std::size_t)>& call);
void require_outputs(std::size_t count);

}  // namespace detail

/// Computes a loss on the devices that hold the outputs of a DataParallelModel, in parallel, and
/// combines the devices' losses. As DataParallelCriterion of PyTorch-Encoding.
///
/// `Criterion` is losses::Loss, or a callable `Tensor(output, target)`. A scalar result is the mean
/// over the part's examples, or the sum with Reduction::kSum; other results, such as one value per
/// example with Reduction::kNone, are joined.
template <class Criterion = losses::Loss>
class DataParallelCriterion {
 public:
  /// Makes a criterion.
  explicit DataParallelCriterion(Criterion criterion,
                                 const DataParallelCriterionOptions& options = {})
      : criterion_(std::move(criterion)), options_(options) {}

  /// The loss of `outputs` and the batch's targets (of any structure, split as the inputs were).
  /// Throws InvalidArgumentError if the targets have another number of examples than the outputs.
  template <class Output, class Target>
  Tensor operator()(const PerDevice<Output>& outputs, const Target& targets) const {
    return compute(outputs, targets, [&](const Output& output, const Target& target) {
      if constexpr (kIsLoss)
        return criterion_(target, output);
      else
        return criterion_(output, target);
    });
  }
  /// The same with a weight per example. For losses::Loss only.
  template <class Output>
  requires std::derived_from<Criterion, losses::Loss> Tensor operator()(
      const PerDevice<Output>& outputs, const Tensor& targets, const Tensor& sample_weight) const {
    return compute(outputs, std::pair(targets, sample_weight),
                   [&](const Output& output, const std::pair<Tensor, Tensor>& target) {
                     return criterion_(target.first, output, target.second);
                   });
  }

 private:
  static constexpr bool kIsLoss = std::derived_from<Criterion, losses::Loss>;

  template <class Output, class Target, class Call>
  Tensor compute(const PerDevice<Output>& outputs, const Target& targets, const Call& call) const {
    detail::require_outputs(outputs.size());
    const PerDevice<Target> parts =
        detail::scatter_value(targets, outputs.group(), outputs.dim(), outputs.sizes());
    std::vector<Tensor> losses(outputs.size());
    detail::run_on_devices(*outputs.group(), outputs.sizes(), outputs.dim(),
                           [&](std::size_t i) { losses[i] = call(outputs[i], parts[i]); });
    return detail::combine_losses(
        PerDevice<Tensor>(std::move(losses), outputs.sizes(), outputs.dim(), outputs.group()),
        combine(), options_.output_device);
  }

  detail::Combine combine() const {
    if (!options_.average_by_examples) return detail::Combine::kMean;
    if constexpr (kIsLoss)
      if (criterion_.reduction() == losses::Reduction::kSum) return detail::Combine::kSum;
    return detail::Combine::kWeightedMean;
  }

  Criterion criterion_;
  DataParallelCriterionOptions options_;
};

/// @{
/// DataParallelCriterion("mse") uses the loss of that name.
DataParallelCriterion(const char*)->DataParallelCriterion<losses::Loss>;
DataParallelCriterion(std::string)->DataParallelCriterion<losses::Loss>;
DataParallelCriterion(const char*, const DataParallelCriterionOptions&)
    ->DataParallelCriterion<losses::Loss>;
DataParallelCriterion(std::string, const DataParallelCriterionOptions&)
    ->DataParallelCriterion<losses::Loss>;
/// @}

}  // namespace tandem::parallel
