// Options of layers, optimizers and losses as members of JSON objects.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "nn/naming.h"
#include "tandem/layers.h"
#include "tandem/losses.h"
#include "tandem/optimizers.h"
#include "tandem/recurrent.h"
#include "tandem/volumes.h"

namespace tandem {

// Text that does not describe a model: "[model_from_json] PATH: ...".
class ModelTextError final : public InvalidArgumentError {
 public:
  ModelTextError(const std::string& path, const std::string& message)
      : InvalidArgumentError("[model_from_json] " + path + ": " + message) {}
};

// Calls `read`. A JsonError or InvalidArgumentError becomes a ModelTextError of this path.
void at_json_path(const std::string& path, const std::function<void()>& read);

// Throw JsonError or InvalidArgumentError for values of other types, and ModelTextError for those
// that have parts, whose paths begin with `path`.
void from_json(const Json& json, const std::string& path, bool& value);
void from_json(const Json& json, const std::string& path, std::int64_t& value);
void from_json(const Json& json, const std::string& path, double& value);
void from_json(const Json& json, const std::string& path, std::string& value);
void from_json(const Json& json, const std::string& path, layers::ActivationName& value);
void from_json(const Json& json, const std::string& path, Shape& value);
void from_json(const Json& json, const std::string& path, Dims& value);
void from_json(const Json& json, const std::string& path, DTypePolicy& value);
void from_json(const Json& json, const std::string& path, nn::Pair& value);
void from_json(const Json& json, const std::string& path, nn::WindowPadding& value);
void from_json(const Json& json, const std::string& path, nn::Triple& value);
void from_json(const Json& json, const std::string& path, nn::VolumePadding& value);
void from_json(const Json& json, const std::string& path, Initializer& value);
void from_json(const Json& json, const std::string& path, optimizers::LearningRate& value);
void from_json(const Json& json, const std::string& path, losses::ReductionOption& value);
template <class T>
void from_json(const Json& json, const std::string& path, std::optional<T>& value) {
  from_json(json, path, value.emplace());
}
template <class T>
void from_json(const Json& json, const std::string& path, std::vector<T>& values) {
  const Json::Array& items = json.array();
  for (std::size_t i = 0; i < items.size(); ++i)
    from_json(items[i], path + "[" + std::to_string(i) + "]", values.emplace_back());
}

// The members of an object, each of which is to be asked for.
class JsonOptions {
 public:
  // Throws ModelTextError if `json` is not an object. `path` is where it is in the JSON; empty: it
  // is all of it. REQUIRES: `json` outlives this object.
  JsonOptions(const Json& json, std::string path);

  // The member of this name; null if there is none.
  const Json* find(std::string_view name);
  // Sets `value` if there is a member of this name.
  template <class T>
  void read(std::string_view name, T& value) {
    if (const Json* found = find(name))
      at_json_path(path_of(name), [&] { from_json(*found, path_of(name), value); });
  }
  template <class T>
  T value(std::string_view name, T otherwise) {
    read(name, otherwise);
    return otherwise;
  }
  // Throws ModelTextError if there is no such member.
  template <class T>
  T required(std::string_view name) {
    require(name);
    return value(name, T());
  }
  void require(std::string_view name);
  // Throws ModelTextError that names a member for which nothing has asked.
  void finish() const;

  const std::string& path() const { return path_; }
  std::string path_of(std::string_view name) const;

