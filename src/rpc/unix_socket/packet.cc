#include "rpc/unix_socket/packet.h"

#include <bit>
#include <cstring>

#include "core/status.h"

namespace tandem::rpc {
namespace {

static_assert(std::endian::native == std::endian::little);

struct Start {
  std::uint32_t kind = 0, strings = 0;
  std::uint64_t call = 0, limit = 0;
};

std::uint32_t strings_of(PacketKind kind) {
  switch (kind) {
    case PacketKind::kHello: return 3;
    case PacketKind::kRequest:
    case PacketKind::kRefusal: return 1;
    default: return 0;
  }
}

bool has_bytes(PacketKind kind) {
  return kind == PacketKind::kRequest || kind == PacketKind::kPart || kind == PacketKind::kReply;
}

void require(bool condition, const char* wrong) {
  if (!condition) fail<DataLossError>("[rpc] a received packet is damaged: {}", wrong);
}

}  // namespace

std::size_t packet_overhead(PacketKind kind) {
  return sizeof(Start) + strings_of(kind) * sizeof(std::uint32_t);
}

std::string packet_prefix(const Packet& packet) {
  const std::uint32_t count = strings_of(packet.kind);
  const Start start{static_cast<std::uint32_t>(packet.kind), count, packet.call, packet.limit};
  std::string prefix(reinterpret_cast<const char*>(&start), sizeof(start));
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto size = static_cast<std::uint32_t>(packet.strings[i].size());
    prefix.append(reinterpret_cast<const char*>(&size), sizeof(size));
  }
  for (std::uint32_t i = 0; i < count; ++i) prefix += packet.strings[i];
  return prefix;
}

Packet parse_packet(std::span<const std::byte> bytes) {
  Start start;
  require(bytes.size() >= sizeof(start), "it ends within its first fields");
  std::memcpy(&start, bytes.data(), sizeof(start));
  require(start.kind >= static_cast<std::uint32_t>(PacketKind::kHello) &&
              start.kind <= static_cast<std::uint32_t>(PacketKind::kPong),
          "its kind does not exist");
  Packet packet{static_cast<PacketKind>(start.kind), start.call, start.limit};
  require(start.strings == strings_of(packet.kind), "it has another number of strings");
  require(bytes.size() >= packet_overhead(packet.kind), "it ends within the sizes");
  std::array<std::uint32_t, std::tuple_size_v<decltype(packet.strings)>> sizes = {};
  std::memcpy(sizes.data(), bytes.data() + sizeof(start), start.strings * sizeof(std::uint32_t));
  bytes = bytes.subspan(packet_overhead(packet.kind));
  for (std::uint32_t i = 0; i < start.strings; ++i) {
    require(bytes.size() >= sizes[i], "the strings have fewer bytes than announced");
    packet.strings[i] = {reinterpret_cast<const char*>(bytes.data()), sizes[i]};
    bytes = bytes.subspan(sizes[i]);
  }
  require(bytes.empty() || has_bytes(packet.kind), "bytes follow its end");
  packet.bytes = bytes;
  return packet;
}

}  // namespace tandem::rpc
