// JPEG by libjpeg-turbo.
#pragma once

#include "data/images/codec.h"

namespace tandem::data {

Pixels decode_jpeg(const DecodeCall& call);
std::vector<std::uint8_t> encode_jpeg(const Pixels& pixels, std::int64_t quality);

}  // namespace tandem::data
