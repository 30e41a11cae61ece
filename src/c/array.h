// Arrays of the host.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tandem_c.h>
#include "online/moments.h"
#include "tandem/tensor.h"

namespace tandem::c {

using online::Affine;

// An array that a function of the C interface has got.
class HostArray {
 public:
  // Throws InvalidArgumentError "[what] name: ..." if `array` is null or does not describe memory.
  // `channels_first`: the memory is [batch, channels, ...], and this array [batch, ..., channels].
  HostArray(const tandem_array* array, const char* what, std::string_view name,
            bool channels_first = false);

  const Shape& shape() const { return shape_; }
  bool floating() const { return array_.dtype == TANDEM_FLOAT32 || array_.dtype == TANDEM_FLOAT64; }
  // Throws InvalidArgumentError unless the shape is `expected`, where -1 stands for any size.
  void expect(const Shape& expected) const;
  // Throws InvalidArgumentError that begins with this array's name.
  [[noreturn]] void reject(const std::string& message) const;

  // The elements: floating-point ones as `floating`, integers as they are. `affine` applies to the
  // former.
  Tensor read(DType floating, const Affine& affine = {}) const;
  // The elements in row-major order.
  std::vector<double> values() const;
  // Throws InvalidArgumentError unless every element can be written by itself.
  void expect_apart() const;
  // ... and as a floating-point number.
  void expect_writable() const;
  // REQUIRES: expect_apart(), and a tensor of this shape; of floating-point numbers if `affine` is
  // not empty.
  void write(const Tensor& tensor, const Affine& affine = {}) const;

 private:
  template <class Visit>
  void each_row(const Visit& visit) const;
  template <class Visit>
  void with_data(const Visit& visit) const;

  tandem_array array_;
  std::string label_;
  Shape shape_;
  Dims strides_;
};

}  // namespace tandem::c
