#include "nn/sorted_search.h"

#include <bit>

#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/math.h"

namespace tandem {

// Each round halves the part of `sorted` in which an element's place is. Elements beyond the end
// stand
// for infinity: a round that meets them does not advance.
Tensor number_at_most(const Tensor& sorted, std::int64_t count, const Tensor& x) {
  Tensor place = cast(zeros_like(x), int64);
  if (count == 0) return place;
  for (auto step = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(count)));
       step > 0; step /= 2) {
    const Tensor next = place + static_cast<double>(step);
    const Tensor last = minimum(next, static_cast<double>(count)) - 1.0;
    const Tensor advances = logical_and(logical_not(less(x, gather(sorted, last))),
                                        less_equal(next, static_cast<double>(count)));
    place = where(advances, next, place);
  }
  return place;
}

}  // namespace tandem
