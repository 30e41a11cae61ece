// The requests between ranks of the Horovod-compatible API: bytes decode to requests that can be
// encoded again, or to a DataLossError.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "hvd/request.h"
#include "tandem/errors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tandem::hvd;
  try {
    const auto requests = parse_requests({reinterpret_cast<const std::byte*>(data), size});
    std::vector<std::byte> bytes;
    for (const Request& request : requests) append_request(bytes, request);
    if (parse_requests(bytes).size() != requests.size()) std::abort();
  } catch (const tandem::DataLossError&) {
  }
  return 0;
}
