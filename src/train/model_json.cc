#include "tandem/model_json.h"

#include <algorithm>

#include "core/nearest.h"
#include "nn/json_options.h"
#include "train/model_text.h"

namespace tandem {
namespace {

// The sizes of one example.
Shape example_shape(const Json& json, const std::string& path) {
  Shape shape;
  at_json_path(path, [&] {
    from_json(json, path, shape);
    if (std::ranges::any_of(shape.words(), [](std::int64_t size) { return size < 1; }))
      throw JsonError("expected sizes of at least 1, got " + shape.to_string());
  });
  return shape;
}

// The layer of an element of "layers"; if it has no dtype policy, with `dtype`.
Layer layer_of(Json json, const std::string& path, const std::string& dtype) {
  if (json.is_string()) json = Json(Json::Object{{"type", json}});
  if (json.is_object() && !json.find("dtype") && !dtype.empty()) json["dtype"] = dtype;
  return layer_from_json(json, path);
}

std::string path_of_layer(std::size_t index) { return fmt::format("layers[{}]", index); }

// One layer after another.
Model sequence(const Shape& input, const Json::Array& layers, const std::string& dtype) {
  std::vector<Layer> made;
  for (const Json& layer : layers)
    made.push_back(layer_of(layer, path_of_layer(made.size()), dtype));
  Sequential model(made);
  at_json_path("layers", [&] { model.build(input.with_leading(-1)); });
  return model;
}

// Inputs and results of layers, of which "inputs" of layers and "outputs" have the names.
class NamedValues {
 public:
  struct Value {
    std::string name;  // empty: none
    SymbolicInput value;
    std::string path;
    bool used = false;
  };

  void add(const std::string& name, const SymbolicInput& value, const std::string& path) {
    if (!name.empty() && std::ranges::find(values_, name, &Value::name) != values_.end())
      throw ModelTextError(path, "expected another name than '" + name + "', which is taken");
    values_.push_back({name, value, path});
  }
  // Those of a name, or of a list of names.
  std::vector<SymbolicInput> named(const Json& names, const std::string& path) {
    if (!names.is_array()) return {of_name(names, path)};
    std::vector<SymbolicInput> found;
    for (const Json& name : names.array())
      found.push_back(of_name(name, fmt::format("{}[{}]", path, found.size())));
    if (found.empty()) throw ModelTextError(path, "expected at least one name, got none");
    return found;
  }
  // The `count` values that were added last.
  std::vector<SymbolicInput> last(std::size_t count) {
    std::vector<SymbolicInput> found;
    for (auto value = values_.end() - static_cast<std::ptrdiff_t>(count); value != values_.end();
         ++value) {
      value->used = true;
      found.push_back(value->value);
    }
    return found;
  }
  void expect_all_used() const {
    for (const Value& value : values_)
      if (!value.used)
        throw ModelTextError(value.path, "expected a layer or \"outputs\" that uses it, got none");
  }

 private:
  SymbolicInput of_name(const Json& json, const std::string& path) {
    std::string name;
    at_json_path(path, [&] { name = json.text(); });
    std::string known;
    std::vector<std::string_view> names;
    for (Value& value : values_) {
      if (value.name.empty()) continue;
      if (value.name == name) {
        value.used = true;
        return value.value;
      }
      names.push_back(value.name);
      known += (known.empty() ? "" : ", ") + value.name;
    }
    std::string message = fmt::format("expected one of {}; got '{}'", known, name);
    const std::string_view near = nearest(name, names);
    if (!near.empty()) message += fmt::format("; did you mean '{}'?", near);
    throw ModelTextError(path, message);
  }

  std::vector<Value> values_;
};

// The name of a layer's JSON; empty: none.
std::string name_in(const Json& layer) {
  const Json* name = layer.is_object() ? layer.find("name") : nullptr;
  return name && name->is_string() ? name->text() : "";
}

Json without_inputs(const Json& layer) {
  Json::Object rest;
  for (const Json::Member& member : layer.object())
    if (member.name != "inputs") rest.push_back(member);
  return rest;
}

// Layers whose member "inputs" has the names of what they take; else it is the result of the layer
// before, and all inputs for the first layer.
Model graph(const Json& inputs, const Json::Array& layers, const Json* outputs,
            const std::string& dtype) {
  NamedValues values;
  std::vector<SymbolicInput> all;
  for (const auto& [name, shape] : inputs.object()) {
    const std::string path = "inputs." + name;
    all.push_back(Input(example_shape(shape, path), name));
    values.add(name, all.back(), path);
  }
  if (all.empty()) throw ModelTextError("inputs", "expected at least one input, got none");
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::string path = path_of_layer(i);
    const Json* names = layers[i].is_object() ? layers[i].find("inputs") : nullptr;
    const std::vector<SymbolicInput> from =
        names ? values.named(*names, path + ".inputs") : values.last(i == 0 ? all.size() : 1);
    const Layer layer = layer_of(names ? without_inputs(layers[i]) : layers[i], path, dtype);
    at_json_path(path, [&] { values.add(name_in(layers[i]), layer(from), path); });
  }
  const std::vector<SymbolicInput> results =
      outputs ? values.named(*outputs, "outputs") : values.last(1);
  values.expect_all_used();
  Model model;
  at_json_path("layers", [&] { model = Model(all, results); });
  return model;
}

const Json::Array& expect_layers(const Json& json) {
  const Json::Array* layers = nullptr;
  at_json_path("layers", [&] {
    layers = &json.array();
    if (layers->empty()) throw JsonError("expected at least one layer, got none");
  });
  return *layers;
}

// A loss, or a list with one for each output.
PerOutput<losses::Loss> losses_of(const Json& json) {
  if (!json.is_array()) return loss_from_json(json, "loss");
  std::vector<losses::Loss> all;
  for (const Json& loss : json.array())
    all.push_back(loss_from_json(loss, fmt::format("loss[{}]", all.size())));
  return all;
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
  json.require("inputs");
  const Json& inputs = *json.find("inputs");
  const bool named = inputs.is_object();
  const Shape input = named ? Shape() : example_shape(inputs, "inputs");
  const auto policy = json.value<DTypePolicy>("dtype", mixed_precision::global_policy());
  made.dtype = policy.compute_dtype();
  read_normalize(json, made);
  const auto layout = json.value<std::string>("input_layout", "channels_last");
  made.channels_first = layout == "channels_first";
  if (!made.channels_first && layout != "channels_last")
    throw ModelTextError("input_layout",
                         "expected \"channels_last\" or \"channels_first\", got \"" + layout + '"');
  json.require("layers");
  const Json::Array& layers = expect_layers(*json.find("layers"));
  const Json* outputs = named ? json.find("outputs") : nullptr;
  const Json *optimizer = json.find("optimizer"), *loss = json.find("loss");
  if (optimizer || loss) {
    json.require("optimizer");
    json.require("loss");
  }
  std::vector<double> weights;
  if (loss && named) json.read("loss_weights", weights);
  json.finish();
  made.model = named ? graph(inputs, layers, outputs, policy.name())
                     : sequence(input, layers, policy.name());
  if (made.normalize &&
      (made.model.output_names().size() > 1 || (named && inputs.object().size() > 1)))
    throw ModelTextError("normalize", "expected none with several inputs or outputs");
  if (!loss) return made;
  const auto optimizer_made = optimizer_from_json(*optimizer, "optimizer");
  const auto losses_made = losses_of(*loss);
  at_json_path("loss", [&] {
    made.model.compile({.optimizer = optimizer_made, .loss = losses_made, .loss_weights = weights});
  });
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
