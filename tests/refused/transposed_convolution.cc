// error: there is no transposed convolution
#include <tandem/tandem.h>

auto conv = tandem::nn::ConvTranspose2d(16, 3, 4);
