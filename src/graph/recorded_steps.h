// Kernels of a lane that follow one another on a real GPU, enqueued as one: a graph of CUDA's.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/native_gpu.h"
#include "graph/lanes.h"
#include "op/renewed_values.h"

namespace tandem {

// The first run launches the kernels one by one, so that libraries have chosen and loaded what they
// need; later ones record them and launch the recording. A recording holds addresses: those of
// feeds, variables and results may differ from run to run, most often between few places, so that
// one is kept for each of the last few sets of them, and the oldest is changed for another set.
//
// Attributes that each run renews (random keys, rates, steps) do not interrupt a recording: what kernels
// take of them (op/renewed_values.h) is in memory of the recording, and one copy brings what has
// changed there before it is launched. The copy goes through pinned memory that is the copy's
// until the GPU has passed it, so the host waits for nothing. The driver could be told other
// arguments instead (cudaGraphExecKernelNodeSetParams): a call for each kernel in place of one copy
// for all, by names of nodes that a recording does not give to who launches them.
//
// Where that does not pay, or a kernel does what cannot be recorded, they are launched one by one
// from then on, and the log tells why. While a profile runs, they are as well: it tells of each.
class RecordedSteps {
 public:
  // Whether a step may be among them. One that copies between devices, or takes part in a
  // collective, may not.
  static bool takes(const Step& step);
  // Whether recording is wanted at all: TANDEM_CUDA_GRAPHS.
  static bool wanted();

  // REQUIRES: takes() all of `steps`, which are the device's.
  RecordedSteps(NativeGpu& gpu, std::vector<Step*> steps);
  ~RecordedSteps();
  RecordedSteps(const RecordedSteps&) = delete;
  RecordedSteps& operator=(const RecordedSteps&) = delete;

  std::size_t size() const { return steps_.size(); }
  // Whether the last recordings were made in vain: addresses do not come back.
  bool wasted() const { return wasted_ > 0; }
  // Drops the recordings, whose addresses will not come back.
  void forget() { recorded_.clear(); }
  // Enqueues the kernels; false, and nothing is done, where they are to be launched one by one.
  bool run();

 private:
  struct Scratch;
  // What changes from run to run, on the device.
  struct Renewals {
    std::shared_ptr<void> memory;
    std::size_t bytes = 0;
    std::vector<RenewedValue> values;
    std::vector<std::byte> there;  // what has been copied to the memory; empty: nothing
  };
  struct Recorded {
    std::vector<const void*> addresses;
    std::unique_ptr<RecordedWork> work;
    std::shared_ptr<Scratch> scratch;
    Renewals renewals;
    std::uint64_t last_run = 0;
    bool replayed = false;
  };

  void find_addresses();
  void measure();
  void record();
  void renew(Renewals& renewals);
  void give_up(const std::string& why);

  NativeGpu& gpu_;
  std::vector<Step*> steps_;
  std::vector<const void*> addresses_;  // of this run
  std::vector<Recorded> recorded_;
  std::size_t workspace_ = 0;   // bytes that the kernels need
  std::size_t renewed_ = 0;     // bytes of attributes that change
  std::vector<std::byte> now_;  // those of this run
  std::uint64_t runs_ = 0;
  int wasted_ = 0;  // recordings that were never replayed, since one last was
  bool given_up_ = false;
};

}  // namespace tandem
