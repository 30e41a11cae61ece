// Broadcasts and gathers variables and objects.
#include <algorithm>
#include <cstring>

#include "core/joined.h"
#include "core/status.h"
#include "device/device_manager.h"
#include "hvd/submit.h"
#include "hvd/world.h"
#include "runtime/variable_impl.h"
#include "tandem/creation.h"
#include "tensor/tensor_impl.h"

namespace tandem::hvd {
namespace {

Tensor bytes_tensor(const std::string& bytes) {
  const auto count = static_cast<std::int64_t>(bytes.size());
  return from_host(DeviceManager::get().host(), Shape{count}, uint8, bytes.data());
}

std::string bytes_of(const Tensor& tensor) {
  std::string bytes(static_cast<std::size_t>(tensor.size()), 0);
  to_host(tensor, bytes.data());
  return bytes;
}

std::vector<std::string> gather_bytes(const std::string& bytes, const std::string& name,
                                      const ProcessSet& set) {
  const auto count = static_cast<std::int64_t>(bytes.size());
  const Tensor length = from_host(DeviceManager::get().host(), Shape{1}, int64, &count);
  const Handle lengths =
      allgather_async(length, {.name = name.empty() ? "" : name + ".lengths", .process_set = set});
  const std::string all =
      bytes_of(allgather(bytes_tensor(bytes), {.name = name, .process_set = set}));
  std::vector<std::string> objects;
  std::size_t offset = 0;
  for (std::int64_t each : synchronize(lengths).to_vector<std::int64_t>()) {
    objects.push_back(all.substr(offset, static_cast<std::size_t>(each)));
    offset += static_cast<std::size_t>(each);
  }
  return objects;
}

}  // namespace

void broadcast_variables(const std::vector<Variable>& variables, int root_rank,
                         const ProcessSet& process_set) {
  if (variables.empty()) return;
  auto coordinator = coordinator_of(process_set);
  const auto root = std::find(coordinator->ranks().begin(), coordinator->ranks().end(), root_rank);
  if (root == coordinator->ranks().end())
    fail<InvalidArgumentError>("[broadcast_variables] expected a root among the ranks [{}], got {}",
                               joined(coordinator->ranks(), ", "), root_rank);
  std::vector<Tensor> values;
  for (const Variable& variable : variables) values.push_back(variable.value().detach());
  auto operation =
      make_operation({.kind = RequestKind::kBroadcast,
                      .root = static_cast<std::int32_t>(root - coordinator->ranks().begin()),
                      .name = name_or_next("", "broadcast_variables"),
                      .dtypes = {},
                      .shapes = {},
                      .splits = {}},
                     values, Compression::kNone, coordinator);
  make_outputs(*operation);
  coordinator->submit(operation);
  const std::vector<Tensor> results = synchronize_all(Handle(operation));
  if (coordinator->rank() == operation->request->root) return;
  for (std::size_t i = 0; i < variables.size(); ++i) {
    Variable variable = variables[i];
    variable.assign(results[i]);
  }
}

void broadcast_optimizer_state(optimizers::Optimizer optimizer, int root_rank,
                               const ProcessSet& process_set) {
  if (const std::vector<Variable> parameters = optimizer.parameters(); !parameters.empty())
    optimizer.build(parameters);
  const std::vector<Variable> variables = optimizer.variables();
  const std::vector<std::string> counts =
      allgather_object(std::to_string(variables.size()), {.process_set = process_set});
  if (std::any_of(counts.begin(), counts.end(),
                  [&](const std::string& count) { return count != counts.front(); }))
    fail<InvalidArgumentError>(
        "[broadcast_optimizer_state] expected optimizers with equally many variables, got [{}]: "
        "give the optimizers their parameters",
        joined(counts, ", "));
  broadcast_variables(variables, root_rank, process_set);
  constexpr double kScheduled = -1.0;  // no rate is negative
  const double mine = optimizer.scheduled() ? kScheduled : optimizer.learning_rate();
  const double rate = broadcast_object(mine, root_rank, {.process_set = process_set});
  if (rate != kScheduled && rate != mine) optimizer.set_learning_rate(rate);
}

std::string broadcast_object(const std::string& bytes, int root_rank,
                             const OperationOptions& options) {
  const auto coordinator = coordinator_of(options.process_set);
  const bool root = world()->rank() == root_rank;
  const std::string name = name_or_next(options.name, "broadcast_object");
  const auto mine = static_cast<std::int64_t>(bytes.size());
  const std::int64_t count =
      broadcast(from_host(DeviceManager::get().host(), Shape{1}, int64, &mine), root_rank,
                {.name = name + ".length", .process_set = options.process_set})
          .to_vector<std::int64_t>()
          .front();
  return bytes_of(
      broadcast(bytes_tensor(root ? bytes : std::string(static_cast<std::size_t>(count), 0)),
                root_rank, {.name = name, .process_set = options.process_set}));
}

void detail::expect_size(const std::string& object, std::size_t size) {
  if (object.size() != size)
    fail<InvalidArgumentError>(
        "[broadcast_object] expected an object of {} bytes, as on this rank, got {} from the root",
        size, object.size());
}

std::vector<std::string> allgather_object(const std::string& bytes,
                                          const OperationOptions& options) {
  return gather_bytes(bytes, name_or_next(options.name, "allgather_object"), options.process_set);
}

}  // namespace tandem::hvd
