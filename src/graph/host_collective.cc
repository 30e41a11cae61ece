#include "graph/host_collective.h"

#include <vector>

#include "comm/combine.h"
#include "core/status.h"
#include "device/copy.h"
#include "graph/collective.h"

namespace tandem {

const OpDef kHostCollective = {.name = "_HostCollective", .traits = kStateful};

HostCollectiveStep::HostCollectiveStep(const BlockOperation& operation, ProgramStep& step)
    : operation_(operation),
      step_(step),
      ranks_(operation.host_collective->num_ranks),
      inputs_(operation.inputs.size() / ranks_),
      outputs_(operation.outputs.size() / ranks_) {
  const OpDef* const op = operation.host_collective->op;
  if (op != &kCollectiveReduce && op != &kCollectiveBroadcast && op != &kCollectiveGather)
    fail<UnimplementedError>(
        "[{}] '{}' needs replicas that run the same program, on the devices of a PJRT plug-in",
        op->name, operation.name);
}

HostCollectiveStep::Bytes HostCollectiveStep::read(std::size_t input) const {
  const Value& value = *operation_.inputs[input];
  Bytes bytes(value.bytes());
  DeviceImpl& device = *value.device;
  read_from(device, bytes.data(), step_.context.inputs[static_cast<int>(input)].data, bytes.size(),
            device.stream().record());
  return bytes;
}

void HostCollectiveStep::write(std::size_t output, const Bytes& bytes) const {
  DeviceImpl& device = *operation_.outputs[output]->device;
  host_to_device(device, step_.context.outputs[static_cast<int>(output)].data, bytes.data(),
                 bytes.size());
}

void HostCollectiveStep::reduce() const {
  const auto& attrs =
      *static_cast<const CollectiveReduceAttrs*>(operation_.host_collective->attrs.get());
  for (std::size_t i = 0; i < inputs_; ++i) {
    std::vector<Bytes> parts;
    std::vector<const void*> from;
    for (std::size_t rank = 0; rank < ranks_; ++rank) parts.push_back(read(rank * inputs_ + i));
    for (const Bytes& part : parts) from.push_back(part.data());
    void* const to = parts[0].data();
    const TensorType& spec = operation_.inputs[i]->spec;
    combine(from, {&to, 1}, spec.shape.num_elements(), spec.dtype, attrs.op,
            CombineOrder::kInOrder);
    for (std::size_t rank = 0; rank < ranks_; ++rank) write(rank * outputs_ + i, parts[0]);
  }
}

void HostCollectiveStep::broadcast() const {
  const auto& attrs =
      *static_cast<const CollectiveBroadcastAttrs*>(operation_.host_collective->attrs.get());
  const Bytes bytes = read(static_cast<std::size_t>(attrs.root));
  for (std::size_t rank = 0; rank < ranks_; ++rank) write(rank, bytes);
}

void HostCollectiveStep::gather() const {
  for (std::size_t from = 0; from < ranks_; ++from) {
    const Bytes bytes = read(from);
    for (std::size_t rank = 0; rank < ranks_; ++rank) write(rank * outputs_ + from, bytes);
  }
}

void HostCollectiveStep::run() {
  const OpDef* const op = operation_.host_collective->op;
  if (op == &kCollectiveReduce)
    reduce();
  else if (op == &kCollectiveBroadcast)
    broadcast();
  else
    gather();
}

}  // namespace tandem
