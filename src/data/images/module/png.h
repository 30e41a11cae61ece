// PNG by libpng.
#pragma once

#include "data/images/codec.h"

namespace tandem::data {

Pixels decode_png(const DecodeCall& call);
std::vector<std::uint8_t> encode_png(const Pixels& pixels);

}  // namespace tandem::data
