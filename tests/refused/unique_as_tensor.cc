// error: write auto [y, idx] = unique(x), and for NumPy's and PyTorch's sorted elements
#include "tandem/scatter.h"

tandem::Tensor f(const tandem::Tensor& x) { return tandem::unique(x); }
