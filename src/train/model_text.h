// Models that JSON text describes.
#pragma once

#include <string>

#include "tandem/model.h"

namespace tandem {

struct ModelText {
  Model model;                            // built; compiled if the definition has a loss
  DType dtype;                            // of floating-point inputs
  bool normalize = false;                 // by statistics of the data, which the caller keeps
  std::string normalize_per = "feature";  // or "channel", "all"
  std::int64_t normalize_freeze_after = 0;
  bool channels_first = false;  // the caller's images are [batch, channels, ...]
};

// Throws InvalidArgumentError "[model_from_json] PATH: ...".
ModelText read_model_text(const std::string& text);

}  // namespace tandem
