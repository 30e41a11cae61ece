// Backends whose libraries may be missing on a host. Each is a shared module beside libtandem that
// is loaded at its first use.
#pragma once

namespace tandem {

struct Module {
  const char* backend;  // "gloo"; the target that builds it is tandem_gloo
  const char* file;     // "libtandem_gloo.so"
  const char* library;  // Debian package needed to build the module, "libgloo-dev"
  const char* runtime;  // Debian package needed to run it, "libgloo0"
};

inline constexpr Module kCudaModule = {"cuda", "libtandem_cuda.so", "of NVIDIA's CUDA toolkit",
                                       "of NVIDIA's cuBLAS"};
inline constexpr Module kGlooModule = {"gloo", "libtandem_gloo.so", "libgloo-dev", "libgloo0"};
inline constexpr Module kGrpcModule = {"grpc", "libtandem_grpc.so", "libgrpc++-dev",
                                       "libgrpc++1.51"};
inline constexpr Module kImagesModule = {"images", "libtandem_images.so",
                                         "libjpeg62-turbo-dev and libpng-dev",
                                         "libjpeg62-turbo or libpng16-16"};
inline constexpr Module kLapackModule = {"lapack", "libtandem_lapack.so", "liblapack-dev",
                                         "liblapack3"};
inline constexpr Module kMpiModule = {"mpi", "libtandem_mpi.so", "libopenmpi-dev", "openmpi-bin"};
inline constexpr Module kNcclModule = {"nccl", "libtandem_nccl.so",
                                       "libnccl-dev, with the CUDA toolkit,", "libnccl2"};
inline constexpr Module kPjrtModule = {
    "pjrt", "libtandem_pjrt.so", "of the PJRT C API (scripts/setup --tpu)", "of a PJRT plug-in"};

// A function of the module with C linkage. The first call loads the module, which stays loaded.
// Throws UnavailableError if the module or its library is missing; the message names the target to
// build, if the build was configured with the module, or the package to install. Also if the module
// has no such function, because it belongs to another version.
void* find_in(const Module& module, const char* function);
template <class F>
F* load(const Module& module, const char* function) {
  return reinterpret_cast<F*>(find_in(module, function));
}
// Whether the module and its library are there.
bool can_load(const Module& module);

}  // namespace tandem
