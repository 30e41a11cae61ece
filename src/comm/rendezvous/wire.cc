#include "comm/rendezvous/wire.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>

#include "core/bytes.h"
#include "core/status.h"

namespace tandem {
namespace {

// type, rank, number, length of the key
constexpr std::size_t kHeadBytes = 1 + 4 + 8 + 4;

WireMessage decode(std::string_view body) {
  ByteReader in("[rendezvous] a message", body);
  WireMessage message;
  message.type = in.choice(MessageType::kFarewell);
  if (message.type < MessageType::kSet) in.refuse("it has no type");
  message.rank = in.number<std::int32_t>();
  message.number = in.number<std::int64_t>();
  message.key = in.text();
  message.value = in.take(in.left());
  if (message.key.size() > kMaxKeyBytes || message.value.size() > kMaxValueBytes)
    in.refuse(fmt::format("its key has {} bytes and its value {}", message.key.size(),
                          message.value.size()));
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
  ByteWriter out(frame);
  out.add(static_cast<std::uint32_t>(kHeadBytes + message.key.size() + message.value.size()));
  out.add(message.type, message.rank, message.number).add(message.key);
  return frame += message.value;
}

std::string encode(const JoinTerms& terms) {
  return fmt::format("{} {}", terms.size, terms.silence.count());
}

std::optional<JoinTerms> decode_join_terms(std::string_view text) {
  // milliseconds; larger values overflow a clock
  constexpr std::int64_t kLongest = 1'000'000'000'000;
  std::array<std::int64_t, 2> numbers = {};
  for (std::int64_t& number : numbers) {
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc()) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
    const bool last = &number == &numbers.back();
    if (last ? !text.empty() : !text.starts_with(' ')) return std::nullopt;
    if (!last) text.remove_prefix(1);
  }
  const auto [size, silence] = numbers;
  if (silence < 1) return std::nullopt;
  return JoinTerms{size, std::chrono::milliseconds(std::min(silence, kLongest))};
}

std::string describe_silence(std::chrono::milliseconds time, double threads_per_core) {
  constexpr double kMany = 50;
  return fmt::format(
      "no message was received for {} ms{}", time.count(),
      threads_per_core < kMany
          ? ""
          : fmt::format("; {:.0f} threads compete for each core of this host: use fewer ranks, or "
                        "set TANDEM_SILENCE_LIMIT to more seconds",
                        threads_per_core));
}

double threads_per_core() {
  double load = 0;
  if (getloadavg(&load, 1) != 1) return 0;
  return load / static_cast<double>(sysconf(_SC_NPROCESSORS_ONLN));
}

std::string describe_missing(const WireMessage& alive, int size, std::chrono::milliseconds limit) {
  return fmt::format("{} {} of {} did not join within {} ms{}{}",
                     alive.number == 1 ? "rank" : "ranks", alive.value, size, limit.count(),
                     alive.key.empty() ? "" : "; ", alive.key);
}

std::optional<WireMessage> FrameReader::next() {
  ByteReader in("[rendezvous] a message", std::string_view(buffer_).substr(taken_));
  std::uint32_t length = 0;
  if (in.left() >= sizeof(length)) {
    length = in.number<std::uint32_t>();
    // Checked before the message is waited for and memory is reserved for it.
    if (length < kHeadBytes || length > kHeadBytes + kMaxKeyBytes + kMaxValueBytes)
      in.refuse(fmt::format("it claims {} bytes", length));
  }
  if (length == 0 || in.left() < length) {
    buffer_.erase(0, taken_);
    taken_ = 0;
    return std::nullopt;
  }
  taken_ += sizeof(length) + length;
  return decode(in.take(length));
}

}  // namespace tandem
