// cuDNN's library, which is looked for when the first operation wants it: who has none needs none.
#pragma once

#include <cudnn_graph.h>

namespace tandem::cuda {

// What Tandem calls of it.
struct CudnnLibrary {
  decltype(&cudnnGetVersion) version;
  decltype(&cudnnGetErrorString) error_string;
  decltype(&cudnnGetLastErrorString) last_error_string;
  decltype(&cudnnCreate) create;
  decltype(&cudnnSetStream) set_stream;
  decltype(&cudnnBackendCreateDescriptor) create_descriptor;
  decltype(&cudnnBackendDestroyDescriptor) destroy_descriptor;
  decltype(&cudnnBackendFinalize) finalize;
  decltype(&cudnnBackendSetAttribute) set_attribute;
  decltype(&cudnnBackendGetAttribute) get_attribute;
  decltype(&cudnnBackendExecute) execute;
};

// Loads it for as long as the process lives. Throws UnavailableError, naming the file and what to
// install.
CudnnLibrary load_cudnn(const char* file);

// libcudnn.so.9; null where it cannot be loaded, which a warning has said.
const CudnnLibrary* cudnn();

// Throws what the failed call means: UnavailableError where the installation is no good or the GPU
// has failed, ResourceExhaustedError, UnimplementedError for what cuDNN does not do, else
// InternalError. The text names the call, cuDNN's error and its explanation.
void check_cudnn(const CudnnLibrary& library, cudnnStatus_t status, const char* call);

// Whether a graph or an engine could not be prepared, and another may be tried: not where the call
// was wrong, or cuDNN is no good at all.
bool is_refusal(cudnnStatus_t status);

}  // namespace tandem::cuda
