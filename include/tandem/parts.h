/// @file
/// Steps that are computed part by part: distribute::for_each_part() and
/// DistributedDataParallel::for_each_part().
#pragma once

#include <functional>
#include <type_traits>
#include <vector>

#include "tandem/data.h"
#include "tandem/tensor.h"

namespace tandem::detail {

using PartStep = std::function<std::vector<Tensor>(const data::Example& part)>;

// Adapts `step`, which returns nothing or a Tensor, to a PartStep and passes it to `run`, which
// calls it for each part and returns the sums of the results. Returns nothing or the sum.
template <class Run, class Step>
auto over_parts(const Run& run, const Step& step) {
  if constexpr (std::is_void_v<std::invoke_result_t<const Step&, const data::Example&>>) {
    run([&](const data::Example& part) {
      step(part);
      return std::vector<Tensor>();
    });
  } else {
    return run([&](const data::Example& part) { return std::vector<Tensor>{step(part)}; }).front();
  }
}

}  // namespace tandem::detail
