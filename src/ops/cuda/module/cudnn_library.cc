#include "ops/cuda/module/cudnn_library.h"

#include <dlfcn.h>

#include <array>
#include <string>

#include "core/status.h"

namespace tandem::cuda {
namespace {

template <class Function>
void find(void* library, const char* file, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (!function)
    fail<UnavailableError>("[cuda] '{}' is not the library of cuDNN 9 that Tandem needs: {}", file,
                           dlerror());
}

}  // namespace

CudnnLibrary load_cudnn(const char* file) {
  void* const handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (!handle)
    fail<UnavailableError>(
        "[cuda] cannot load cuDNN: {}. Install cuDNN 9 for the CUDA of this build, or put the "
        "folder that it is in into LD_LIBRARY_PATH",
        dlerror());
  CudnnLibrary library{};
  find(handle, file, "cudnnGetVersion", library.version);
  find(handle, file, "cudnnGetErrorString", library.error_string);
  find(handle, file, "cudnnGetLastErrorString", library.last_error_string);
  find(handle, file, "cudnnCreate", library.create);
  find(handle, file, "cudnnSetStream", library.set_stream);
  find(handle, file, "cudnnBackendCreateDescriptor", library.create_descriptor);
  find(handle, file, "cudnnBackendDestroyDescriptor", library.destroy_descriptor);
  find(handle, file, "cudnnBackendFinalize", library.finalize);
  find(handle, file, "cudnnBackendSetAttribute", library.set_attribute);
  find(handle, file, "cudnnBackendGetAttribute", library.get_attribute);
  find(handle, file, "cudnnBackendExecute", library.execute);
  return library;
}

void check_cudnn(const CudnnLibrary& library, cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) [[likely]]
    return;
  std::array<char, 1024> explanation{};
  library.last_error_string(explanation.data(), explanation.size());
  std::string text = fmt::format("[cuda] {}: {}", call, library.error_string(status));
  if (explanation[0] != '\0') text += fmt::format(" ({})", explanation.data());
  switch (status) {
    case CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED:
    case CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED: throw ResourceExhaustedError(text);
    default: break;
  }
  switch (CUDNN_STATUS_CATEGORY(static_cast<int>(status))) {
    case CUDNN_STATUS_NOT_SUPPORTED: throw UnimplementedError(text);
    case CUDNN_STATUS_BAD_PARAM:
    case CUDNN_STATUS_INTERNAL_ERROR: throw InternalError(text);
    default: throw UnavailableError(text);
  }
}

bool is_refusal(cudnnStatus_t status) {
  switch (CUDNN_STATUS_CATEGORY(static_cast<int>(status))) {
    case CUDNN_STATUS_NOT_SUPPORTED:
    case CUDNN_STATUS_INTERNAL_ERROR:    // includes failed compilation
    case CUDNN_STATUS_EXECUTION_FAILED:  // includes failed loading of compiled code
      return true;
    default: return false;
  }
}

}  // namespace tandem::cuda
