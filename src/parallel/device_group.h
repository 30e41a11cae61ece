// The devices of a DataParallel model and the threads that run its replicas.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "distribute/local_strategy.h"
#include "runtime/variable_copies.h"
#include "tandem/data_parallel.h"

namespace tandem::parallel {

class DeviceGroup {
 public:
  // No `devices`: there is one call, whose operations are placed as if there were no group.
  explicit DeviceGroup(std::vector<DeviceImpl*> devices) : devices_(std::move(devices)) {}

  const std::vector<DeviceImpl*>& devices() const { return devices_; }
  // The number of calls that a batch is split into.
  std::size_t size() const { return devices_.empty() ? 1 : devices_.size(); }
  // The number of examples per device. Devices without examples are left out, but the first.
  std::vector<std::int64_t> split(std::int64_t examples) const;

  // Calls `call(i)` for each of `sizes`, with device i as the device scope. Several calls run in
  // parallel, each on a thread with the caller's grad mode, in a replica context and with its own
  // copies of variables: `copies` is empty or has one per call; the first call uses the variables
  // themselves. `by_examples`: the sizes count examples, whose positions in the batch determine
  // random numbers.
  void run(std::span<const std::int64_t> sizes, bool by_examples, std::span<VariableCopies> copies,
           const std::function<void(std::size_t device)>& call);

 private:
  distribute::LocalStrategy& strategy();

  std::vector<DeviceImpl*> devices_;
  std::once_flag started_;
  std::shared_ptr<distribute::LocalStrategy> strategy_;  // made when there are several calls
};

// Copies of `variables` on the first `count` devices but the first, whose replica uses the
// variables themselves. The copies are recorded: their gradients are added to the variables' in the
// order of the devices. Throws InvalidArgumentError if a variable is not on the first device.
std::vector<VariableCopies> copy_variables(const std::vector<Variable>& variables,
                                           const DeviceGroup& group, std::size_t count);

}  // namespace tandem::parallel
