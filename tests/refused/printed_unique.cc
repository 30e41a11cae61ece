// error: write auto [y, idx] = unique(x), and for NumPy's and PyTorch's sorted elements
#include <iostream>

#include "tandem/scatter.h"

void f(const tandem::Tensor& x) { std::cout << tandem::unique(x) << '\n'; }
