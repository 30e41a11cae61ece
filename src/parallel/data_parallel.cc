// replicate, scatter, parallel_apply and gather, and the models made of them.
#include "tandem/data_parallel.h"

#include <algorithm>
#include <mutex>
#include <numeric>
#include <optional>

#include "core/log.h"
#include "core/status.h"
#include "device/device_manager.h"
#include "op/record.h"
#include "parallel/device_group.h"
#include "runtime/placement.h"
#include "tandem/array.h"
#include "tandem/math.h"
#include "train/model_impl.h"

namespace tandem::parallel {
namespace {

constexpr double kImbalance = 0.75;  // as in PyTorch

std::vector<DeviceImpl*> resolve(const std::vector<DeviceId>& ids, const char* who) {
  const std::span<DeviceImpl* const> gpus = DeviceManager::get().devices(DeviceType::kGpu, who);
  if (ids.empty()) return {gpus.begin(), gpus.end()};
  std::vector<DeviceImpl*> devices;
  for (const DeviceId& id : ids) {
    if (id.is_index() && gpus.empty()) continue;
    DeviceImpl& device = resolve_device(id.name(), who);
    if (std::find(devices.begin(), devices.end(), &device) != devices.end())
      fail<InvalidArgumentError>("[{}] expected different devices in device_ids, got {} twice", who,
                                 device.full_name());
    devices.push_back(&device);
  }
  return devices;
}

// Warns if the least of a property of the GPUs is below 75 % of the largest. Returns whether.
template <class Property>
bool warn_of_imbalance(const std::vector<DeviceImpl*>& gpus, const Property& property) {
  const auto [least, most] = std::minmax_element(
      gpus.begin(), gpus.end(),
      [&](DeviceImpl* a, DeviceImpl* b) { return property(*a) < property(*b); });
  if (static_cast<double>(property(**least)) >= kImbalance * static_cast<double>(property(**most)))
    return false;
  logging::warn(
      "There is an imbalance between your GPUs. You may want to exclude GPU {} which has less than "
      "75% of the memory or cores of GPU {}. You can do so by setting the device_ids argument to "
      "DataParallel, or by setting the CUDA_VISIBLE_DEVICES environment variable.",
      (*least)->index(), (*most)->index());
  return true;
}

void check_balance(const std::vector<DeviceImpl*>& devices) {
  std::vector<DeviceImpl*> gpus;
  for (DeviceImpl* device : devices)
    if (device->type() == DeviceType::kGpu) gpus.push_back(device);
  if (gpus.empty()) return;
  if (!warn_of_imbalance(gpus, [](DeviceImpl& gpu) { return gpu.allocator().stats().bytes_limit; }))
    warn_of_imbalance(gpus, [](DeviceImpl& gpu) { return gpu.intra_op_threads(); });
}

// The device of a result; null: where it is, because there are no devices.
DeviceImpl* target(const DeviceGroup& group, const std::optional<DeviceId>& device,
                   const char* who) {
  if (!device) return group.devices().empty() ? nullptr : group.devices().front();
  if (device->is_index() && group.devices().empty()) return nullptr;
  return &resolve_device(device->name(), who);
}

// `tensor` on `device`, recorded so that its gradient is moved back once.
Tensor on_device(const Tensor& tensor, DeviceImpl* device) {
  if (!device) return tensor;
  const OnDevice on(*device);
  return identity(tensor);
}

// The parts as views if nothing is recorded.
std::vector<Tensor> parts_of(const Tensor& tensor, const std::vector<std::int64_t>& sizes,
                             std::int64_t dim) {
  if (sizes.size() == 1) return {tensor};
  const OnDeviceOf on(tensor);
  if (dim != 0 || (context.records && is_tracked(tensor))) return split(tensor, sizes, dim);
  std::vector<Tensor> parts;
  std::int64_t begin = 0;
  for (const std::int64_t size : sizes) {
    parts.push_back(slice_rows(tensor, begin, begin + size));
    begin += size;
  }
  return parts;
}

std::int64_t length(const Tensor& tensor, std::int64_t dim) {
  if (dim >= tensor.rank() || dim < -tensor.rank())
    fail<InvalidArgumentError>("[scatter] expected tensors with axis {}, got shape {}", dim,
                               tensor.shape().to_string());
  return tensor.size_word(dim);
}

}  // namespace

namespace detail {

std::shared_ptr<DeviceGroup> group_of(const std::vector<DeviceId>& device_ids, const char* who) {
  return std::make_shared<DeviceGroup>(resolve(device_ids, who));
}

std::vector<std::int64_t> sizes_of(const std::vector<Tensor>& tensors, DeviceGroup& group,
                                   std::int64_t dim) {
  if (tensors.empty()) return {0};
  const std::int64_t examples = length(tensors.front(), dim);
  for (const Tensor& tensor : tensors)
    if (length(tensor, dim) != examples)
      fail<InvalidArgumentError>(
          "[scatter] expected tensors with equal sizes of axis {}, got shapes {} and {}", dim,
          tensors.front().shape().to_string(), tensor.shape().to_string());
  if (examples < 0 && group.size() > 1)
    fail<UnimplementedError>(
        "[scatter] expected a known size of axis {}, got shape {}: leave out input_signature", dim,
        tensors.front().shape().to_string());
  return group.size() == 1 ? std::vector{examples} : group.split(examples);
}

TensorLists scatter(const std::vector<Tensor>& tensors, const std::vector<std::int64_t>& sizes,
                    DeviceGroup& group, std::int64_t dim) {
  const Scoped tag(memory_tag, MemoryTag::kOther);
  const std::int64_t examples = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  TensorLists parts(sizes.size());
  for (const Tensor& tensor : tensors) {
    if (length(tensor, dim) != examples)
      fail<InvalidArgumentError>(
          "[scatter] expected {} examples along axis {}, as the outputs have, got shape {}",
          examples, dim, tensor.shape().to_string());
    const std::vector<Tensor> of_tensor = parts_of(tensor, sizes, dim);
    for (std::size_t i = 0; i < sizes.size(); ++i)
      parts[i].push_back(
          on_device(of_tensor[i], group.devices().empty() ? nullptr : group.devices()[i]));
  }
  return parts;
}

namespace {

Tensor joined(const std::vector<Tensor>& tensors, std::int64_t dim) {
  if (tensors.front().rank() > 0)
    return tensors.size() == 1 ? identity(tensors.front()) : concat(tensors, dim);
  static std::once_flag once;
  std::call_once(once, [] {
    logging::warn(
        "Was asked to gather along dimension 0, but all input tensors were scalars; will instead "
        "unsqueeze and return a vector.");
  });
  return stack(tensors);
}

}  // namespace

std::vector<Tensor> gather(const TensorLists& tensors, DeviceGroup* group,
                           const std::optional<DeviceId>& device, std::int64_t dim) {
  if (!group) throw InvalidArgumentError("[gather] expected values of devices, got none");
  DeviceImpl* to = target(*group, device, "gather");
  if (!to) return tensors.front();
  std::vector<Tensor> results;
  for (std::size_t i = 0; i < tensors.front().size(); ++i) {
    std::vector<Tensor> of_devices;
    for (std::size_t from = 0; from < tensors.size(); ++from) {
      if (tensors[from].size() != tensors.front().size())
        fail<InvalidArgumentError>(
            "[gather] expected equally many tensors from every device, got {} from the first and "
            "{} from another one",
            tensors.front().size(), tensors[from].size());
      of_devices.push_back(on_device(tensors[from][i], group->devices()[from]));
    }
    const OnDevice on(*to);
    results.push_back(group->size() == 1 ? identity(of_devices.front()) : joined(of_devices, dim));
  }
  return results;
}

Tensor combine_losses(const PerDevice<Tensor>& losses, Combine combine,
                      const std::optional<DeviceId>& device) {
  DeviceGroup& group = *losses.group();
  DeviceImpl* to = target(group, device, "DataParallelCriterion");
  std::vector<Tensor> terms;
  const std::vector<std::int64_t>& sizes = losses.sizes();
  const auto examples =
      static_cast<double>(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}));
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const Tensor& loss = losses[i];
    const bool weighted = losses.size() > 1 && loss.rank() == 0 && combine != Combine::kSum;
    if (!weighted) {
      terms.push_back(loss);
      continue;
    }
    const OnDevice on(*group.devices()[i]);
    terms.push_back(loss * (combine == Combine::kMean ? 1.0 / static_cast<double>(losses.size())
                                                      : static_cast<double>(sizes[i]) / examples));
  }
  if (!to) return terms.front();
  const OnDevice on(*to);
  if (terms.size() == 1) return identity(terms.front());
  return terms.front().rank() > 0 ? concat(terms, losses.dim()) : add_n(terms);
}

