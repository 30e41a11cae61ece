#include "device/cuda/module/cuda_graph.h"

#include <string>

#include "device/cuda/module/check.h"
#include "tandem/errors.h"

namespace tandem::cuda {
namespace {

thread_local bool records = false;

}  // namespace

CudaGraph::CudaGraph(int ordinal, cudaStream_t stream, cudaGraph_t graph)
    : ordinal_(ordinal), stream_(stream) {
  check(cudaGraphInstantiate(&graph_, graph, 0), "cudaGraphInstantiate");
}

// CUDA frees a graph that is still running when it has ended.
CudaGraph::~CudaGraph() { cudaGraphExecDestroy(graph_); }

void CudaGraph::launch() {
  make_current(ordinal_);
  check(cudaGraphLaunch(graph_, stream_), "cudaGraphLaunch");
}

bool CudaGraph::update(cudaGraph_t graph) {
  cudaGraphExecUpdateResultInfo why{};
  const cudaError_t result = cudaGraphExecUpdate(graph_, graph, &why);
  if (result == cudaErrorGraphExecUpdateFailure) {
    cudaGetLastError();  // not an error: clears it, so that the next call does not return it
    return false;
  }
  check(result, "cudaGraphExecUpdate");
  return true;
}

// Uses a separate stream, so that other threads' work on the device's stream is not captured. Calls
// that cannot be captured are refused on this thread only.
StreamCapture::StreamCapture(int ordinal) {
  make_current(ordinal);
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  const cudaError_t result = cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal);
  recording_ = result == cudaSuccess;
  if (!recording_) cudaStreamDestroy(stream_);
  check(result, "cudaStreamBeginCapture");
  records = true;
}

StreamCapture::~StreamCapture() {
  records = false;
  if (recording_ && cudaStreamEndCapture(stream_, &graph_) != cudaSuccess) cudaGetLastError();
  if (graph_) cudaGraphDestroy(graph_);
  cudaStreamDestroy(stream_);
}

void StreamCapture::refuse(const char* what) {
  if (records) throw UnavailableError(std::string("an operation ") + what);
}

bool StreamCapture::active() { return records; }

cudaGraph_t StreamCapture::end() {
  records = recording_ = false;
  check(cudaStreamEndCapture(stream_, &graph_), "cudaStreamEndCapture");
  return graph_;
}

}  // namespace tandem::cuda
