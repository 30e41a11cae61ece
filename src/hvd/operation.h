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
};

class Lane;

struct Handle::State {
  RequestRef request;
  // Which holds this while it is under way. Gone: this is done.
  std::weak_ptr<Lane> lane;
  // A tensor of the request each, zeros where the request is absent. Outputs may be inputs.
  // Operations whose results have sizes that only the others know make `results` when they run.
  std::vector<HostArray> in, out;
  // The lane's memory in which the arrays lie one behind the other, as in a Bucket; kept until this
  // is done. Operations that travel together and lie there in a row travel as they are. Null: they
  // lie elsewhere.
  std::shared_ptr<void> bucket;
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