 private:
  const Json& json_;
  std::string path_;
  std::vector<std::string_view> known_;
};

// Read those of the members below that `Options` has.
#define TANDEM_READ(member) \
  if constexpr (requires { options.member; }) json.read(#member, options.member)
template <class Options>
void read_layer_options(JsonOptions& json, Options& options) {
  TANDEM_READ(activation);
  TANDEM_READ(use_bias);
  TANDEM_READ(kernel_initializer);
  TANDEM_READ(bias_initializer);
  TANDEM_READ(recurrent_activation);
  TANDEM_READ(recurrent_initializer);
  TANDEM_READ(unit_forget_bias);
  TANDEM_READ(recurrent_dropout);
  TANDEM_READ(return_sequences);
  TANDEM_READ(go_backwards);
  TANDEM_READ(reset_after);
  TANDEM_READ(zero_output_for_mask);
  TANDEM_READ(merge_mode);
  TANDEM_READ(output_padding);
  TANDEM_READ(depthwise_initializer);
  TANDEM_READ(pointwise_initializer);
  TANDEM_READ(alpha_initializer);
  TANDEM_READ(shared_axes);
  TANDEM_READ(max_value);
  TANDEM_READ(negative_slope);
  TANDEM_READ(threshold);
  TANDEM_READ(axis);
  TANDEM_READ(interpolation);
  TANDEM_READ(embeddings_initializer);
  TANDEM_READ(initializer);
  TANDEM_READ(strides);
  TANDEM_READ(padding);
  TANDEM_READ(dilation_rate);
  TANDEM_READ(groups);
  TANDEM_READ(depth_multiplier);
  TANDEM_READ(pool_size);
  TANDEM_READ(keepdims);
  TANDEM_READ(momentum);  // of optimizers, too
  TANDEM_READ(epsilon);   // of optimizers, too
  TANDEM_READ(center);
  TANDEM_READ(scale);
  TANDEM_READ(synchronized);
  TANDEM_READ(value_dim);
  TANDEM_READ(dropout);
  TANDEM_READ(use_causal_mask);
  TANDEM_READ(dtype);
  TANDEM_READ(name);
}
template <class Options>
void read_preprocessing_options(JsonOptions& json, Options& options) {
  TANDEM_READ(mean);
  TANDEM_READ(variance);
  TANDEM_READ(invert);
  TANDEM_READ(bin_boundaries);
  TANDEM_READ(num_bins);
  TANDEM_READ(output_mode);
  TANDEM_READ(max_tokens);
  TANDEM_READ(num_oov_indices);
  TANDEM_READ(mask_token);
  TANDEM_READ(oov_token);
  TANDEM_READ(vocabulary);
  TANDEM_READ(idf_weights);
  TANDEM_READ(pad_to_max_tokens);
}
template <class Options>
void read_optimizer_options(JsonOptions& json, Options& options) {
  TANDEM_READ(learning_rate);
  TANDEM_READ(nesterov);
  TANDEM_READ(beta_1);
  TANDEM_READ(beta_2);
  TANDEM_READ(amsgrad);
  TANDEM_READ(rho);
  TANDEM_READ(centered);
  TANDEM_READ(initial_accumulator_value);
  TANDEM_READ(weight_decay);
  TANDEM_READ(clipnorm);
  TANDEM_READ(clipvalue);
  TANDEM_READ(global_clipnorm);
}
template <class Options>
void read_loss_options(JsonOptions& json, Options& options) {
  TANDEM_READ(from_logits);
  TANDEM_READ(label_smoothing);
  TANDEM_READ(ignore_class);
  TANDEM_READ(delta);
  TANDEM_READ(alpha);
  TANDEM_READ(beta);
  TANDEM_READ(gamma);
  TANDEM_READ(apply_class_balancing);
  TANDEM_READ(reduction);
}
#undef TANDEM_READ
template <class Options>
void read_options(JsonOptions& json, Options& options) {
  read_layer_options(json, options);
  read_preprocessing_options(json, options);
  read_optimizer_options(json, options);
  read_loss_options(json, options);
}

// An object of the entry that the member "type" names; a string is the type without options.
template <class T, std::size_t kEntries>
T typed_from_json(std::span<const NamedEntry<T (*)(JsonOptions&)>, kEntries> table,
                  const Json& json, const std::string& path) {
  const Json described = json.is_string() ? Json(Json::Object{{"type", json}}) : json;
  JsonOptions options(described, path);
  const auto type = options.required<std::string>("type");
  T (*make)(JsonOptions&) = nullptr;
  at_json_path(json.is_string() ? path : options.path_of("type"), [&] {
    make = find_named(std::span<const NamedEntry<T (*)(JsonOptions&)>>(table), "type", type);
  });
  std::optional<T> made;
  at_json_path(path, [&] { made = make(options); });
  options.finish();
  return *std::move(made);
}

// `Made(arguments..., options)`, where the options are of the type `Options`.
template <class Made, class Options, class... Arguments>
Made made_with(JsonOptions& json, const Arguments&... arguments) {
  Options options;
  read_options(json, options);
  return Made(arguments..., options);
}

// The layer, optimizer or loss that an object, or the name of its type, describes. Throw
// ModelTextError.
Layer layer_from_json(const Json& json, const std::string& path);
optimizers::Optimizer optimizer_from_json(const Json& json, const std::string& path);
losses::Loss loss_from_json(const Json& json, const std::string& path);

}  // namespace tandem
