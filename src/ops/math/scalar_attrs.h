// What the operations on a tensor and a number share.
#pragma once

namespace tandem {

// Attributes of an operation on a tensor and a number.
struct ScalarAttrs {
  double scalar = 0.0;
  template <class F>
  void fields(F&& f) const {
    f("scalar", scalar);
  }
};

struct ClipAttrs {
  double low = 0.0;
  double high = 0.0;
  template <class F>
  void fields(F&& f) const {
    f("low", low);
    f("high", high);
  }
};

}  // namespace tandem
