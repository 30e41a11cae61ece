// Models in files: a safetensors file with the definition among its metadata.
#include "c/model.h"
#include "tandem/checkpoint.h"

namespace tandem::c {
namespace {

constexpr const char* kDefinition = "tandem_model";  // in the metadata

}  // namespace

void HostModel::save(const std::filesystem::path& path) const {
  TensorFile file;
  file.metadata[kDefinition] = definition_;
  file.tensors = learner_->state();
  save_safetensors(path, file);
}

std::shared_ptr<HostModel> HostModel::load(const char* path, const std::shared_ptr<Group>& group) {
  TensorFile file;
  std::string definition;
  online::exchange(ranks_of(group), "model_load", 0, [&] {
    file = load_safetensors(&required(path, "model_load", "a path"));
    const auto found = file.metadata.find(kDefinition);
    if (found == file.metadata.end())
      fail<InvalidArgumentError>("[model_load] '{}' is not a file of tandem_model_save()", path);
    definition = found->second;
    return std::vector<double>();
  });
  auto model = std::make_shared<HostModel>(definition, group);
  online::exchange(ranks_of(group), "model_load", 0, [&] {
    model->learner()->restore(file.tensors, "model_load", fmt::format("'{}'", path));
    return std::vector<double>();
  });
  return model;
}

}  // namespace tandem::c
