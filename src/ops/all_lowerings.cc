// Lists every lowering to StableHLO.
#include <algorithm>
#include <vector>

#include "ops/lowering_list.h"

namespace tandem::stablehlo {
namespace {

std::span<const Lowering> list_lowerings() {
  static const auto& lowerings = *new const std::vector<Lowering>([] {
    std::vector<Lowering> all;
    for (LoweringList (*family)() :
         {elementwise_lowerings, reduce_lowerings, matmul_lowerings, array_lowerings,
          activation_lowerings, dense_lowerings, softmax_lowerings, conv_lowerings, pool_lowerings,
          norm_lowerings, update_lowerings, random_lowerings, dropout_lowerings,
          attention_lowerings, scan_lowerings, collective_lowerings}) {
      const LoweringList list = family();
      all.insert(all.end(), list.begin(), list.end());
    }
    std::sort(all.begin(), all.end(),
              [](const Lowering& a, const Lowering& b) { return a.op < b.op; });
    return all;
  }());
  return lowerings;
}

[[maybe_unused]] const bool lowerings_registered = all_lowerings.set(list_lowerings);

}  // namespace
}  // namespace tandem::stablehlo
