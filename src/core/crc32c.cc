#include "core/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tandem {
namespace {

static_assert(std::endian::native == std::endian::little);

// tables[n][byte]: the remainder of the byte and n bytes of 0 after it.
constexpr auto kTables = [] {
  std::array<std::array<std::uint32_t, 256>, 8> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1u ? (crc >> 1) ^ 0x82f63b78u : crc >> 1;
    tables[0][byte] = crc;
  }
  for (std::size_t n = 1; n < tables.size(); ++n)
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[n - 1][byte];
      tables[n][byte] = tables[0][before & 0xffu] ^ (before >> 8);
    }
  return tables;
}();

#if defined(__x86_64__)

// The instruction takes one cycle, but its result three: three streams of this many bytes at once.
constexpr std::size_t kStream = 4096;

// kShifted[n][byte]: the remainder of byte n of a remainder, and kStream bytes of 0 after it.
constexpr auto kShifted = [] {
  std::array<std::uint32_t, 32> images{};  // of the bits of a remainder, which is linear in them
  const auto image_of = [&](std::uint32_t crc) {
    std::uint32_t image = 0;
    for (std::size_t bit = 0; crc != 0; ++bit, crc >>= 1)
      if (crc & 1u) image ^= images[bit];
    return image;
  };
  for (std::size_t bit = 0; bit < images.size(); ++bit) {
    const std::uint32_t crc = 1u << bit;
    images[bit] = kTables[0][crc & 0xffu] ^ (crc >> 8);  // one byte of 0
  }
  for (std::size_t zeros = 1; zeros < kStream; zeros *= 2) {
    auto twice = images;
    for (std::uint32_t& image : twice) image = image_of(image);
    images = twice;
  }
  std::array<std::array<std::uint32_t, 256>, 4> shifted{};
  for (std::size_t n = 0; n < shifted.size(); ++n)
    for (std::uint32_t byte = 0; byte < 256; ++byte) shifted[n][byte] = image_of(byte << (8 * n));
  return shifted;
}();

std::uint64_t shifted(std::uint64_t crc) {
  return kShifted[0][crc & 0xffu] ^ kShifted[1][crc >> 8 & 0xffu] ^ kShifted[2][crc >> 16 & 0xffu] ^
         kShifted[3][crc >> 24 & 0xffu];
}

__attribute__((target("sse4.2"))) std::uint64_t add_word(std::uint64_t crc,
                                                         const unsigned char* at) {
  std::uint64_t word;
  std::memcpy(&word, at, sizeof(word));
  return _mm_crc32_u64(crc, word);
}

__attribute__((target("sse4.2"))) std::uint32_t add_by_instructions(std::uint32_t before,
                                                                    const void* data,
                                                                    std::size_t bytes) {
  const auto* at = static_cast<const unsigned char*>(data);
  std::uint64_t crc = static_cast<std::uint32_t>(~before);
  for (; bytes >= 3 * kStream; bytes -= 3 * kStream) {
    std::uint64_t second = 0, third = 0;
    for (std::size_t i = 0; i < kStream; i += sizeof(std::uint64_t)) {
      crc = add_word(crc, at + i);
      second = add_word(second, at + kStream + i);
      third = add_word(third, at + 2 * kStream + i);
    }
    crc = shifted(shifted(crc) ^ second) ^ third;
    at += 3 * kStream;
  }
  for (; bytes >= sizeof(std::uint64_t); bytes -= sizeof(std::uint64_t)) {
    crc = add_word(crc, at);
    at += sizeof(std::uint64_t);
  }
  auto rest = static_cast<std::uint32_t>(crc);
  for (; bytes > 0; --bytes) rest = _mm_crc32_u8(rest, *at++);
  return ~rest;
}

#endif

}  // namespace

std::uint32_t detail::add_crc32c_by_tables(std::uint32_t before, const void* data,
                                           std::size_t bytes) {
  const auto* at = static_cast<const unsigned char*>(data);
  std::uint32_t crc = ~before;
  for (; bytes >= sizeof(std::uint64_t); bytes -= sizeof(std::uint64_t)) {
    std::uint64_t word;
    std::memcpy(&word, at, sizeof(word));
    word ^= crc;
    crc = 0;
    for (std::size_t n = 0; n < kTables.size(); ++n)
      crc ^= kTables[kTables.size() - 1 - n][(word >> (8 * n)) & 0xffu];
    at += sizeof(word);
  }
  for (; bytes > 0; --bytes) crc = kTables[0][(crc ^ *at++) & 0xffu] ^ (crc >> 8);
  return ~crc;
}

std::uint32_t add_crc32c(std::uint32_t before, const void* data, std::size_t bytes) {
#if defined(__x86_64__)
  static const bool has = __builtin_cpu_supports("sse4.2");
  if (has) return add_by_instructions(before, data, bytes);
#endif
  return detail::add_crc32c_by_tables(before, data, bytes);
}

std::uint32_t crc32c(std::string_view bytes) { return add_crc32c(0, bytes.data(), bytes.size()); }

}  // namespace tandem
