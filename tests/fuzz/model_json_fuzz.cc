// Any text makes a model, or a typed error that names a place in it.
#include <algorithm>
#include <cctype>
#include <cstdint>
#include <string>

#include "core/status.h"
#include "fuzz/damage.h"
#include "tandem/model_json.h"

namespace {

// Numbers of more digits are good text, too, but make models that need much memory.
bool has_large_number(const std::string& text) {
  std::size_t digits = 0;
  return std::any_of(text.begin(), text.end(), [&](unsigned char c) {
    digits = std::isdigit(c) ? digits + 1 : 0;
    return digits > 3;
  });
}

void make(const std::string& text) {
  if (has_large_number(text)) return;
  try {
    TANDEM_ASSERT(tandem::model_from_json(text).built());
  } catch (const tandem::InvalidArgumentError& error) {
    TANDEM_ASSERT(std::string(error.what()).starts_with("[model_from_json] "));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  make(std::string(reinterpret_cast<const char*>(bytes), size));
  std::string several =
      R"({"inputs": {"a": [4, 4, 1], "b": [3]}, "layers": [{"type": "flatten", "inputs": "a"},)"
      R"({"type": "dense", "units": 3, "name": "c"}, {"type": "add", "inputs": ["b", "c"]},)"
      R"({"type": "dense", "units": 2, "name": "d"}], "outputs": ["c", "d"],)"
      R"("optimizer": "sgd", "loss": ["mse", "huber"], "loss_weights": [1, 0.5]})";
  tandem::fuzz::damage(several, {bytes, size});
  make(several);
  std::string good =
      R"({"inputs": [4, 4, 2], "dtype": "float32", "layers": [{"type": "conv2d", "filters": 2,)"
      R"("kernel_size": [3, 3], "strides": 1, "padding": "same", "activation": "relu"}, "flatten",)"
      R"({"type": "dense", "units": 3, "kernel_initializer": {"type": "constant", "value": 0.5}}],)"
      R"("optimizer": {"type": "sgd", "clipnorm": 1, "learning_rate": {"type": "cosine_decay",)"
      R"("initial_learning_rate": 0.1, "decay_steps": 9}}, "loss": {"type": "huber", "delta": 2}})";
  tandem::fuzz::damage(good, {bytes, size});
  make(good);
  return 0;
}
