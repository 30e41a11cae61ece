// Operation graphs as the fake of cuDNN checks and computes them: by definition, one operation at a
// time, in double, rounded to each tensor's type.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "cuda/cudnn/fake_nodes.h"

namespace tandem::fake_cudnn {

// A refusal, with the status that the call returns.
struct Refused {
  cudnnStatus_t status;
};

struct Tensor {
  std::int64_t id = 0, alignment = 1;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::vector<std::int64_t> sizes, strides;
  bool is_virtual = false, is_by_value = false;

  Tensor() = default;
  explicit Tensor(const Node& node);
  bool operator==(const Tensor&) const = default;
};

// Elements in the order of the axes, whatever their strides.
using Values = std::vector<double>;

struct Operation {
  std::vector<Tensor> inputs;
  Tensor output;
  std::function<Values(const std::vector<const Values*>&)> compute;
};

class Graph {
 public:
  // Throws Refused if an operation's tensors do not match it or have not been computed yet.
  explicit Graph(const Node& operation_graph);
  // The task of a run with tensors at these addresses; numbers that are passed by value are read
  // now. Throws Refused if a tensor has no address, or an address belongs to no tensor.
  std::function<void()> task(const std::map<std::int64_t, void*>& addresses) const;

 private:
  std::vector<Operation> operations_;
  std::map<std::int64_t, Tensor> tensors_;
};

}  // namespace tandem::fake_cudnn
