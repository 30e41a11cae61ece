// A fake libcuda.so.1 that does not work: it reports to the CUDA runtime that its version does not
// match the kernel module.
#include <cstring>

extern "C" {

int cuInit(unsigned) { return 803; }
int cuDriverGetVersion(int* version) {
  *version = 99000;
  return 0;
}
int cuGetProcAddress_v2(const char* name, void** function, int, unsigned long long, int* status) {
  if (status) *status = 0;
  *function = nullptr;
  if (std::strcmp(name, "cuInit") == 0)
    *function = reinterpret_cast<void*>(&cuInit);
  else if (std::strcmp(name, "cuDriverGetVersion") == 0)
    *function = reinterpret_cast<void*>(&cuDriverGetVersion);
  else if (std::strncmp(name, "cuGetProcAddress", 16) == 0)
    *function = reinterpret_cast<void*>(&cuGetProcAddress_v2);
  return *function ? 0 : 500;
}
int cuGetProcAddress(const char* name, void** function, int version, unsigned long long flags) {
  return cuGetProcAddress_v2(name, function, version, flags, nullptr);
}

}  // extern "C"
