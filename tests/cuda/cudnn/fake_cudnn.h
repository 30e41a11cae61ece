// A fake of the cuDNN functions that the backend calls, on top of the fake of CUDA. It stores the
// attributes of descriptors, has the engines that a test gives it, refuses invalid graphs, and
// computes the others on the stream (fake_graph.h). The backend's cudnn() returns this library.
#pragma once

#include <cudnn_graph.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tandem::fake_cudnn {

struct Engine {
  std::vector<cudnnBackendNumericalNote_t> notes;
  std::int64_t workspace = 0;
  cudnnStatus_t plan = CUDNN_STATUS_SUCCESS;  // the status of making a plan
  cudnnStatus_t run = CUDNN_STATUS_SUCCESS;
};

// From now on, the library reports this version: 91600 is 9.16.
void set_version(std::size_t version);
// From now on, the heuristics of this mode return these engines. By default each mode has one,
// without notes.
void set_engines(cudnnBackendHeurMode_t mode, std::vector<Engine> engines);
// From now on, creating graphs of several operations returns this status.
void set_fusion(cudnnStatus_t status);

struct Calls {
  int handles = 0;
  std::vector<cudnnBackendHeurMode_t> heuristics;
  std::vector<std::int64_t> runs;  // the workspaces of the engines that ran, in order
  int alive = 0;                   // number of descriptors
};
Calls calls();

}  // namespace tandem::fake_cudnn
