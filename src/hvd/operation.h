// An operation that this rank has submitted: what a Handle means.
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

// Elements in memory that the host reaches, perhaps of another dtype than they travel in.
struct HostArray {
  void* data = nullptr;
  DType dtype = float32;
  // Of which memory of the lane's it is an array, laid out as by a Bucket: those that travel
  // together and lie there one behind the other travel as they are. Null: of none.
  const void* bucket = nullptr;
};

class Lane;

struct Handle::State {
  RequestRef request;
  // Which holds this while it is under way. Gone: this is done.
  std::weak_ptr<Lane> lane;
  // A tensor of the request each; where the request is absent `in` is empty, or zeros in a bucket.
  // Outputs may be inputs.
  // Operations whose results have sizes that only the others know make `results` when they run.
  std::vector<HostArray> in, out;
  // Where results are to be tensors of this device that share the memory in which they travelled;
  // null: they go to `out`.
  Device* view_on = nullptr;
  std::shared_ptr<void> memory;  // until it is done: keeps the bucket that the input lies in
  std::vector<Tensor> inputs;    // kept
  std::vector<Tensor> results;   // on the host, or where the host reaches them
  std::vector<DType> dtypes;     // that results are wanted in, where they travel in another one
  std::vector<Device*> devices;  // where results are wanted; null: where they are
  std::vector<std::int64_t> received_splits;
  bool nowhere = false;  // no rank has the tensors: there are no results

  // Of the lane's leader:
  bool sent = false;           // as a request; else as a bit
  std::int64_t submitted = 0;  // profile::now(), where there is a timeline

  std::atomic<bool> done{false};
  std::exception_ptr error;  // once done
};
using OperationRef = std::shared_ptr<Handle::State>;

}  // namespace tandem::hvd
