// An operation that this rank has submitted: the state of a Handle.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include "device/device.h"
#include "hvd/request.h"
#include "tandem/hvd.h"

namespace tandem::hvd {

// Elements in memory that the host can access. `dtype` may differ from the one they are sent in.
struct HostArray {
  void* data = nullptr;
  DType dtype = float32;
};

class ProcessSetCoordinator;

struct Handle::State {
  RequestRef request;
  // The coordinator that runs it; expired once the operation is done.
  std::weak_ptr<ProcessSetCoordinator> coordinator;
  // One array per tensor of the request. Absent tensors are zeros. An output may be an input.
  // Operations whose result sizes depend on the other ranks allocate `results` when they run.
  std::vector<HostArray> in, out;
  // The coordinator's memory if the arrays lie in it one after the other, as in a Bucket; it is
  // kept until the operation is done. Adjacent operations that are fused are reduced in place. Null
  // if the arrays lie elsewhere.
  std::shared_ptr<void> bucket;
  std::vector<Tensor> inputs;        // keeps their memory alive
  std::vector<Tensor> results;       // in memory that the host can access
  std::vector<DType> dtypes;         // of the results, if they differ from those on the wire
  std::vector<DeviceImpl*> devices;  // of the results; null: no copy is needed
  std::vector<std::int64_t> received_splits;
  bool absent_everywhere = false;  // no rank has the tensors, so there are no results

  // Used by the thread that runs cycles:
  bool sent = false;           // whether the rank has sent the request, not a bit
  std::int64_t submitted = 0;  // profile::now(), if there is a timeline

  std::atomic<bool> done{false};
  std::exception_ptr error;  // valid once done
};
using OperationRef = std::shared_ptr<Handle::State>;

}  // namespace tandem::hvd
