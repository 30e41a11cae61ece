// cuDNN's library. It is optional, and loaded when an operation first needs it.
#pragma once

#include <cudnn_graph.h>

namespace tandem::cuda {

// The functions of cuDNN that Tandem calls.
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

// Loads the library for the lifetime of the process. Throws UnavailableError that names the file
// and what to install.
CudnnLibrary load_cudnn(const char* file);

// libcudnn.so.9. Returns null after a warning if it cannot be loaded.
const CudnnLibrary* cudnn();

// Throws if `status` is a failure: UnavailableError if the installation is broken or the GPU has
// failed, ResourceExhaustedError, UnimplementedError if cuDNN does not support the call, otherwise
// InternalError. The message has the call, cuDNN's status and its explanation.
void check_cudnn(const CudnnLibrary& library, cudnnStatus_t status, const char* call);

// Whether the status means that a graph or an engine is not supported, so that another one may be
// tried. False for invalid calls and broken installations.
bool is_refusal(cudnnStatus_t status);

}  // namespace tandem::cuda
