# The CUDA backend: a module (TandemModules.cmake) of host code in device/cuda/module and
# ops/cuda/module, and of kernels, each .cu beside the .cc of its operation. CUDA's runtime is linked
# statically, so the machine that runs it needs only the driver and cuBLAS. cuDNN is loaded when first
# used; a build needs its headers, version 9 or later.
find_path(CUDNN_HEADERS cudnn_graph.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(CUDNN_LIBRARY NAMES cudnn libcudnn.so.9 HINTS ${CUDAToolkit_LIBRARY_DIR})

# Sanitizers and fuzzers cannot see into kernels. The module's host code has separate tests.
if(TANDEM_SANITIZE OR TANDEM_FUZZ OR NOT CUDAToolkit_FOUND)
  return()
endif()
if(CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12)
  include(CheckLanguage)
  if(CMAKE_CXX_COMPILER_LAUNCHER AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
  endif()
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
  set(ENV{CUDACXX} ${CUDAToolkit_NVCC_EXECUTABLE})  # it may not be on the path
  check_language(CUDA)
endif()
if(NOT CMAKE_CUDA_COMPILER OR NOT TARGET CUDA::cublasLt)
  tandem_left_out("the CUDA backend (CUDA toolkit 12 or newer, with cuBLAS)")
  return()
endif()

# Code for the GPU that is here, or else for sm_80, which runs on every 8.x; newer GPUs compile its PTX.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80)
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader OUTPUT_VARIABLE capabilities
                  ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed AND capabilities MATCHES "^([0-9]+)\\.([0-9]+)")
    set(CMAKE_CUDA_ARCHITECTURES ${CMAKE_MATCH_1}${CMAKE_MATCH_2})
  endif()
endif()
enable_language(CUDA)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake before 3.26 does not know that nvcc has C++20
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_STANDARD 20)

file(GLOB_RECURSE kernels CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cu)
file(GLOB device_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/device/cuda/module/*.cc)
file(GLOB ops_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/ops/cuda/module/*.cc)
if(CUDNN_HEADERS)
  list(FILTER ops_sources EXCLUDE REGEX "/without_cudnn.cc$")
else()
  list(FILTER ops_sources EXCLUDE REGEX "/cudnn_[^/]*$")
  tandem_left_out("cuDNN in the CUDA backend, without which convolutions and attention are slow (cuDNN 9)")
endif()
tandem_module_of(cuda "${device_sources};${ops_sources};${kernels}" CUDA::cudart_static CUDA::cublasLt)
target_include_directories(tandem_cuda SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
if(CUDNN_HEADERS)
  target_include_directories(tandem_cuda SYSTEM PRIVATE ${CUDNN_HEADERS})
endif()
if(CUDNN_LIBRARY)  # programs that run on the build machine find it there
  get_filename_component(cudnn_folder ${CUDNN_LIBRARY} DIRECTORY)
  set_target_properties(tandem_cuda PROPERTIES BUILD_RPATH ${cudnn_folder})
endif()
target_link_options(tandem_cuda PRIVATE -Wl,--as-needed)
target_compile_definitions(tandem_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:TANDEM_GPU_CODE>)
target_compile_options(tandem_cuda PRIVATE
  "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;--extended-lambda;-Xcompiler=-Wall,-Wextra>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=>")
if(TANDEM_WERROR)
  target_compile_options(tandem_cuda PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=-Werror>")
endif()
