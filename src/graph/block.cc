#include "graph/block.h"

#include <limits>

#include "core/status.h"
#include "graph/compiled_region.h"

namespace tandem {

Value& Block::add_value(const TensorType& spec, DeviceImpl& device, Value::Kind kind) {
  Value& value = *values.emplace_back(std::make_unique<Value>());
  value.spec = spec;
  value.device = &device;
  value.kind = kind;
  return value;
}

// Not inline: many files destroy blocks.
Value::~Value() = default;
BlockOperation::~BlockOperation() = default;

const OpDef kCopy = {.name = "_Copy"};

bool BlockOperation::mutates(std::size_t input) const {
  if (control) return control->writes[input];
  if (region) return region->writes[input];
  return input < 32 ? (op->mutated_inputs >> input & 1u) != 0 : op->mutated_inputs == kAllTensors;
}

std::shared_ptr<const void> BlockOperation::attrs_of_a_program() const {
  return attrs && attr_update ? op->attrs().copy(attrs.get()) : attrs;
}

bool BlockOperation::does_as(const BlockOperation& other) const {
  if (op != other.op) return false;
  if (!attrs || !other.attrs) return !attrs && !other.attrs;  // attributes without fields are null
  return op->attrs().equal(attrs.get(), other.attrs.get());
}

void check_total_bytes(const Block& block) {
  constexpr std::size_t kMostBytes = std::numeric_limits<std::size_t>::max() / 2;
  std::size_t total = 0;
  for (const auto& value : block.values) {
    const std::size_t bytes = value->bytes();
    if (bytes > kMostBytes - total)
      fail<ResourceExhaustedError>(
          "[Graph] the values of a program have more bytes than can be addressed; one has shape "
          "{} and dtype {}",
          value->spec.shape.to_string(), name_of(value->spec.dtype));
    total += bytes;
  }
}

}  // namespace tandem
