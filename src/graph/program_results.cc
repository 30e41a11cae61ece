#include "graph/program_results.h"

#include <utility>

#include "core/status.h"
#include "device/device_manager.h"
#include "tensor/tensor_impl.h"

namespace tandem {

void ProgramResults::add_fetches(const Block& block, ArenaParts& parts) {
  for (std::size_t i = 0; i < block.fetches.size(); ++i) {
    const Value& root = block.fetches[i]->root();
    if (root.kind != Value::Kind::kComputed) continue;
    auto& result = by_value_[&root];
    if (result) continue;
    const std::size_t arena = parts.arena_on(*root.device);
    result = std::make_unique<ProgramResult>(
        ProgramResult{.external = {&root}, .arena = arena, .number = arenas_.add_result(arena)});
  }
}

ProgramResult* ProgramResults::find(const Value& value) const {
  const auto found = by_value_.find(&value);
  return found == by_value_.end() ? nullptr : found->second.get();
}

void ProgramResults::give(const Block& block,
                          std::span<const BodyProgram::Destination> destinations) {
  for (auto& [value, result] : by_value_) result->given = nullptr;
  for (std::size_t i = 0; i < destinations.size(); ++i) {
    const Value& fetch = *block.fetches[i];
    ProgramResult* const result = find(fetch);
    if (result && !result->given && fetch.device == destinations[i].device)
      result->given = destinations[i].memory;
  }
}

void ProgramResults::bind() {
  for (auto& [value, result] : by_value_) bind(*result);
}

void ProgramResults::bind(ProgramResult& result) {
  if (result.given) {
    result.external.bind(result.given);
    return;
  }
  const Value& value = *result.external.value;
  Tensor& tensor = tensor_of(result);
  if (tensor.defined() && reusable(impl_of(tensor)))
    impl_of(tensor).grad = {};  // an earlier user may have tracked it
  else
    tensor = make_tensor(*value.device, value.spec.shape, value.spec.dtype);
  result.external.bind(impl_of(tensor).data());
}

void ProgramResults::copy_from_staging() {
  for (const auto& [value, result] : by_value_)
    if (const External& external = result->external; external.staging)
      external.copy(impl_of(tensor_of(*result)).data(), external.staging.get());
}

void ProgramResults::fetch(const Block& block, std::span<const Tensor> feeds,
                           std::vector<Tensor>& fetches) {
  fetches.clear();
  fetches.reserve(block.fetches.size());
  for (const Value* fetch : block.fetches) fetches.push_back(fetched(*fetch, feeds));
}

Tensor ProgramResults::fetched(const Value& fetch, std::span<const Tensor> feeds) const {
  const Value& root = fetch.root();
  Tensor whole;
  switch (root.kind) {
    case Value::Kind::kComputed: whole = tensor_of(*by_value_.at(&root)); break;
    case Value::Kind::kConstant: whole = root.constant; break;
    case Value::Kind::kFeed: whole = feeds[static_cast<std::size_t>(root.index)]; break;
    default: TANDEM_ASSERT(false);
  }
  if (root.kind == Value::Kind::kComputed && &fetch == &root) return whole;
  return make_view(whole, fetch.spec.shape, fetch.offset);
}

const std::byte* ProgramResults::memory_of(const Value& fetch,
                                           std::span<std::byte* const> feeds) const {
  const Value& root = fetch.root();
  switch (root.kind) {
    case Value::Kind::kComputed: return by_value_.at(&root)->external.bound + fetch.offset;
    case Value::Kind::kConstant: return impl_of(root.constant).data() + fetch.offset;
    case Value::Kind::kFeed: return feeds[static_cast<std::size_t>(root.index)] + fetch.offset;
    default: TANDEM_ASSERT(false); return nullptr;
  }
}

}  // namespace tandem
