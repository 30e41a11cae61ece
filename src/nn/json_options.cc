#include "nn/json_options.h"

#include <algorithm>

#include "core/nearest.h"

namespace tandem {

void at_json_path(const std::string& path, const std::function<void()>& read) {
  try {
    read();
  } catch (const ModelTextError&) {
    throw;
  } catch (const JsonError& error) {
    throw ModelTextError(path, error.what());
  } catch (const InvalidArgumentError& error) {
    throw ModelTextError(path, error.what());
  }
}

void from_json(const Json& json, const std::string&, bool& value) { value = json.boolean(); }
void from_json(const Json& json, const std::string&, std::int64_t& value) {
  value = json.integer();
}
void from_json(const Json& json, const std::string&, double& value) { value = json.number(); }
void from_json(const Json& json, const std::string&, std::string& value) { value = json.text(); }
void from_json(const Json& json, const std::string&, layers::ActivationName& value) {
  value = layers::ActivationName(json.text());
  static_cast<void>(nn::activation_from_name(value));
}
void from_json(const Json& json, const std::string& path, Shape& value) {
  std::vector<std::int64_t> sizes;
  from_json(json, path, sizes);
  value = Shape(sizes);
}
void from_json(const Json& json, const std::string& path, Dims& value) {
  std::vector<std::int64_t> axes;
  if (json.is_array())
    from_json(json, path, axes);
  else
    axes.push_back(json.integer());
  value = Dims(axes);
}
void from_json(const Json& json, const std::string&, DTypePolicy& value) {
  value = DTypePolicy(json.text());
}
void from_json(const Json& json, const std::string& path, nn::Pair& value) {
  if (!json.is_array()) {
    value = json.integer();
    return;
  }
  std::vector<std::int64_t> sizes;
  from_json(json, path, sizes);
  if (sizes.size() != 2) throw JsonError("expected one number or two, got " + shown(json));
  value = {sizes[0], sizes[1]};
}
void from_json(const Json& json, const std::string& path, nn::WindowPadding& value) {
  if (json.is_string()) {
    value = nn::WindowPadding(json.text());
    return;
  }
  if (!json.is_array() || json.array().empty() || !json.array().front().is_array()) {
    nn::Pair both;
    from_json(json, path, both);
    value = both;
    return;
  }
  std::vector<std::vector<std::int64_t>> sides;
  from_json(json, path, sides);
  if (sides.size() != 2 || sides[0].size() != 2 || sides[1].size() != 2)
    throw JsonError("expected [[top, bottom], [left, right]], got " + shown(json));
  value = {{sides[0][0], sides[0][1]}, {sides[1][0], sides[1][1]}};
}

void from_json(const Json& json, const std::string& path, nn::Triple& value) {
  if (!json.is_array()) {
    value = json.integer();
    return;
  }
  std::vector<std::int64_t> sizes;
  from_json(json, path, sizes);
  if (sizes.size() != 3) throw JsonError("expected one number or three, got " + shown(json));
  value = {sizes[0], sizes[1], sizes[2]};
}
void from_json(const Json& json, const std::string& path, nn::VolumePadding& value) {
  if (json.is_string()) {
    value = nn::VolumePadding(json.text());
    return;
  }
  nn::Triple numbers;
  from_json(json, path, numbers);
  value = numbers;
}

void from_json(const Json& json, const std::string&, losses::ReductionOption& value) {
  using losses::Reduction;
  static constexpr NamedEntry<Reduction> kTable[] = {
      {"auto", Reduction::kAuto},
      {"sum", Reduction::kSum},
      {"sum_over_batch_size", Reduction::kSumOverBatchSize},
  };
  value = find_named(std::span<const NamedEntry<Reduction>>(kTable), "reductions", json.text());
}

void from_json(const Json& json, const std::string& path, Initializer& value) {
  if (json.is_string()) {
    value = initializers::from_name(json.text());
    return;
  }
  using Make = Initializer (*)(JsonOptions&);
  static constexpr NamedEntry<Make> kTable[] = {
      {"constant",
       [](JsonOptions& o) { return initializers::constant(o.required<double>("value")); }},
      {"random_normal",
       [](JsonOptions& o) {
         const double mean = o.value("mean", 0.0);
         return initializers::random_normal(mean, o.value("stddev", 0.05));
       }},
      {"random_uniform",
       [](JsonOptions& o) {
         const double low = o.value("low", -0.05);
         return initializers::random_uniform(low, o.value("high", 0.05));
       }},
      {"truncated_normal",
       [](JsonOptions& o) {
         const double mean = o.value("mean", 0.0);
         return initializers::truncated_normal(mean, o.value("stddev", 0.05));
       }},
  };
  value = typed_from_json(std::span(kTable), json, path);
}

JsonOptions::JsonOptions(const Json& json, std::string path) : json_(json), path_(std::move(path)) {
  if (!json.is_object())
    throw ModelTextError(path_.empty() ? "the definition" : path_,
                         "expected an object, got " + shown(json));
}

std::string JsonOptions::path_of(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

const Json* JsonOptions::find(std::string_view name) {
  known_.push_back(name);
  return json_.find(name);
}

void JsonOptions::require(std::string_view name) {
  if (!find(name)) throw ModelTextError(path_of(name), "expected a value, got none");
}

void JsonOptions::finish() const {
  for (const auto& [name, value] : json_.object()) {
    if (std::ranges::find(known_, name) != known_.end()) continue;
    std::vector<std::string_view> known = known_;
    std::ranges::sort(known);
    known.erase(std::ranges::unique(known).begin(), known.end());
    std::string message = fmt::format("expected one of {}; got '{}'", fmt::join(known, ", "), name);
    const std::string_view near = nearest(name, known);
    if (!near.empty()) message += fmt::format("; did you mean '{}'?", near);
    throw ModelTextError(path_of(name), message);
  }
}

}  // namespace tandem
