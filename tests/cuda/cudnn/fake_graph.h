// Graphs of operations as the fake of cuDNN checks and computes them: by definition, operation by
// operation, in numbers of double that are rounded to each tensor's type.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "cuda/cudnn/fake_nodes.h"

namespace tandem::fake_cudnn {

// A refusal, with the status that the call gives.
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

// Elements in the order of the axes, wherever they lie.
using Values = std::vector<double>;

struct Operation {
  std::vector<Tensor> inputs;
  Tensor output;
  std::function<Values(const std::vector<const Values*>&)> compute;
};

class Graph {
 public:
  // Throws Refused where an operation's tensors do not fit it, or are not there yet.
  explicit Graph(const Node& operation_graph);
  // What a run does with tensors at these addresses; numbers by value are read now. Throws Refused
  // where a tensor has no address, or there is one for none.
  std::function<void()> task(const std::map<std::int64_t, void*>& addresses) const;

 private:
  std::vector<Operation> operations_;
  std::map<std::int64_t, Tensor> tensors_;
};

}  // namespace tandem::fake_cudnn
