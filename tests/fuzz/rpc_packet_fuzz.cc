// Any bytes as a packet of a Unix socket: it is read, and written again as the same bytes, or
// refused. So are addresses of Unix servers.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "core/status.h"
#include "rpc/unix_socket/address.h"
#include "rpc/unix_socket/packet.h"

namespace {

using namespace tandem;

void check(std::span<const std::byte> input) {
  try {
    const rpc::Packet packet = rpc::parse_packet(input);
    std::string again = rpc::packet_prefix(packet);
    again.append(reinterpret_cast<const char*>(packet.bytes.data()), packet.bytes.size());
    TANDEM_ASSERT(again.size() == input.size());
    TANDEM_ASSERT(std::memcmp(again.data(), input.data(), input.size()) == 0);
  } catch (const DataLossError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::span<const std::byte> input(reinterpret_cast<const std::byte*>(bytes), size);
  check(input);
  // As the rest of a packet with good first fields and small sizes.
  const auto kind = static_cast<rpc::PacketKind>(1 + (size == 0 ? 0 : bytes[0] % 8));
  std::string packet = rpc::packet_prefix({.kind = kind, .call = size});
  for (std::size_t i = 24; i < packet.size() && i < 24 + size; i += 4)
    packet[i] = static_cast<char>(bytes[i - 24] % 32);
  packet.append(reinterpret_cast<const char*>(bytes), size);
  check(std::as_bytes(std::span(packet)));

  const std::string text(reinterpret_cast<const char*>(bytes), size);
  for (const std::string& each : {text, "tandem-rpc-0123456789abcdef0123456789abcdef " + text})
    if (const auto address = rpc::UnixAddress::parse(each))
      TANDEM_ASSERT(rpc::UnixAddress::parse(address->text())->name == address->name);
  return 0;
}
