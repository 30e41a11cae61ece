// Models in files: a safetensors file with the definition among its metadata.
#include "c/model.h"
#include "tandem/checkpoint.h"
#include "train/model_impl.h"

namespace tandem::c {
namespace {

constexpr const char* kDefinition = "tandem_model";  // in the metadata
constexpr const char* kLearningRate = "learning_rate";

Tensor tensor_of(const std::vector<double>& numbers) {
  return constant(numbers, {.dtype = float64});
}

}  // namespace

// The variables of the model and its optimizer.
std::vector<Variable> HostModel::state() const {
  std::vector<Variable> all = text_.model.variables();
  if (!impl_of(text_.model, "model").compiled) return all;
  optimizers::Optimizer optimizer = text_.model.optimizer();
  optimizer.build(text_.model.trainable_variables());
  for (const Variable& variable : optimizer.variables()) all.push_back(variable);
  return all;
}

void HostModel::save(const std::filesystem::path& path) const {
  TensorFile file;
  file.metadata[kDefinition] = definition_;
  for (const Variable& variable : state()) file.tensors[variable.name()] = variable.value();
  file.tensors["statistics/x"] = tensor_of(x_.numbers());
  file.tensors["statistics/y"] = tensor_of(y_.numbers());
  if (impl_of(text_.model, "model_save").compiled && !text_.model.optimizer().scheduled())
    file.tensors[kLearningRate] = tensor_of({text_.model.optimizer().learning_rate()});
  save_safetensors(path, file);
}

void HostModel::restore(const TensorFile& file, const std::string& path) {
  const auto at = [&](const std::string& name) {
    const auto found = file.tensors.find(name);
    if (found == file.tensors.end())
      fail<DataLossError>("[model_load] '{}' has no tensor '{}'", path, name);
    return found->second;
  };
  for (Variable& variable : state()) variable.assign(at(variable.name()));
  x_ = Moments::from_numbers(at("statistics/x").to_vector<double>());
  y_ = Moments::from_numbers(at("statistics/y").to_vector<double>());
  if (file.tensors.contains(kLearningRate)) set(kLearningRate, at(kLearningRate).item());
}

std::shared_ptr<HostModel> HostModel::load(const char* path, const std::shared_ptr<Group>& group) {
  TensorFile file;
  std::string definition;
  exchange(group.get(), "model_load", 0, [&] {
    file = load_safetensors(&required(path, "model_load", "a path"));
    const auto found = file.metadata.find(kDefinition);
    if (found == file.metadata.end())
      fail<InvalidArgumentError>("[model_load] '{}' is not a file of tandem_model_save()", path);
    definition = found->second;
    return std::vector<double>();
  });
  auto model = std::make_shared<HostModel>(definition, group);
  exchange(group.get(), "model_load", 0, [&] {
    model->restore(file, path);
    return std::vector<double>();
  });
  return model;
}

}  // namespace tandem::c
