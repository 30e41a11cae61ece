#include "tandem/model_json.h"

#include "nn/json_options.h"
#include "train/model_text.h"

namespace tandem {
namespace {

// The input's shape with the batch axis.
Shape batch_shape(const Shape& example) {
  Dims sizes{-1};
  at_json_path("inputs", [&] {
    for (const std::int64_t size : example.words()) {
      if (size < 1) throw JsonError("expected sizes of at least 1, got " + example.to_string());
      sizes.push_back(size);
    }
  });
  return Shape(sizes);
}

// The layers; those without a dtype policy get `dtype`.
std::vector<Layer> layers_of(const Json& json, const std::string& dtype) {
  std::vector<Layer> layers;
  at_json_path("layers", [&] {
    if (json.array().empty()) throw JsonError("expected at least one layer, got none");
    for (Json layer : json.array()) {
      if (layer.is_string()) layer = Json(Json::Object{{"type", layer}});
      if (layer.is_object() && !layer.find("dtype") && !dtype.empty()) layer["dtype"] = dtype;
      layers.push_back(layer_from_json(layer, fmt::format("layers[{}]", layers.size())));
    }
  });
  return layers;
}

// true, false, or options.
void read_normalize(JsonOptions& json, ModelText& made) {
  const Json* found = json.find("normalize");
  if (!found || !found->is_object()) return json.read("normalize", made.normalize);
  made.normalize = true;
  JsonOptions options(*found, "normalize");
  options.read("per", made.normalize_per);
  options.read("freeze_after", made.normalize_freeze_after);
  options.finish();
  if (made.normalize_per != "feature" && made.normalize_per != "channel" &&
      made.normalize_per != "all")
    throw ModelTextError("normalize.per", "expected \"feature\", \"channel\" or \"all\", got \"" +
                                              made.normalize_per + '"');
  if (made.normalize_freeze_after < 0)
    throw ModelTextError("normalize.freeze_after",
                         fmt::format("expected at least 0, got {}", made.normalize_freeze_after));
}

Json parse(const std::string& text) {
  try {
    return Json::parse(text, "the definition");
  } catch (const JsonError& error) {
    throw InvalidArgumentError(std::string("[model_from_json] ") + error.what());
  }
}

}  // namespace

ModelText read_model_text(const std::string& text) {
  const Json root = parse(text);
  JsonOptions json(root, "");
  ModelText made;
  made.input = json.required<Shape>("inputs");
  const Shape inputs = batch_shape(made.input);
  const auto policy = json.value<DTypePolicy>("dtype", mixed_precision::global_policy());
  made.dtype = policy.compute_dtype();
  read_normalize(json, made);
  const auto layout = json.value<std::string>("input_layout", "channels_last");
  made.channels_first = layout == "channels_first";
  if (!made.channels_first && layout != "channels_last")
    throw ModelTextError("input_layout",
                         "expected \"channels_last\" or \"channels_first\", got \"" + layout + '"');
  json.require("layers");
  const Json *optimizer = json.find("optimizer"), *loss = json.find("loss");
  if (optimizer || loss) {
    json.require("optimizer");
    json.require("loss");
  }
  json.finish();
  Sequential model(layers_of(*json.find("layers"), policy.name()));
  at_json_path("layers", [&] { model.build(inputs); });
  if (loss)
    model.compile({.optimizer = optimizer_from_json(*optimizer, "optimizer"),
                   .loss = loss_from_json(*loss, "loss")});
  made.model = model;
  return made;
}

Model model_from_json(const std::string& text) {
  const ModelText made = read_model_text(text);
  if (made.normalize || made.channels_first)
    throw ModelTextError(made.normalize ? "normalize" : "input_layout",
                         "expected none: the C library alone converts its arrays");
  return made.model;
}

}  // namespace tandem
