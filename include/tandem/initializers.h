// How variables start.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "tandem/tensor.h"

namespace tandem {

// Makes the first value of a variable. A value; thread-safe.
class Initializer {
 public:
  using Function = std::function<Tensor(const Shape& shape, DType dtype)>;
  Initializer() = default;
  Initializer(std::string name, Function function)
      : name_(std::move(name)), function_(std::move(function)) {}
  // By name: "glorot_uniform", "zeros", ... Throws InvalidArgumentError naming them all.
  Initializer(const char* name);  // NOLINT: a name stands for the initializer

  const std::string& name() const { return name_; }
  Tensor operator()(const Shape& shape, DType dtype = float32) const;

 private:
  std::string name_;
  Function function_;
};

// Fans as Keras counts them: for [..., in, out], in and out times the product of the sizes before.
// Draws come from tandem::random's stream.
namespace initializers {

Initializer zeros();
Initializer ones();
Initializer constant(double value);
Initializer random_normal(double mean = 0.0, double stddev = 0.05);
Initializer random_uniform(double low = -0.05, double high = 0.05);
Initializer truncated_normal(double mean = 0.0, double stddev = 0.05);
Initializer glorot_uniform();  // Glorot and Bengio 2010
Initializer glorot_normal();
Initializer he_uniform();  // He et al. 2015
Initializer he_normal();
Initializer lecun_uniform();
Initializer lecun_normal();

Initializer from_name(std::string_view name);

}  // namespace initializers
}  // namespace tandem
