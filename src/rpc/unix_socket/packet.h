// The packets of a connection over a Unix socket, all numbers in little-endian order:
//
//   kind u32, number of strings u32, call u64, limit u64, the size of each string u32, the strings,
//   the bytes
//
// A caller's first packet is a hello. A reply that is larger than a packet comes in parts: those
// before the last have kind kPart.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tandem::rpc {

enum class PacketKind : std::uint32_t {
  // From the caller.
  kHello = 1,  // limit: the bytes of the largest reply; strings: credential, caller, announcement
  kRequest,    // limit: the call's time in milliseconds; string: the method; bytes: a frame
  kCancel,
  kPing,
  // From the server.
  kPart,     // bytes: of the reply's frame
  kReply,    // bytes: the end of the reply's frame
  kRefusal,  // of a call whose handler has not run, or has been cancelled; string: the reason
  kPong,
};

// A packet as it is received refers to the memory in which it was.
struct Packet {
  PacketKind kind = PacketKind::kPing;
  std::uint64_t call = 0;
  std::uint64_t limit = 0;
  std::array<std::string_view, 3> strings = {};
  std::span<const std::byte> bytes = {};
};

// The size of the largest packet, which fits into a socket's buffer.
inline constexpr std::size_t kMostPacketBytes = std::size_t{96} << 10;
// Its bytes beside `bytes` and the strings.
std::size_t packet_overhead(PacketKind kind);

// All bytes of a packet before its `bytes`.
std::string packet_prefix(const Packet& packet);
// Throws DataLossError for anything but a packet.
Packet parse_packet(std::span<const std::byte> bytes);

}  // namespace tandem::rpc
