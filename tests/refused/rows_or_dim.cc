// error: slice(begin, end) takes rows; libtorch's slice(dim, start) is x.slice(dim, start, None)
#include "tandem/tensor.h"

tandem::Tensor f(const tandem::Tensor& x) { return x.slice(0, 400); }
