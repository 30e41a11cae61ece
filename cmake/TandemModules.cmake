# Backends that need optional libraries: each is a shared module beside libtandem, which loads it when
# first used. Their sources are in directories named `module`; no other code includes the library. The
# modules whose libraries this machine has are in the global property TANDEM_MODULES.

function(tandem_module name folder)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cc)
  tandem_module_of(${name} "${sources}" ${ARGN})
endfunction()

function(tandem_module_of name sources)
  add_library(tandem_${name} MODULE ${sources})
  target_include_directories(tandem_${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(tandem_${name} PRIVATE tandem tandem_flags OpenMP::OpenMP_CXX Threads::Threads fmt::fmt
                                               ${ARGN})
  set_target_properties(tandem_${name} PROPERTIES CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden
                        INSTALL_RPATH "$ORIGIN"
                        LIBRARY_OUTPUT_DIRECTORY $<TARGET_FILE_DIR:tandem>)
  add_dependencies(installed tandem_${name})
  install(TARGETS tandem_${name} OPTIONAL LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  set_property(GLOBAL APPEND PROPERTY TANDEM_MODULES tandem_${name})
endfunction()

# The CMake package of Debian's Gloo has no usable target.
find_path(GLOO_HEADERS gloo/transport/unbound_buffer.h)
find_library(GLOO_LIBRARY gloo)
if(GLOO_HEADERS AND GLOO_LIBRARY)
  tandem_module(gloo comm/gloo/module ${GLOO_LIBRARY})
  target_include_directories(tandem_gloo SYSTEM PRIVATE ${GLOO_HEADERS})
  if(NOT EXISTS ${GLOO_HEADERS}/gloo/common/memory.h)
    target_include_directories(tandem_gloo SYSTEM PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/comm/gloo/compat)
  endif()
else()
  tandem_left_out("the gloo backend (Debian: libgloo-dev)")
endif()

# The CMake package of Debian's gRPC looks for Protobuf in another way than the rest of the build. gRPC is not
# instrumented: how it orders its threads is hidden from the thread sanitizer.
find_path(GRPC_HEADERS grpcpp/generic/generic_stub.h)
find_library(GRPC_LIBRARY grpc++)
find_library(GPR_LIBRARY gpr)
if(GRPC_HEADERS AND GRPC_LIBRARY AND GPR_LIBRARY AND NOT TANDEM_SANITIZE STREQUAL "thread")
  tandem_module(grpc rpc/grpc/module tandem_ps ${GRPC_LIBRARY} ${GPR_LIBRARY})
  target_include_directories(tandem_grpc SYSTEM PRIVATE ${GRPC_HEADERS})
elseif(NOT TANDEM_SANITIZE STREQUAL "thread")
  tandem_left_out("the grpc backend (Debian: libgrpc++-dev)")
endif()

find_package(JPEG QUIET)
find_package(PNG QUIET)
if(JPEG_FOUND AND PNG_FOUND)
  tandem_module(images data/images/module JPEG::JPEG PNG::PNG)
else()
  tandem_left_out("files of images (Debian: libjpeg62-turbo-dev and libpng-dev)")
endif()

find_library(LAPACK_LIBRARY lapack)
find_library(BLAS_LIBRARY blas)
if(LAPACK_LIBRARY AND BLAS_LIBRARY)
  tandem_module(lapack ops/math/module ${LAPACK_LIBRARY} ${BLAS_LIBRARY})
else()
  tandem_left_out("linear algebra (Debian: liblapack-dev)")
endif()

# The header of the PJRT C API comes with a plug-in: scripts/setup --tpu puts one into the build tree.
# Sanitizers cannot see into plug-ins, and would take their synchronization for races.
find_path(PJRT_HEADERS pjrt_c_api.h HINTS ${PROJECT_SOURCE_DIR}/build/pjrt/include)
if(PJRT_HEADERS AND NOT TANDEM_SANITIZE)
  tandem_module(pjrt device/pjrt/module ${CMAKE_DL_LIBS})
  target_include_directories(tandem_pjrt SYSTEM PRIVATE ${PJRT_HEADERS})
elseif(NOT TANDEM_SANITIZE)
  tandem_left_out("the pjrt backend (scripts/setup --tpu)")
endif()

include(${PROJECT_SOURCE_DIR}/cmake/TandemCuda.cmake)

# It has no kernels, so it needs only the headers and the runtime library of CUDA.
if(CUDAToolkit_FOUND)
  find_path(NCCL_HEADERS nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
  if(NCCL_HEADERS AND NCCL_LIBRARY)
    tandem_module(nccl comm/nccl/module CUDA::cudart_static ${NCCL_LIBRARY})
    target_include_directories(tandem_nccl SYSTEM PRIVATE ${NCCL_HEADERS} ${CUDAToolkit_INCLUDE_DIRS})
  else()
    tandem_left_out("the nccl backend (NCCL 2 beside the CUDA toolkit)")
  endif()
endif()

set(MPI_CXX_SKIP_MPICXX ON)
find_package(MPI QUIET COMPONENTS CXX)
if(MPI_CXX_FOUND)
  tandem_module(mpi comm/mpi/module -Wl,--as-needed MPI::MPI_CXX)
else()
  tandem_left_out("the mpi backend (Debian: libopenmpi-dev)")
endif()

# load_factory() reports a missing module differently if this build was configured to contain it.
get_property(configured GLOBAL PROPERTY TANDEM_MODULES)
list(JOIN configured "," configured)
set_source_files_properties(core/module.cc PROPERTIES COMPILE_DEFINITIONS
                            TANDEM_CONFIGURED_MODULES="${configured}")