void run_on_devices(DeviceGroup& group, const std::vector<std::int64_t>& sizes, std::int64_t dim,
                    const std::function<void(std::size_t)>& call) {
  group.run(sizes, dim == 0, {}, call);
}

void require_outputs(std::size_t count) {
  if (count == 0)
    fail<InvalidArgumentError>(
        "[DataParallelCriterion] expected the outputs of a DataParallelModel, got none");
}

}  // namespace detail

// --- replicas ---

struct Replicas::State {
  Model module;
  std::shared_ptr<DeviceGroup> group;
  std::vector<VariableCopies> copies;
};

namespace {

Replicas make_replicas(const Model& module, std::shared_ptr<DeviceGroup> group, std::size_t count) {
  std::vector<VariableCopies> copies = copy_variables(module.variables(), *group, count);
  return Replicas(std::make_shared<Replicas::State>(
      Replicas::State{module, std::move(group), std::move(copies)}));
}

}  // namespace

std::size_t Replicas::size() const { return state_->copies.size(); }
const Model& Replicas::module() const { return state_->module; }

void Replicas::run(const std::vector<std::int64_t>& sizes, std::int64_t dim,
                   const std::function<void(std::size_t)>& call) const {
  if (sizes.empty() || sizes.size() > size())
    fail<InvalidArgumentError>(
        "[parallel_apply] expected parts for 1 to {} devices, as there are replicas, got {}",
        size(), sizes.size());
  state_->group->run(sizes, dim == 0, state_->copies, call);
}

