// The attributes of the fake cuDNN's descriptors.
#pragma once

#include <cudnn_graph.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <vector>

#include "cuda/cudnn/fake_cudnn.h"

namespace tandem::fake_cudnn {

struct Attribute {
  cudnnBackendAttributeType_t type;
  std::int64_t count;
  std::vector<std::byte> bytes;
};

struct Node {
  cudnnBackendDescriptorType_t type;
  bool finalized = false;
  std::map<cudnnBackendAttributeName_t, Attribute> attributes;
  std::optional<Engine> engine;  // returned by heuristics

  template <class V>
  std::vector<V> all(cudnnBackendAttributeName_t name) const {
    const Attribute& found = attributes.at(name);
    std::vector<V> values(static_cast<std::size_t>(found.count));
    std::memcpy(values.data(), found.bytes.data(), found.bytes.size());
    return values;
  }
  template <class V>
  V one(cudnnBackendAttributeName_t name) const {
    V value;
    std::memcpy(&value, attributes.at(name).bytes.data(), sizeof(V));
    return value;
  }
  template <class V>
  V one_or(cudnnBackendAttributeName_t name, V otherwise) const {
    return has(name) ? one<V>(name) : otherwise;
  }
  const Node& node(cudnnBackendAttributeName_t name) const {
    return *static_cast<const Node*>(one<void*>(name));
  }
  bool has(cudnnBackendAttributeName_t name) const { return attributes.contains(name); }
};

}  // namespace tandem::fake_cudnn
