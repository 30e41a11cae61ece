// Any text as the files of train_and_evaluate() results in a record and an evaluation, or in a
// DataLossError.
#include <cstdint>
#include <string>

#include "core/status.h"
#include "estimator/model_directory.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(bytes), size);
  try {
    const auto record = tandem::estimator::parse_record(text, "input");
    TANDEM_ASSERT(record.latest >= 0 && record.finished.value_or(0) >= 0);
  } catch (const tandem::DataLossError&) {
  }
  try {
    TANDEM_ASSERT(tandem::estimator::parse_evaluation(text, "input").global_step >= 0);
  } catch (const tandem::DataLossError&) {
  }
  return 0;
}
