// Any bytes on any connections of a rendezvous server: messages are handled, or connections are
// closed. A client that does not know the secret does not get that far.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "comm/rendezvous/coordinator.h"
#include "comm/rendezvous/handshake.h"
#include "comm/rendezvous/wire.h"
#include "core/status.h"

namespace {

using namespace tandem;

// Messages that are sent must be decodable.
void check_sent(const WireMessage& message) {
  FrameReader reader;
  reader.append(encode(message));
  const auto read = reader.next();
  TANDEM_ASSERT(read && read->type == message.type && read->rank == message.rank &&
                read->number == message.number && read->key == message.key &&
                read->value == message.value && !reader.next());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  std::string_view input(reinterpret_cast<const char*>(bytes), size);
  if (size >= kClientBytes) {
    const std::string nonce(kNonceBytes, 'n');
    TANDEM_ASSERT(judge("secret", nonce, input.substr(0, kClientBytes)) == kRefusal);
  }

  Coordinator::TimePoint now = {};
  CoordinatorOptions options{.size = 3};
  if (size % 2 == 0) options.outside = OutsideHost{.pid = 1, .name = "host"};
  Coordinator coordinator(options, [](int, const WireMessage& message) { check_sent(message); });
  std::map<int, FrameReader> connections;
  // The input has a connection, a length, and that many bytes for the connection.
  while (input.size() > 2) {
    const int connection = static_cast<unsigned char>(input[0]) % 6;
    const std::string_view piece = input.substr(2, static_cast<unsigned char>(input[1]));
    input.remove_prefix(2 + piece.size());
    now += std::chrono::milliseconds(50);
    FrameReader& reader = connections[connection];
    bool keep = !piece.empty();
    try {
      reader.append(piece);
      while (const auto message = reader.next())
        keep = keep && coordinator.handle(connection, *message, now);
    } catch (const DataLossError&) {
      keep = false;
    }
    if (!keep) {
      connections.erase(connection);
      coordinator.dropped(connection, "dropped");
    }
    coordinator.tick(now);
  }
  coordinator.close();
  return 0;
}
