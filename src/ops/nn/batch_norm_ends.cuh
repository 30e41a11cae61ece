// How the kernels of batch normalisation load input 0 and store output 0.
#pragma once

#include "ops/cuda/chain.cuh"
#include "ops/cuda/columns.cuh"

namespace tandem::cuda {

// Plain and PlainResult use memory as it is. Chained and ChainedResult apply a chain to the
// elements after loading or before storing; they are the chain's input 0.
template <class T, int kPack>
struct Plain {
  using C = ComputeOf<T>;
  const T* x;
  static constexpr int kRows = 4;  // per iteration
  template <class F>
  __device__ void memory(const F& f) const {
    f(x);
  }
  using Loaded = Pack<T, kPack>;
  __device__ Loaded load(std::int64_t at) const { return load_pack<kPack>(x, at, kPack); }
  __device__ void numbers(const Loaded& pack, C (&values)[kPack]) const {
#pragma unroll
    for (int i = 0; i < kPack; ++i) values[i] = load_as(pack.at[i]);
  }
};
template <class T, int kPack>
struct PlainResult {
  T* y;
  static constexpr int kRows = 4;  // per iteration
  template <class F>
  __device__ void memory(const F& f) const {
    f(y);
  }
  struct Loaded {};
  __device__ Loaded load(std::int64_t) const { return {}; }
  __device__ void store(std::int64_t at, Loaded, const Pack<T, kPack>& pack) const {
    store_pack(y, at, kPack, pack);
  }
};

// The loaded inputs of a chain, except the first `given`.
template <int kPack>
struct TileInputs {
  RawPack<float, kPack> inputs[kTileInputs];
  __device__ TileInputs(const Chain& chain, int given, std::int64_t at) {
    load_inputs(chain, given, at, kPack, inputs);
  }
};

template <class T, int kPack>
struct Chained {
  Chain chain;
  static constexpr int kRows = 1;
  template <class F>
  __device__ void memory(const F&) const {}  // load_inputs() checks the alignment of each input
  using Loaded = TileInputs<kPack>;
  __device__ Loaded load(std::int64_t at) const { return {chain, 0, at}; }
  __device__ void numbers(const Loaded& loaded, float (&values)[kPack]) const {
    run_chain<false>(chain, loaded.inputs, nullptr, values);
  }
};
template <class T, int kPack>
struct ChainedResult {
  Chain chain;
  T* y;
  static constexpr int kRows = 1;
  template <class F>
  __device__ void memory(const F& f) const {
    f(y);
  }
  using Loaded = TileInputs<kPack>;
  __device__ Loaded load(std::int64_t at) const { return {chain, 1, at}; }
  __device__ void store(std::int64_t at, const Loaded& loaded, Pack<T, kPack> pack) const {
    float given[kPack], x[kPack];
#pragma unroll
    for (int i = 0; i < kPack; ++i) given[i] = load_as(pack.at[i]);
    run_chain<false>(chain, loaded.inputs, &given, x);
#pragma unroll
    for (int i = 0; i < kPack; ++i) pack.at[i] = store_as<T>(x[i]);
    store_pack(y, at, kPack, pack);
  }
};

}  // namespace tandem::cuda
