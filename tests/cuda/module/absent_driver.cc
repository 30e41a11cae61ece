// A libcuda.so.1 without GPUs, with which cuDNN compiles its kernels: it looks up all of these
// functions, and loads the compiled kernels. Other functions report that there is no device.
namespace {
constexpr int kSuccess = 0, kNoDevice = 100;
int kernels;  // a dummy target for handles
}  // namespace

#define ABSENT(name) \
  extern "C" int name() { return kNoDevice; }

ABSENT(cuCtxGetCurrent)
ABSENT(cuCtxGetDevice)
ABSENT(cuCtxGetLimit)
ABSENT(cuCtxPopCurrent)
ABSENT(cuCtxPushCurrent)
ABSENT(cuDeviceGet)
ABSENT(cuDeviceGetAttribute)
ABSENT(cuDeviceGetCount)
ABSENT(cuDevicePrimaryCtxRelease)
ABSENT(cuDevicePrimaryCtxReset)
ABSENT(cuDevicePrimaryCtxRetain)
ABSENT(cuDriverGetVersion)
ABSENT(cuFuncGetAttribute)
ABSENT(cuFuncSetAttribute)
ABSENT(cuGetExportTable)
ABSENT(cuInit)
ABSENT(cuKernelGetAttribute)
ABSENT(cuKernelSetAttribute)
ABSENT(cuLaunchCooperativeKernel)
ABSENT(cuLaunchKernel)
ABSENT(cuLaunchKernelEx)
ABSENT(cuLibraryLoadFromFile)
ABSENT(cuLinkAddData)
ABSENT(cuLinkAddData_v2)
ABSENT(cuLinkAddFile_v2)
ABSENT(cuLinkComplete)
ABSENT(cuLinkCreate)
ABSENT(cuLinkCreate_v2)
ABSENT(cuLinkDestroy)
ABSENT(cuMemcpyDtoH_v2)
ABSENT(cuModuleGetFunction)
ABSENT(cuModuleGetGlobal_v2)
ABSENT(cuModuleLoadData)
ABSENT(cuModuleLoadDataEx)
ABSENT(cuModuleLoadFatBinary)
ABSENT(cuModuleUnload)
ABSENT(cuOccupancyMaxActiveBlocksPerMultiprocessor)
ABSENT(cuOccupancyMaxPotentialClusterSize)
ABSENT(cuStreamGetCtx)
ABSENT(cuStreamSynchronize)
ABSENT(cuTensorMapEncodeTiled)

namespace {
int text_of_error(const char** text) {
  *text = "no device";
  return kSuccess;
}
int give_handle(void** handle) {
  *handle = &kernels;
  return kSuccess;
}
}  // namespace

extern "C" int cuGetErrorName(int, const char** text) { return text_of_error(text); }
extern "C" int cuGetErrorString(int, const char** text) { return text_of_error(text); }
extern "C" int cuLibraryLoadData(void** library) { return give_handle(library); }
extern "C" int cuLibraryGetKernel(void** kernel) { return give_handle(kernel); }
extern "C" int cuLibraryUnload(void*) { return kSuccess; }
