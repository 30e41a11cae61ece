// Any bytes as a part of a function: a part that runs on zeros, or a typed error.
#include <cstdint>
#include <vector>

#include "core/status.h"
#include "ps/parameter_store.h"
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
  const std::vector<tandem::Tensor> inputs(static_cast<std::size_t>(part.feeds_size()),
                                           tandem::zeros({3}));
  const std::size_t changing = part.attributes_size() == 1 ? 1 : 0;
  store.apply(0, 0, 0, inputs, {&attributes, changing});
}

}  // namespace

// The second half is the attributes of the run.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  tandem::ps::proto::Part part;
  tandem::ps::proto::RunAttributes attributes;
  const std::size_t half = size / 2;
  if (!part.ParseFromArray(bytes, static_cast<int>(size - half))) return 0;
  static_cast<void>(attributes.ParseFromArray(bytes + (size - half), static_cast<int>(half)));
  try {
    run(part, attributes);
  } catch (const tandem::Error&) {
  }
  return 0;
}
