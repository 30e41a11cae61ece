// error: write meshgrid({x, y}, {.indexing =
#include "tandem/scatter.h"

auto f(const tandem::Tensor& x) { return tandem::meshgrid({x, x}); }
