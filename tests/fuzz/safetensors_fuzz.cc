// Any bytes as a safetensors file result in complete tensors or a typed error.
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>

#include "tandem/errors.h"
#include "train/checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::istringstream in(std::string(reinterpret_cast<const char*>(data), size));
  try {
    tandem::read_safetensors(in, size, "'fuzz'");
  } catch (const tandem::DataLossError&) {
  } catch (const tandem::InvalidArgumentError&) {
  }
  return 0;
}
