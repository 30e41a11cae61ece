// Any text as the index of a checkpoint results in slices within their files and tensors, or in a
// typed error.
#include <cstdint>
#include <string>

#include "core/status.h"
#include "train/checkpoint/index.h"
#include "train/checkpoint/safetensors.h"

namespace {

using namespace tandem;

// The rest of an index after a checksum that is right.
std::string with_checksum(const std::string& rest) {
  const std::string start = R"({"format":"tandem.checkpoint","version":1,"checksum":")";
  const std::string zeros = start + "00000000\"," + rest;
  return start + fmt::format("{:08x}", crc_of(0, zeros.data(), zeros.size())) + "\"," + rest;
}

void parse(const std::string& text) {
  try {
    const CheckpointIndex index = parse_index(text, "input");
    for (const auto& [name, tensor] : index.tensors)
      for (const CheckpointSlice& slice : tensor.slices) {
        TANDEM_ASSERT(within(slice.range, tensor.shape));
        TANDEM_ASSERT(slice.begin <= index.files.at(slice.file).bytes);
      }
    const std::string again = index_text(index, "input");
    TANDEM_ASSERT(index_text(parse_index(again, "input"), "input") == again);
  } catch (const DataLossError&) {
  } catch (const InvalidArgumentError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(bytes), size);
  parse(text);
  parse(with_checksum(text));
  parse(
      with_checksum(R"("metadata":{},"files":[{"name":"f","bytes":64}],"tensors":)" + text + "}"));
  try {
    if (is_weight_map(text)) parse_weight_map(text, "input");
    parse_weight_map(R"({"weight_map":)" + text + "}", "input");
  } catch (const DataLossError&) {
  }
  return 0;
}
