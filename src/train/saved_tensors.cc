// save() and load() of tensors, and load_model().
#include <array>
#include <fstream>
#include <string_view>

#include "core/status.h"
#include "tandem/model.h"
#include "train/checkpoint/safetensors.h"

namespace tandem {
namespace {

constexpr const char* kTensor = "tensor";  // the name of a tensor that is saved alone

// Throws for a file that says by its first bytes that it is of another format.
void expect_own_format(const std::filesystem::path& path) {
  std::array<char, 8> bytes{};
  std::ifstream in(path, std::ios::binary);
  in.read(bytes.data(), bytes.size());
  const std::string_view start(bytes.data(), static_cast<std::size_t>(in.gcount()));
  if (start.starts_with("PK") || start.starts_with("\x80\x02"))
    fail<InvalidArgumentError>(
        "[load] '{}' is a file of torch.save() or another archive: expected a safetensors file; in "
        "Python, write it by safetensors.torch.save_file(model.state_dict(), 'x.safetensors')",
        path.string());
  if (start.starts_with("\x89HDF"))
    fail<InvalidArgumentError>(
        "[load] '{}' is an HDF5 file: expected a safetensors file, which the Python package "
        "safetensors writes",
        path.string());
}

}  // namespace

void save(const std::map<std::string, Tensor>& tensors, const std::filesystem::path& path) {
  const auto written = to_write(tensors, path.string());
  AtomicFile out(path);
  write_safetensors(out, written, {}, path.string());
  out.commit();
}

void save(std::initializer_list<std::pair<std::string, SavedItem>> items,
          const std::filesystem::path& path) {
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, item] : items)
    for (const auto& [rest, tensor] : item.tensors())
      if (const std::string whole = rest.empty() ? name : name + "." + rest;
          !tensors.emplace(whole, tensor).second)
        fail<InvalidArgumentError>("[save] expected names that differ, got '{}' twice", whole);
  save(tensors, path);
}

LoadedItem::LoadedItem(Tensor tensor, std::map<std::string, Tensor> group)
    : Tensor(std::move(tensor)), group_(std::move(group)) {}

LoadedItem::operator std::map<std::string, double>() const {
  std::map<std::string, double> numbers;
  for (const auto& [name, tensor] : group_) numbers.emplace(name, tensor.item());
  return numbers;
}

SavedItem::SavedItem(const Tensor& tensor) : tensors_{{"", tensor}} {}

LoadedItem LoadedTensors::operator[](const std::string& name) const {
  const auto found = find(name);
  std::map<std::string, Tensor> group;
  const std::string prefix = name + ".";
  for (auto each = lower_bound(prefix); each != end() && each->first.starts_with(prefix); ++each)
    group.emplace(each->first.substr(prefix.size()), each->second);
  if (found == end() && group.empty())
    fail<NotFoundError>("[load] the file has no tensor '{}', and none whose name begins with '{}'",
                        name, prefix);
  return {found == end() ? Tensor() : found->second, std::move(group)};
}

void save(const Tensor& tensor, const std::filesystem::path& path) {
  if (!tensor.defined())
    fail<InvalidArgumentError>("[save] expected a tensor, got an undefined one");
  save(std::map<std::string, Tensor>{{kTensor, tensor}}, path);
}

void save(const Layer& layer, const std::filesystem::path& path) {
  if (!layer.built())
    fail<FailedPreconditionError>(
        "[save] '{}' has no variables yet: call or build it before it is saved",
        layer.base().label());
  save(layer.state_dict(), path);
}

LoadedTensors load(const std::filesystem::path& path) {
  expect_own_format(path);
  return load_safetensors(path).tensors;
}

void load(Tensor& tensor, const std::filesystem::path& path) {
  const std::map<std::string, Tensor> tensors = load(path);
  if (tensors.size() != 1)
    fail<InvalidArgumentError>(
        "[load] expected one tensor in '{}', got {}; load(path) returns all of them by name",
        path.string(), tensors.size());
  tensor = tensors.begin()->second;
}

void load(const Layer& layer, const std::filesystem::path& path) {
  layer.load_state_dict(load(path));
}

Model load_model(const std::filesystem::path& path) {
  std::error_code none;
  if (!std::filesystem::exists(path, none))
    fail<NotFoundError>("[load_model] there is no file '{}'", path.string());
  fail<UnimplementedError>(
      "[load_model] a model's architecture is C++ code: make the model by the code that made it, "
      "and call model.load_weights(\"{}\")",
      path.string());
}

}  // namespace tandem
