// cuDNN, as far as the backend calls it, over a fake of CUDA: it takes down what descriptors are
// told, has the engines that a test gives it, refuses graphs that are none, and computes the others
// on the stream (fake_graph.h). The backend's cudnn() gives this library.
#pragma once

#include <cudnn_graph.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tandem::fake_cudnn {

struct Engine {
  std::vector<cudnnBackendNumericalNote_t> notes;
  std::int64_t workspace = 0;
  cudnnStatus_t plan = CUDNN_STATUS_SUCCESS;  // what making a plan gives
  cudnnStatus_t run = CUDNN_STATUS_SUCCESS;
};

// From here on the library says that it is this one: 91600 is 9.16.
void set_version(std::size_t version);
// From here on the heuristics of this mode give these. At first each mode has one, without notes.
void set_engines(cudnnBackendHeurMode_t mode, std::vector<Engine> engines);
// From here on making graphs of several operations gives this.
void set_fusion(cudnnStatus_t status);

struct Calls {
  int handles = 0;
  std::vector<cudnnBackendHeurMode_t> heuristics;
  std::vector<std::int64_t> runs;  // the workspaces of the engines that ran, in order
  int alive = 0;                   // descriptors
};
Calls calls();

}  // namespace tandem::fake_cudnn
