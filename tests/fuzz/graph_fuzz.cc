// Any bytes as a serialised graph, ignoring the checksum: a graph that serialises to the same bytes
// and runs, or a typed error.
#include <cstdint>
#include <string_view>

#include "core/status.h"
#include "function/serialize.h"
#include "support/run_graph.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  try {
    tandem::deserialize_graph(text);
  } catch (const tandem::InvalidArgumentError&) {
  } catch (const tandem::DataLossError&) {
  }
  try {
    const auto graph = tandem::deserialize_nodes(text);
    const std::string written = tandem::serialize_nodes(*graph);
    TANDEM_ASSERT(tandem::serialize_nodes(*tandem::deserialize_nodes(written)) == written);
    tandem::testing::run_all(*graph);
  } catch (const tandem::InvalidArgumentError&) {
  } catch (const tandem::DataLossError&) {
  }
  return 0;
}
