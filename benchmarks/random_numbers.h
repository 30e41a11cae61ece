// Random numbers. peers/torch_step.py generates the same ones, so that both programs train the same
// weights on the same data.
#pragma once

#include <tandem/tandem.h>

#include <cmath>
#include <cstdint>
#include <string_view>
#include <vector>

namespace bench {

// Element `index` of a stream, 32 bits (the finaliser of lowbias32).
inline std::uint32_t random_bits(std::uint32_t stream, std::int64_t index) {
  std::uint32_t x = static_cast<std::uint32_t>(index) * 0x9E3779B9u + stream * 0x85EBCA6Bu;
  x ^= x >> 16;
  x *= 0x7FEB352Du;
  x ^= x >> 15;
  x *= 0x846CA68Bu;
  return x ^ (x >> 16);
}

// Uniform in [-range / 2, range / 2).
inline tandem::Tensor random_uniform(std::uint32_t stream, const tandem::Shape& shape,
                                     double range) {
  std::vector<float> values(static_cast<std::size_t>(shape.num_elements()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint32_t bits = random_bits(stream, static_cast<std::int64_t>(i)) >> 8;
    values[i] = (static_cast<float>(bits) * 0x1p-24f - 0.5f) * static_cast<float>(range);
  }
  return tandem::constant(values, {.shape = shape});
}

inline tandem::Tensor random_classes(std::uint32_t stream, const tandem::Shape& shape,
                                     std::int64_t classes) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(shape.num_elements()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = (random_bits(stream, static_cast<std::int64_t>(i)) >> 8) % classes;
  return tandem::constant(values, {.shape = shape});
}

// Sets kernels and embedding tables to random values, each from its own stream. Kernels have the
// variance 1 / fan_in, tables a standard deviation of 0.02.
inline void set_random_weights(const std::vector<tandem::Variable>& variables) {
  std::uint32_t stream = 0;
  for (tandem::Variable variable : variables) {
    ++stream;
    const std::string_view name = variable.name();
    const tandem::Shape& shape = variable.shape();
    double range = 0.02 * std::sqrt(12.0);
    if (name.ends_with("/kernel")) {
      // [inputs, heads, depth]: outputs in two axes.
      const bool heads = shape.rank() == 3 && !name.ends_with("attention_output/kernel");
      const std::int64_t outputs = heads ? shape[1] * shape[2] : shape.dim(-1);
      range = std::sqrt(12.0 / static_cast<double>(shape.num_elements() / outputs));
    } else if (!name.ends_with("/embeddings")) {
      continue;
    }
    variable.assign(random_uniform(stream, shape, range));
  }
}

}  // namespace bench
