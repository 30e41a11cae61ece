#include "comm/rendezvous/wire.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <type_traits>

#include "core/status.h"

namespace tandem {
namespace {

static_assert(std::endian::native == std::endian::little, "frames are little-endian");

// type, rank, number, length of the key
constexpr std::size_t kHeadBytes = 1 + 4 + 8 + 4;

template <class T>
void put(std::string& out, T value) {
  std::array<char, sizeof(T)> bytes;
  std::memcpy(bytes.data(), &value, sizeof(T));
  out.append(bytes.data(), sizeof(T));
}

template <class T>
T take(std::string_view& bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  bytes.remove_prefix(sizeof(T));
  return value;
}

WireMessage decode(std::string_view body) {
  WireMessage message;
  const auto type = take<std::uint8_t>(body);
  if (type < static_cast<std::uint8_t>(MessageType::kSet) ||
      type > static_cast<std::uint8_t>(MessageType::kFarewell))
    fail<DataLossError>("[rendezvous] a message of unknown type {}", type);
  message.type = static_cast<MessageType>(type);
  message.rank = take<std::int32_t>(body);
  message.number = take<std::int64_t>(body);
  const auto key_bytes = take<std::uint32_t>(body);
  if (key_bytes > kMaxKeyBytes || key_bytes > body.size() ||
      body.size() - key_bytes > kMaxValueBytes)
    fail<DataLossError>("[rendezvous] a message with a key of {} bytes in {}", key_bytes,
                        body.size());
  message.key = body.substr(0, key_bytes);
  message.value = body.substr(key_bytes);
  return message;
}

}  // namespace

std::string encode(const WireMessage& message) {
  if (message.key.size() > kMaxKeyBytes || message.value.size() > kMaxValueBytes)
    fail<InvalidArgumentError>(
        "[Store] expected a key of at most {} bytes and a value of at most {}, got {} and {}",
        kMaxKeyBytes, kMaxValueBytes, message.key.size(), message.value.size());
  std::string frame;
  frame.reserve(4 + kHeadBytes + message.key.size() + message.value.size());
  put(frame, static_cast<std::uint32_t>(kHeadBytes + message.key.size() + message.value.size()));
  put(frame, static_cast<std::uint8_t>(message.type));
  put(frame, message.rank);
  put(frame, message.number);
  put(frame, static_cast<std::uint32_t>(message.key.size()));
  frame.append(message.key).append(message.value);
  return frame;
}

std::string encode(const JoinTerms& terms) {
  return fmt::format("{} {} {}", terms.size, static_cast<int>(terms.role), terms.silence.count());
}

std::optional<JoinTerms> decode_join_terms(std::string_view text) {
  // milliseconds; larger values overflow a clock
  constexpr std::int64_t kLongest = 1'000'000'000'000;
  std::array<std::int64_t, 3> numbers = {};
  for (std::int64_t& number : numbers) {
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc()) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
    const bool last = &number == &numbers.back();
    if (last ? !text.empty() : !text.starts_with(' ')) return std::nullopt;
    if (!last) text.remove_prefix(1);
  }
  const auto [size, role, silence] = numbers;
  if (role < 0 || role > static_cast<int>(Role::kEvaluator) || silence < 1) return std::nullopt;
  return JoinTerms{size, static_cast<Role>(role),
                   std::chrono::milliseconds(std::min(silence, kLongest))};
}

std::string describe_missing(const WireMessage& alive, int size, std::chrono::milliseconds limit) {
  return fmt::format("{} {} of {} did not join within {} ms{}{}",
                     alive.number == 1 ? "rank" : "ranks", alive.value, size, limit.count(),
                     alive.key.empty() ? "" : "; ", alive.key);
}

std::optional<WireMessage> FrameReader::next() {
  std::string_view rest = std::string_view(buffer_).substr(taken_);
  std::uint32_t length = 0;
  if (rest.size() >= sizeof(length)) {
    length = take<std::uint32_t>(rest);
    // Checked before the message is waited for and memory is reserved for it.
    if (length < kHeadBytes || length > kHeadBytes + kMaxKeyBytes + kMaxValueBytes)
      fail<DataLossError>("[rendezvous] a message of {} bytes", length);
  }
  if (length == 0 || rest.size() < length) {
    buffer_.erase(0, taken_);
    taken_ = 0;
    return std::nullopt;
  }
  taken_ += sizeof(length) + length;
  return decode(rest.substr(0, length));
}

}  // namespace tandem
