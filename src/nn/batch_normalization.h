// Batch normalisation with the moments of this batch, or of the batches of several ranks.
#pragma once

#include <optional>
#include <string>

#include "tandem/comm.h"
#include "tandem/layers.h"

namespace tandem {

struct BatchNormalizationSettings {
  const char* kind = "batch_normalization";
  layers::BatchNormalizationOptions options{};
  bool unbiased =
      false;          // the moving variance follows n / (n - 1) times the variance, as in PyTorch
  bool relu = false;  // of the result
  // The ranks whose moments are combined (sync_moments.h); none: this batch's moments.
  std::optional<comm::ProcessGroup> synchronized{};
};
Layer make_batch_normalization(const BatchNormalizationSettings& settings);

// Makes a batch normalisation, which keeps its variables, take moments over ranks. Returns false if
// the layer is of another type.
bool synchronize_batch_normalization(LayerBase& layer, const comm::ProcessGroup& group);

}  // namespace tandem
