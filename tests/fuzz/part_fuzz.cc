// Any bytes as a function or a part of one: it runs on zeros, or there is a typed error.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/status.h"
#include "ps/parameter_store.h"
#include "ps/worker.h"
#include "tandem/creation.h"

namespace {

// Adds the part as an update and applies it.
void run(const tandem::ps::proto::Part& part, const tandem::ps::proto::RunAttributes& attributes) {
  constexpr std::size_t kMaxVariables = 8;
  tandem::ps::ParameterStore store;
  for (const auto& variable : part.variables())
    for (const auto& shard : variable.shards())
      if (store.num_variables() < kMaxVariables)
        store.create(shard.id(), "v", tandem::zeros({static_cast<std::int64_t>(shard.id() % 5)}));
  store.add_update(0, 0, part);
  std::vector<tandem::Tensor> inputs(static_cast<std::size_t>(part.function().feeds_size()),
                                     tandem::zeros({3}));
  for (int i = 0; i < part.sparse_feeds_size(); ++i)
    inputs.insert(inputs.begin(), tandem::range(0.0, 3.0, 1.0, {.dtype = tandem::int64}));
  const std::size_t changing = part.attributes_size() == 1 ? 1 : 0;
  store.apply(0, 0, 0, inputs, {&attributes, changing});
}

void run(const tandem::ps::proto::Function& function) {
  tandem::ps::Worker worker({});
  worker.add_function(0, function);
  worker.run({.function = 0,
              .arguments = std::vector<tandem::Tensor>(std::min(function.arguments(), 8u),
                                                       tandem::zeros({3}))});
}

}  // namespace

// The second half is the attributes of the run.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  tandem::ps::proto::Part part;
  tandem::ps::proto::Function function;
  tandem::ps::proto::RunAttributes attributes;
  const std::size_t half = size / 2;
  static_cast<void>(attributes.ParseFromArray(bytes + (size - half), static_cast<int>(half)));
  try {
    if (function.ParseFromArray(bytes, static_cast<int>(size))) run(function);
  } catch (const tandem::Error&) {
  }
  try {
    if (part.ParseFromArray(bytes, static_cast<int>(size - half))) run(part, attributes);
  } catch (const tandem::Error&) {
  }
  return 0;
}
