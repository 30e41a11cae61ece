#include "ops/onednn/parts.h"

#include "core/multiversion.h"

namespace tandem::onednn {
namespace {

TANDEM_MULTIVERSION void add_range(float* __restrict__ sums, const float* __restrict__ terms,
                                   std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) sums[i] += terms[i];
}

}  // namespace

void add_parts(float* sums, const float* others, int count, std::int64_t size) {
  constexpr std::int64_t kBlock = 4096;  // elements whose sums stay in the L1 cache
  parallel_for((size + kBlock - 1) / kBlock, 4, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t block = first; block < last; ++block) {
      const std::int64_t begin = block * kBlock, length = std::min(kBlock, size - begin);
      for (int i = 0; i < count; ++i) add_range(sums + begin, others + i * size + begin, length);
    }
  });
}

}  // namespace tandem::onednn
