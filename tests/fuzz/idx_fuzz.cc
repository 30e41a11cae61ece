// Any bytes as an IDX file, plain or gzipped, result in valid data or a typed error.
#include "data/formats.h"
#include "tandem/errors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  try {
    tandem::data::parse_idx(std::as_bytes(std::span(bytes, size)), "input");
  } catch (const tandem::Error&) {
  }
  return 0;
}
