// Random numbers: counter-based (Philox 4x32-10). A random number depends on the seed, the number
// of the call, the replica and the element's position alone, never on threads or devices.
//
// Each replica of a strategy has a stream of its own, so a step that makes noise with these
// functions gets other noise with two replicas than with one. nn::dropout, whose first axis is the
// batch, does not; nor does noise that is made in Dataset::map or before Strategy::run.
#pragma once

#include <cstdint>
#include <string_view>

#include "tandem/tensor.h"

namespace tandem::random {

// The state of a random number generator, to be saved and restored.
struct GeneratorState {
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;  // the number of random operations that the stream has served
  friend bool operator==(const GeneratorState&, const GeneratorState&) = default;
};

// Restarts the process's stream (and with it every replica's). Without it the seed is 0x5eed.
void set_seed(std::uint64_t seed);
GeneratorState get_state();
void set_state(const GeneratorState& state);

struct Options {
  DType dtype = float32;
  std::string_view name{};
};
Tensor normal(const Shape& shape, double mean = 0.0, double stddev = 1.0,
              const Options& options = {});
// Values beyond two standard deviations are sampled again.
Tensor truncated_normal(const Shape& shape, double mean = 0.0, double stddev = 1.0,
                        const Options& options = {});
Tensor uniform(const Shape& shape, double low = 0.0, double high = 1.0,
               const Options& options = {});  // [low, high)
Tensor uniform_int(const Shape& shape, std::int64_t low, std::int64_t high,
                   const Options& options = {.dtype = int32});  // [low, high)
Tensor bernoulli(const Shape& shape, double probability,
                 const Options& options = {});  // ones and zeros
// 0 .. count-1 in random order; int64.
Tensor permutation(std::int64_t count);
Tensor shuffle(const Tensor& x);  // along the first axis

}  // namespace tandem::random
