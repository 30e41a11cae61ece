// Any bytes as a CIFAR-10 file in binary format result in valid data or a typed error.
#include "data/formats.h"
#include "tandem/errors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  try {
    tandem::data::parse_cifar10(std::as_bytes(std::span(bytes, size)), "input");
  } catch (const tandem::Error&) {
  }
  return 0;
}
