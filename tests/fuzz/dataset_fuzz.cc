// Any bytes as the description of a dataset: a dataset whose first elements can be read, or a typed
// error.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/status.h"
#include "data/description.h"
#include "tandem/creation.h"

namespace {

using tandem::data::proto::Stage;

// Whether a pass takes little time and memory, and reads no files.
bool is_small(const tandem::data::proto::Dataset& message) {
  constexpr int kMaxStages = 8;
  return message.stages_size() <= kMaxStages &&
         std::all_of(message.stages().begin(), message.stages().end(), [](const Stage& stage) {
           return !stage.has_files() && !stage.has_filter() && stage.repeat() >= 0 &&
                  stage.repeat() <= 4 && stage.map().num_parallel_calls() <= 4;
         });
}

void run(const tandem::data::proto::Dataset& message) {
  constexpr int kElements = 20;
  const std::vector<tandem::Tensor> tensors = {tandem::zeros({5, 2}), tandem::range(5),
                                               tandem::zeros({})};
  const tandem::data::Dataset dataset = tandem::data::dataset_of(message, tensors, {});
  static_cast<void>(dataset.element_spec());
  static_cast<void>(dataset.cardinality());
  if (!is_small(message)) return;
  tandem::data::Iterator elements = dataset.iterate({.epoch = 1, .skip = 1});
  for (int i = 0; i < kElements && elements.next(); ++i) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  tandem::data::proto::Dataset message;
  if (!message.ParseFromArray(bytes, static_cast<int>(size))) return 0;
  try {
    run(message);
  } catch (const tandem::Error&) {
  }
  return 0;
}
