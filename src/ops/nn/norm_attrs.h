// Attributes of the normalisations.
#pragma once

namespace tandem {

struct NormAttrs {
  double epsilon = 1e-3;
  template <class F>
  void fields(F&& f) const {
    f("epsilon", epsilon);
  }
};

}  // namespace tandem
