// Attributes of the operations that make tensors.
#pragma once

#include <cstdint>

#include "tandem/dtype.h"
#include "tandem/shape.h"

namespace tandem {

struct FillAttrs {
  Shape shape;
  double value = 0.0;
  DType dtype = float32;
  template <class F>
  void fields(F&& f) const {
    f("shape", shape);
    f("value", value);
    f("dtype", dtype);
  }
};

struct ElementCountAttrs {
  Shape sizes;
  DType dtype = float32;
  template <class F>
  void fields(F&& f) const {
    f("sizes", sizes);
    f("dtype", dtype);
  }
};

struct SequenceAttrs {
  double start = 0.0;
  double step = 1.0;
  double last = 0.0;  // LinSpace: the last element, exactly
  std::int64_t count = 0;
  DType dtype = float32;
  template <class F>
  void fields(F&& f) const {
    f("start", start);
    f("step", step);
    f("last", last);
    f("count", count);
    f("dtype", dtype);
  }
};

struct EyeAttrs {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  DType dtype = float32;
  template <class F>
  void fields(F&& f) const {
    f("rows", rows);
    f("columns", columns);
    f("dtype", dtype);
  }
};

}  // namespace tandem
