#include "nn/hashing.h"

#include <bit>
#include <cstring>
#include <utility>

#include "core/status.h"
#include "data/stream.h"
#include "nn/categories.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/text_preprocessing.h"

namespace tandem {
namespace {

static_assert(std::endian::native == std::endian::little);

std::uint64_t word64(const char* at) {
  std::uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}
std::uint64_t word32(const char* at) {
  std::uint32_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

// The constants of FarmHash: odd numbers whose bits are random.
constexpr std::uint64_t kA = 0xc3a5c85c97cb3127, kB = 0xb492b66fbe98f273, kC = 0x9ae16a3b2f90404f;

std::uint64_t shifted(std::uint64_t x) { return x ^ (x >> 47); }

std::uint64_t combined(std::uint64_t a, std::uint64_t b, std::uint64_t factor) {
  const std::uint64_t c = shifted((a ^ b) * factor);
  return shifted((b ^ c) * factor) * factor;
}

std::uint64_t of_at_most_16(const char* s, std::uint64_t size) {
  if (size >= 8) {
    const std::uint64_t factor = kC + size * 2;
    const std::uint64_t a = word64(s) + kC, b = word64(s + size - 8);
    return combined(std::rotr(b, 37) * factor + a, (std::rotr(a, 25) + b) * factor, factor);
  }
  if (size >= 4) return combined(size + (word32(s) << 3), word32(s + size - 4), kC + size * 2);
  if (size == 0) return kC;
  const auto byte = [s](std::uint64_t i) {
    return std::uint64_t{static_cast<unsigned char>(s[i])};
  };
  const std::uint64_t y = byte(0) + (byte(size / 2) << 8), z = size + (byte(size - 1) << 2);
  return shifted(y * kC ^ z * kA) * kC;
}

std::uint64_t of_at_most_32(const char* s, std::uint64_t size) {
  const std::uint64_t factor = kC + size * 2;
  const std::uint64_t a = word64(s) * kB, b = word64(s + 8);
  const std::uint64_t c = word64(s + size - 8) * factor, d = word64(s + size - 16) * kC;
  return combined(std::rotr(a + b, 43) + std::rotr(c, 30) + d, a + std::rotr(b + kC, 18) + c,
                  factor);
}

std::uint64_t of_at_most_64(const char* s, std::uint64_t size) {
  const std::uint64_t factor = kC + size * 2;
  const std::uint64_t a = word64(s) * kC, b = word64(s + 8);
  const std::uint64_t c = word64(s + size - 8) * factor, d = word64(s + size - 16) * kC;
  const std::uint64_t y = std::rotr(a + b, 43) + std::rotr(c, 30) + d;
  const std::uint64_t z = combined(y, a + std::rotr(b + kC, 18) + c, factor);
  const std::uint64_t e = word64(s + 16) * factor, f = word64(s + 24);
  const std::uint64_t g = (y + word64(s + size - 32)) * factor;
  const std::uint64_t h = (z + word64(s + size - 24)) * factor;
  return combined(std::rotr(e + f, 43) + std::rotr(g, 30) + h, e + std::rotr(f + a, 18) + g,
                  factor);
}

using Pair = std::pair<std::uint64_t, std::uint64_t>;

Pair of_32_bytes(const char* s, std::uint64_t a, std::uint64_t b) {
  const std::uint64_t w = word64(s), x = word64(s + 8), y = word64(s + 16), z = word64(s + 24);
  a += w;
  b = std::rotr(b + a + z, 21);
  const std::uint64_t c = a;
  a += x + y;
  b += std::rotr(a, 44);
  return {a + z, b + c};
}

// The state while a long string is hashed, 64 bytes at a time.
struct Blocks {
  std::uint64_t x, y, z;
  Pair v{0, 0}, w{0, 0};

  void add(const char* s, std::uint64_t factor, std::uint64_t of_w, std::uint64_t of_v) {
    x = std::rotr(x + y + v.first + word64(s + 8), 37) * factor;
    y = std::rotr(y + v.second + word64(s + 48), 42) * factor;
    x ^= w.second * of_w;
    y += v.first * of_v + word64(s + 40);
    z = std::rotr(z + w.first, 33) * factor;
    v = of_32_bytes(s, v.second * factor, x + w.first);
    w = of_32_bytes(s + 32, z + w.second, y + word64(s + 16));
    std::swap(z, x);
  }
};

std::uint64_t of_more(const char* s, std::uint64_t size) {
  constexpr std::uint64_t kSeed = 81;
  Blocks blocks{.x = kSeed, .y = kSeed * kB + 113, .z = 0};
  blocks.z = shifted(blocks.y * kC + 113) * kC;
  blocks.x = blocks.x * kC + word64(s);
  const std::uint64_t rest = (size - 1) & 63;
  const char* const end = s + (size - 1) / 64 * 64;
  for (; s != end; s += 64) blocks.add(s, kB, 1, 1);
  const std::uint64_t factor = kB + ((blocks.z & 0xff) << 1);
  blocks.w.first += rest;
  blocks.v.first += blocks.w.first;
  blocks.w.first += blocks.v.first;
  blocks.add(end + rest - 63, factor, 9, 9);
  const auto& [x, y, z, v, w] = blocks;
  return combined(combined(v.first, w.first, factor) + shifted(y) * kA + z,
                  combined(v.second, w.second, factor) + x, factor);
}

}  // namespace

std::uint64_t fingerprint64(std::string_view bytes) {
  const std::uint64_t size = bytes.size();
  if (size <= 16) return of_at_most_16(bytes.data(), size);
  if (size <= 32) return of_at_most_32(bytes.data(), size);
  if (size <= 64) return of_at_most_64(bytes.data(), size);
  return of_more(bytes.data(), size);
}

std::uint64_t siphash64(std::string_view bytes, std::uint64_t key0, std::uint64_t key1) {
  std::uint64_t v0 = key0 ^ 0x736f6d6570736575, v1 = key1 ^ 0x646f72616e646f6d,
                v2 = key0 ^ 0x6c7967656e657261, v3 = key1 ^ 0x7465646279746573;
  const auto rounds = [&](int count) {
    for (int i = 0; i < count; ++i) {
      v0 += v1;
      v2 += v3;
      v1 = std::rotl(v1, 13) ^ v0;
      v3 = std::rotl(v3, 16) ^ v2;
      v0 = std::rotl(v0, 32);
      v2 += v1;
      v0 += v3;
      v1 = std::rotl(v1, 17) ^ v2;
      v3 = std::rotl(v3, 21) ^ v0;
      v2 = std::rotl(v2, 32);
    }
  };
  const auto add = [&](std::uint64_t word) {
    v3 ^= word;
    rounds(2);
    v0 ^= word;
  };
  const std::size_t whole = bytes.size() / 8 * 8;
  for (std::size_t at = 0; at < whole; at += 8) add(word64(bytes.data() + at));
  std::uint64_t last = std::uint64_t{bytes.size()} << 56;
  for (std::size_t at = whole; at < bytes.size(); ++at)
    last |= std::uint64_t{static_cast<unsigned char>(bytes[at])} << (8 * (at - whole));
  add(last);
  v2 ^= 0xff;
  rounds(4);
  return v0 ^ v1 ^ v2 ^ v3;
}

namespace layers {

Hashing::Hashing(std::int64_t num_bins, const HashingOptions& options)
    : num_bins_(num_bins), options_(options) {
  if (num_bins < 1)
    fail<InvalidArgumentError>("[Hashing] expected at least 1 bin, got {}", num_bins);
  static_cast<void>(output_mode_from_name(
      "Hashing", options.output_mode,
      {OutputMode::kInt, OutputMode::kOneHot, OutputMode::kMultiHot, OutputMode::kCount}));
}

std::int64_t Hashing::bin(std::string_view text) const {
  const bool masks = options_.mask_value && num_bins_ > 1;
  if (masks && text == *options_.mask_value) return 0;
  const std::uint64_t hash = options_.salt
                                 ? siphash64(text, options_.salt->first, options_.salt->second)
                                 : fingerprint64(text);
  const auto bins = static_cast<std::uint64_t>(masks ? num_bins_ - 1 : num_bins_);
  return static_cast<std::int64_t>(hash % bins) + (masks ? 1 : 0);
}

Tensor Hashing::encoded(std::vector<std::int64_t> bins, const Shape& shape) const {
  const OutputMode mode = output_mode_from_name(
      "Hashing", options_.output_mode,
      {OutputMode::kInt, OutputMode::kOneHot, OutputMode::kMultiHot, OutputMode::kCount});
  return tandem::encoded(mode, constant(bins, {.shape = shape}), num_bins_, float32);
}

Tensor Hashing::operator()(const data::StringColumn& strings) const {
  const data::PipelineScope scope;
  std::vector<std::int64_t> bins;
  for (std::int64_t row = 0; row < strings.size(); ++row)
    bins.push_back(bin(strings.is_missing(row) ? options_.mask_value.value_or("") : strings[row]));
  // One string in each example.
  const bool vectors = options_.output_mode != "int";
  return encoded(std::move(bins), vectors ? Shape{strings.size(), 1} : Shape{strings.size()});
}

Tensor Hashing::operator()(const Tensor& integers) const {
  if (is_floating(integers.dtype()))
    fail<DTypeError>("[Hashing] expected integers, got {}", name_of(integers.dtype()));
  const data::PipelineScope scope;
  std::vector<std::int64_t> bins = integers_of(integers.cpu());
  for (std::int64_t& value : bins) value = bin(std::to_string(value));
  return encoded(std::move(bins), integers.shape());
}

}  // namespace layers
}  // namespace tandem
