// GPU kernels of random.cc. They use the same random words as the CPU, so that integers and
// Bernoulli samples are the same. Floating-point numbers may differ in the last bits.
#include <numbers>

#include "ops/cuda/elements.cuh"
#include "ops/cuda/kernel_list.h"
#include "ops/cuda/per_run_arg.cuh"
#include "ops/random/random_attrs.h"
#include "ops/random/words.h"

namespace tandem::cuda {
namespace {

using Word = std::array<std::uint32_t, 4>;  // of one counter

// Distributions convert the words of a counter to a column of a block. They have kRows, the number
// of rows of a block, and fill(words, elements).

template <class C>
struct Uniform {
  C low, range, top;  // top: the largest element below the upper bound
  static constexpr int kRows = sizeof(C) == 8 ? 2 : 4;
  __device__ void fill(const Word& words, C (&rows)[kRows]) const {
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      C unit;
      if constexpr (sizeof(C) == 8)
        unit = unit_double(words[2 * row], words[2 * row + 1]);
      else
        unit = unit_float(words[row]);
      const C value = ::fma(unit, range, low);  // compilers for CPUs also emit an FMA here
      rows[row] = value < top ? value : top;
    }
  }
};

// The Box-Muller method.
template <class C>
struct Normal {
  C mean, stddev;
  static constexpr int kRows = Uniform<C>::kRows;
  __device__ void fill(const Word& words, C (&rows)[kRows]) const {
    if constexpr (sizeof(C) == 8) {
      const double u = 1.0 - unit_double(words[0], words[1]);
      const double angle = 2.0 * std::numbers::pi * unit_double(words[2], words[3]);
      const double radius = stddev * ::sqrt(-2.0 * ::log(u));
      rows[0] = mean + radius * ::cos(angle);
      rows[1] = mean + radius * ::sin(angle);
    } else {
#pragma unroll
      for (int row = 0; row < 4; row += 2) {
        const float radius = stddev * ::sqrt(-2.0f * ::log(positive_float(words[row])));
        const UnitVector direction = random_unit_vector(words[row + 1]);
        rows[row] = mean + radius * direction.cosine;
        rows[row + 1] = mean + radius * direction.sine;
      }
    }
  }
};

// A function object, for formulas that are shared with the CPU.
struct Log {
  __host__ __device__ float operator()(float x) const { return ::log(x); }
};
struct Exp {
  __host__ __device__ double operator()(double x) const { return ::exp(x); }
};
struct Erf {
  __host__ __device__ double operator()(double x) const { return ::erf(x); }
};
__device__ float inverse_of_erf(float y) { return erf_inverse(y, Log()); }
__device__ double inverse_of_erf(double y) { return erf_inverse(y, Log(), Exp(), Erf()); }

// By inversion.
template <class C>
struct TruncatedNormal {
  C mean, stddev;
  static constexpr int kRows = Uniform<C>::kRows;
  __device__ void fill(const Word& words, C (&rows)[kRows]) const {
    Uniform<C>{C(-kTwoDeviations), C(2.0 * kTwoDeviations), C(kTwoDeviations)}.fill(words, rows);
#pragma unroll
    for (C& each : rows) each = mean + stddev * truncated(inverse_of_erf(each));
  }
};

struct Bernoulli {
  Ones ones;
  static constexpr int kRows = 4;
  __device__ void fill(const Word& words, float (&rows)[kRows]) const {
#pragma unroll
    for (int row = 0; row < kRows; ++row) rows[row] = ones.number_of(words[row]);
  }
};

struct UniformInt {
  std::uint64_t low;
  std::uint64_t count;
  static constexpr int kRows = 2;
  __device__ void fill(const Word& words, std::int64_t (&rows)[kRows]) const {
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      const std::uint64_t bits = std::uint64_t{words[2 * row]} << 32 | words[2 * row + 1];
      rows[row] = static_cast<std::int64_t>(low + random_below(count, bits));
    }
  }
};

// One thread per counter, which is column `counter % kColumns` of a block of kRows rows.
template <class T, class C, class Distribution>
__global__ void __launch_bounds__(kThreads)
    fill_elements(PerRunArg<RandomKey> random_key, Distribution distribution, T* y,
                  std::int64_t size) {
  constexpr int kRows = Distribution::kRows;
  const std::int64_t counter = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t first = counter / kColumns * (kRows * kColumns) + counter % kColumns;
  if (first >= size) return;
  C rows[kRows];
  distribution.fill(philox(random_key(), static_cast<std::uint64_t>(counter)), rows);
#pragma unroll
  for (int row = 0; row < kRows; ++row)
    if (const std::int64_t at = first + row * kColumns; at < size) y[at] = store_as<T>(rows[row]);
}

template <class T, class C, class Distribution>
void fill_random(KernelContext& c, const Distribution& distribution) {
  const auto random_key =
      per_run_arg<RandomAttrs>(c, [](const RandomAttrs& a) { return a.random_key(); });
  const std::int64_t size = c.outputs[0].size();
  if (size == 0) return;
  constexpr std::int64_t kBlock = Distribution::kRows * kColumns;
  const std::int64_t counters = (size + kBlock - 1) / kBlock * kColumns;
  launch(c, {.blocks = blocks_for(counters)}, fill_elements<T, C, Distribution>, random_key,
         distribution, c.outputs[0].as<T>(), size);
}

void uniform_kernel(KernelContext& c) {
  const auto& attrs = c.attrs<RandomAttrs>();
  switch_floating(attrs.dtype, [&]<class T>(Type<T>) {
    using C = ComputeOf<T>;
    fill_random<T, C>(c, Uniform<C>{static_cast<C>(attrs.a), static_cast<C>(attrs.b - attrs.a),
                                    static_cast<C>(largest_uniform(attrs))});
  });
}

template <template <class> class Distribution>
void normal_kernel(KernelContext& c) {
  const auto& attrs = c.attrs<RandomAttrs>();
  switch_floating(attrs.dtype, [&]<class T>(Type<T>) {
    using C = ComputeOf<T>;
    fill_random<T, C>(c, Distribution<C>{static_cast<C>(attrs.a), static_cast<C>(attrs.b)});
  });
}

void bernoulli_kernel(KernelContext& c) {
  const auto& attrs = c.attrs<RandomAttrs>();
  switch_any(attrs.dtype,
             [&]<class T>(Type<T>) { fill_random<T, float>(c, Bernoulli{attrs.ones()}); });
}

void uniform_int_kernel(KernelContext& c) {
  const auto& attrs = c.attrs<RandomAttrs>();
  switch_numeric(attrs.dtype, [&]<class T>(Type<T>) {
    if constexpr (std::is_integral_v<T>)
      fill_random<T, std::int64_t>(c, UniformInt{attrs.low, attrs.integers()});
  });
}

}  // namespace

KernelList random_kernels() {
  static constexpr CudaKernel kernels[] = {
      {"RandomStandardNormal", on_gpu<normal_kernel<Normal>>},
      {"TruncatedNormal", on_gpu<normal_kernel<TruncatedNormal>>},
      {"RandomUniform", on_gpu<uniform_kernel>},
      {"RandomUniformInt", on_gpu<uniform_int_kernel>},
      {"RandomBernoulli", on_gpu<bernoulli_kernel>}};
  return kernels;
}

}  // namespace tandem::cuda
