#include "parallel/model_agreement.h"

#include <string>

#include "comm/exchange_bytes.h"
#include "core/status.h"
#include "runtime/variable_impl.h"

namespace tandem::parallel {
namespace {

struct Described {
  std::string name, dtype, sizes;
  bool operator==(const Described&) const = default;
};

std::string describe(const std::vector<Variable>& variables) {
  std::string text;
  for (const Variable& variable : variables)
    text += fmt::format("{}\x1f{}\x1f{}\x1e", variable.name(), name_of(variable.dtype()),
                        variable.shape().to_string());
  return text;
}

std::vector<Described> read_described(std::string_view text) {
  std::vector<Described> variables;
  const auto next = [&](char end) {
    const std::size_t at = std::min(text.find(end), text.size());
    std::string field(text.substr(0, at));
    text.remove_prefix(std::min(at + 1, text.size()));
    return field;
  };
  while (!text.empty()) {
    Described& described = variables.emplace_back();
    described.name = next('\x1f');
    described.dtype = next('\x1f');
    described.sizes = next('\x1e');
  }
  return variables;
}

}  // namespace

void check_same_variables(Communicator& communicator, const std::vector<Variable>& variables,
                          std::string_view op, const RankNames& names) {
  const std::vector<std::string> descriptions = exchange_bytes(communicator, describe(variables));
  const std::vector<Described> first = read_described(descriptions[0]);
  for (int rank = 1; rank < communicator.size(); ++rank) {
    const std::vector<Described> other =
        read_described(descriptions[static_cast<std::size_t>(rank)]);
    const std::string process = rank == communicator.rank()
                                    ? std::string("this process")
                                    : fmt::format("process {}", names[rank]);
    if (other.size() != first.size())
      fail<InvalidArgumentError>(
          "[{}] expects same model across all ranks, but Rank {} has {} params, while rank {} has "
          "inconsistent {} params.",
          op, names[0], first.size(), names[rank], other.size());
    for (std::size_t i = 0; i < first.size(); ++i) {
      if (other[i] == first[i]) continue;
      fail<InvalidArgumentError>(
          "[{}] params[{}] in {} with sizes {} appears not to match sizes of the same param in "
          "process {}: there it is '{}', {} of {}, in process {} '{}', {} of {}",
          op, i, process, other[i].sizes, names[0], first[i].name, first[i].sizes, first[i].dtype,
          names[rank], other[i].name, other[i].sizes, other[i].dtype);
    }
  }
}

void broadcast_variables(Communicator& communicator, const std::vector<Variable>& variables,
                         int root) {
  std::vector<Buffer> parts;
  parts.reserve(variables.size());
  for (const Variable& variable : variables) {
    const TensorImpl& impl =
        impl_of(variable.impl().storage().writable(variable.impl().local_index()));
    parts.push_back({impl.data(), impl.shape.num_elements(), impl.dtype});
  }
  if (!parts.empty()) communicator.broadcast(parts, root)->wait();
}

}  // namespace tandem::parallel
