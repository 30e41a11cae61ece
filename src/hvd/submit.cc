#include "hvd/submit.h"

#include <map>
#include <mutex>

#include "core/status.h"
#include "device/device_manager.h"
#include "graph/graph.h"
#include "tensor/tensor_impl.h"

namespace tandem::hvd {

std::string name_or_next(const std::string& name, std::string_view kind) {
  if (!name.empty()) return name;
  static std::mutex mutex;
  static auto& counts = *new std::map<std::string, std::uint64_t, std::less<>>;
  const std::lock_guard lock(mutex);
  return fmt::format("{}.noname.{}", kind,
                     ++counts.try_emplace(std::string(kind), 0).first->second);
}

Tensor on_host(const Tensor& tensor) {
  if (impl_of(tensor).device().host_accessible()) return tensor;
  const TensorImpl& impl = impl_of(tensor);
  Tensor copy = make_tensor(DeviceManager::get().host(), impl.shape, impl.dtype);
  to_host(tensor, impl_of(copy).data());
  return copy;
}

DType wire_dtype(DType dtype, Compression compression) {
  if (compression == Compression::kNone || (dtype != float32 && dtype != float64)) return dtype;
  return compression == Compression::kFP16 ? float16 : bfloat16;
}

void check_reduction(std::string_view what, Op op, DType dtype, int ranks) {
  if (dtype == bool_ || is_storage(dtype))
    fail<InvalidArgumentError>("[{}] {} elements cannot be reduced; cast them first", what,
                               name_of(dtype));
  if (op != kAdasum) return;
  if (!is_floating(dtype))
    fail<InvalidArgumentError>("[{}] Adasum expected floating elements, got {}", what,
                               name_of(dtype));
  if ((ranks & (ranks - 1)) != 0)
    fail<InvalidArgumentError>(
        "[{}] Running Adasum with non-power of 2 ranks is not supported yet. ({} ranks)", what,
        ranks);
}

OperationRef make_operation(Request request, const std::vector<Tensor>& tensors,
                            Compression compression,
                            std::shared_ptr<ProcessSetCoordinator> coordinator) {
  if (context.graph)
    fail<UnimplementedError>(
        "[{}] '{}': operations of hvd cannot be traced, but for those of a DistributedOptimizer; "
        "call it "
        "outside td::function",
        title_of(request.kind), request.name);
  auto operation = std::make_shared<Handle::State>();
  operation->coordinator = std::move(coordinator);
  for (const Tensor& tensor : tensors) {
    const TensorImpl& impl = impl_of(tensor);
    DeviceImpl& device = impl.device();
    request.dtypes.push_back(wire_dtype(impl.dtype, compression));
    request.shapes.push_back(impl.shape.words());
    request.on_gpu = request.on_gpu || device.type() == DeviceType::kGpu;
    operation->inputs.push_back(on_host(tensor));
    operation->in.push_back({impl_of(operation->inputs.back()).data(), impl.dtype});
    operation->devices.push_back(device.host_accessible() ? nullptr : &device);
  }
  operation->request = std::make_shared<const Request>(std::move(request));
  return operation;
}

void make_outputs(Handle::State& operation) {
  for (const Tensor& input : operation.inputs) {
    const TensorImpl& impl = impl_of(input);
    operation.results.push_back(make_tensor(impl.device(), impl.shape, impl.dtype));
    operation.out.push_back({impl_of(operation.results.back()).data(), impl.dtype});
  }
}

}  // namespace tandem::hvd
