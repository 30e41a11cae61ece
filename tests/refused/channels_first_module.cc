// error: images are channels-last here
#include <tandem/tandem.h>

auto conv = tandem::nn::Conv2d(3, 16, 3);
