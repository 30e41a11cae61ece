#include "sync/tree_sum.h"

#include <utility>

#include "runtime/placement.h"
#include "runtime/replica_invariance.h"
#include "tandem/autodiff.h"
#include "tandem/math.h"

namespace tandem {

void TreeSum::fold_top() {
  Tensor second = std::move(sums_.back());
  sums_.pop_back();
  Tensor& first = sums_.back();
  if (!first.defined()) {
    first = std::move(second);
  } else if (second.defined()) {
    const OnDeviceOf on(first);
    first = tandem::add(first, second);
  }
}

void TreeSum::add(Tensor value) {
  const NoGradScope no_grad;
  sums_.push_back(std::move(value));
  for (std::size_t pairs = parts_++; pairs % 2 == 1; pairs /= 2) fold_top();
}

Tensor TreeSum::total() {
  const NoGradScope no_grad;
  while (sums_.size() > 1) fold_top();
  Tensor total = sums_.empty() ? Tensor() : std::move(sums_.front());
  sums_.clear();
  parts_ = 0;
  if (!total.defined() || !is_floating(total.dtype())) return total;
  // Ranks without a value contribute +0, which turns a sum of -0 into +0. Adding +0 here makes
  // every rank and every number of replicas agree.
  const OnDeviceOf on(total);
  return total + 0.0;
}

Tensor sum_of_copies(std::span<const Tensor> values) {
  if (invariant_parts() > 0) {
    TreeSum tree;
    for (const Tensor& value : values) tree.add(value);
    return tree.total();
  }
  Tensor sum;
  for (const Tensor& value : values) sum = sum.defined() ? add(sum, value) : value;
  return sum;
}

}  // namespace tandem
