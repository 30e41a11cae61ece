# Backends that need optional libraries: each is a shared module beside libtandem, which loads it when
# first used. Their sources are in directories named `module`; no other code includes the library. The
# target tandem_modules builds the modules whose libraries this machine has.
add_custom_target(tandem_modules)

function(tandem_module name folder)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cc)
  tandem_module_of(${name} "${sources}" ${ARGN})
endfunction()

function(tandem_module_of name sources)
  add_library(tandem_${name} MODULE ${sources})
  target_include_directories(tandem_${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(tandem_${name} PRIVATE tandem tandem_flags OpenMP::OpenMP_CXX Threads::Threads fmt::fmt
                                               spdlog::spdlog ${ARGN})
  set_target_properties(tandem_${name} PROPERTIES CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden
                        INSTALL_RPATH "$ORIGIN"
                        LIBRARY_OUTPUT_DIRECTORY $<TARGET_FILE_DIR:tandem>)
  install(TARGETS tandem_${name} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  add_dependencies(tandem_modules tandem_${name})
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
  message(STATUS "Without the gloo backend: no Gloo here (Debian: libgloo-dev)")
endif()

# The CMake package of Debian's gRPC looks for Protobuf in another way than the rest of the build.
find_path(GRPC_HEADERS grpcpp/generic/generic_stub.h)
find_library(GRPC_LIBRARY grpc++)
find_library(GPR_LIBRARY gpr)
if(GRPC_HEADERS AND GRPC_LIBRARY AND GPR_LIBRARY)
  tandem_module(grpc rpc/grpc/module ${GRPC_LIBRARY} ${GPR_LIBRARY})
  target_include_directories(tandem_grpc SYSTEM PRIVATE ${GRPC_HEADERS})
else()
  message(STATUS "Without the grpc backend: no gRPC here (Debian: libgrpc++-dev)")
endif()

# The header of the PJRT C API comes with a plug-in: scripts/setup --tpu puts one into the build tree.
# Sanitizers cannot see into plug-ins, and would take their synchronization for races.
find_path(PJRT_HEADERS pjrt_c_api.h HINTS ${PROJECT_SOURCE_DIR}/build/pjrt/include)
if(PJRT_HEADERS AND NOT TANDEM_SANITIZE)
  tandem_module(pjrt device/pjrt/module ${CMAKE_DL_LIBS})
  target_include_directories(tandem_pjrt SYSTEM PRIVATE ${PJRT_HEADERS})
else()
  message(STATUS "Without the pjrt backend: no header of the PJRT C API here (scripts/setup --tpu)")
endif()

include(${PROJECT_SOURCE_DIR}/cmake/TandemCuda.cmake)

# It has no kernels, so it needs only the headers and the runtime library of CUDA.
find_path(NCCL_HEADERS nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
if(CUDAToolkit_FOUND AND NCCL_HEADERS AND NCCL_LIBRARY)
  tandem_module(nccl comm/nccl/module CUDA::cudart_static ${NCCL_LIBRARY})
  target_include_directories(tandem_nccl SYSTEM PRIVATE ${NCCL_HEADERS} ${CUDAToolkit_INCLUDE_DIRS})
else()
  message(STATUS "Without the nccl backend: no CUDA toolkit or no NCCL here")
endif()

set(MPI_CXX_SKIP_MPICXX ON)
find_package(MPI QUIET COMPONENTS CXX)
if(MPI_CXX_FOUND)
  tandem_module(mpi comm/mpi/module -Wl,--as-needed MPI::MPI_CXX)
else()
  message(STATUS "Without the mpi backend: no MPI here (Debian: libopenmpi-dev)")
endif()

# load_factory() reports a missing module differently if this build was configured to contain it.
get_property(configured GLOBAL PROPERTY TANDEM_MODULES)
list(JOIN configured "," configured)
set_source_files_properties(core/module.cc PROPERTIES COMPILE_DEFINITIONS
                            TANDEM_CONFIGURED_MODULES="${configured}")
