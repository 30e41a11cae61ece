/// @file
/// Declarations of the types that programs pass around, for headers that only name them: this one
/// includes nothing of Tandem. To use a type, include its header.
#pragma once

#include <cstdint>

namespace tandem {

enum class DType : std::uint8_t;
enum class DeviceType : std::uint8_t;
class Device;
class Dims;
class Error;
class Functional;
class GradientTape;
class Initializer;
class Layer;
class LayerBase;
class Model;
class Sequential;
class Shape;
class SymbolicInput;
class Tensor;
class TensorList;
class Variable;
struct History;

namespace callbacks {
class Callback;
}
namespace comm {
class ProcessGroup;
}
namespace data {
class Dataset;
class Example;
class Iterator;
}  // namespace data
namespace distribute {
class Strategy;
}
namespace losses {
class Loss;
}
namespace metrics {
class Metric;
}
namespace optimizers {
class Optimizer;
}

}  // namespace tandem