Replicas replicate(const Model& module, const std::vector<DeviceId>& device_ids) {
  const auto group = detail::group_of(device_ids, "replicate");
  return make_replicas(module, group, group->size());
}

// --- models ---

DataParallelModel::DataParallelModel(Model module, const DataParallelModelOptions& options)
    : module_(std::move(module)),
      dim_(options.dim),
      group_(detail::group_of(options.device_ids, "DataParallel")) {
  check_balance(group_->devices());
  if (module_.built()) static_cast<void>(copy_variables(variables(), *group_, 1));  // checks them
}

Replicas DataParallelModel::replicas(std::size_t count) const {
  return make_replicas(module_, group_, count);
}

std::vector<std::string> DataParallelModel::devices() const {
  std::vector<std::string> names;
  for (const DeviceImpl* device : group_->devices()) names.push_back(device->full_name());
  return names;
}

PerDevice<Tensor> DataParallelModel::operator()(const Tensor& input,
                                                const CallOptions& options) const {
  return (*this)(TensorList(std::span(&input, 1)), options);
}

PerDevice<Tensor> DataParallelModel::operator()(TensorList inputs,
                                                const CallOptions& options) const {
  const std::vector<Tensor> batch(inputs.begin(), inputs.end());
  if (!module_.built()) {
    static_cast<void>(detail::sizes_of(batch, *group_, dim_));  // refuses scalars
    std::vector<Shape> shapes;
    for (const Tensor& input : batch)
      shapes.push_back(input.shape().without_leading(1).with_leading(-1));
    std::optional<OnDevice> on;
    if (!group_->devices().empty()) on.emplace(*group_->devices().front());
    module_.impl()->build(std::move(shapes));
  }
  return run([&](const std::vector<Tensor>& parts) { return module_(parts, options); }, batch);
}

DataParallel::DataParallel(Model module, const DataParallelOptions& options)
    : model_(std::move(module), {.device_ids = options.device_ids, .dim = options.dim}),
      output_device_(options.output_device) {
  if (output_device_ && !(output_device_->is_index() && model_.devices().empty()))
    static_cast<void>(resolve_device(output_device_->name(), "DataParallel"));
}

Tensor DataParallel::operator()(const Tensor& input, const CallOptions& options) const {
  return detail::gather_values(model_(input, options), output_device_, model_.dim());
}

Tensor DataParallel::operator()(TensorList inputs, const CallOptions& options) const {
  return detail::gather_values(model_(inputs, options), output_device_, model_.dim());
}

}  // namespace tandem::parallel
