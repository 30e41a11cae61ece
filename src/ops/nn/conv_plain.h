// Convolutions in plain loops for float64, which oneDNN does not support. They serve gradient
// checks and reference results. The order of sums does not depend on the number of threads.
#pragma once

#include "ops/conv_shape.h"

namespace tandem {

// y = conv(x, kernel) + bias; `bias` may be null.
void plain_conv_forward(const ConvShape& conv, const double* x, const double* kernel,
                        const double* bias, double* y);
void plain_conv_backward_input(const ConvShape& conv, const double* dy, const double* kernel,
                               double* dx);
void plain_conv_backward_filter(const ConvShape& conv, const double* x, const double* dy,
                                double* dkernel);

}  // namespace tandem
