// Moments over the batches of several ranks, for synchronised batch normalisation.
#pragma once

#include <string_view>

#include "tandem/comm.h"
#include "tandem/tensor.h"

namespace tandem {

// The ranks are those of `group`; if it is an empty handle, the replicas of the strategy in whose
// replica the thread is, else the process group of all ranks, else this process alone.
int sync_size(const comm::ProcessGroup& group);

struct SyncMoments {
  Tensor count;           // how many numbers each moment is of, on all ranks: float64, [1]
  Tensor mean, variance;  // [c]; population variance; both are 0 if the count is 0
};
// The moments over all axes but the last, of the batches of all ranks. Every rank calls it, with as
// many channels; the other sizes may differ, and may be 0. Communicates once, and once more in the
// backward pass, which adds up the ranks' gradients with respect to the moments. `op`: for
// messages.
SyncMoments sync_moments(const Tensor& x, const comm::ProcessGroup& group, std::string_view op);

}  // namespace tandem
