# A folder in which libtandem finds a driver, and a libtandem_cuda.so that is the whole backend, its
# kernels compiled for the host, over a fake of CUDA. Tests that run with it as LD_LIBRARY_PATH have two
# GPUs by default: those of the folders below run once more so, labelled `emulated`.
set(folder ${CMAKE_CURRENT_BINARY_DIR}/fake_cuda)

file(GLOB_RECURSE kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*.cu)
file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/device/cuda/module/*.cc
     ${PROJECT_SOURCE_DIR}/src/ops/cuda/module/*.cc)
if(CUDNN_HEADERS)
  list(FILTER sources EXCLUDE REGEX "/(without_cudnn|cudnn_loaded).cc$")
  list(APPEND sources cuda/cudnn/fake_cudnn.cc cuda/cudnn/fake_graph.cc)
else()
  list(FILTER sources EXCLUDE REGEX "/cudnn_[^/]*$")
endif()
# Less optimised than the library: their compilation takes longer than the tests.
set_source_files_properties(${kernels} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS
                            "-O1;-DTANDEM_GPU_CODE;-include;cuda_runtime.h;-Wno-unknown-pragmas;-Wno-sign-compare")
add_library(fake_cudart SHARED cuda/executor.cc cuda/shared_memory.cc cuda/fake_cuda.cc cuda/module/fake_gpus.cc)
target_include_directories(fake_cudart PRIVATE cuda/on_host ${PROJECT_SOURCE_DIR}/src ${CMAKE_CURRENT_SOURCE_DIR})
target_include_directories(fake_cudart SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
target_link_libraries(fake_cudart PRIVATE tandem tandem_flags OpenMP::OpenMP_CXX fmt::fmt)
set_target_properties(fake_cudart PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${folder})
add_library(fake_tandem_cuda MODULE ${sources} ${kernels} cuda/fake_cublas.cc)
target_include_directories(fake_tandem_cuda PRIVATE cuda/on_host ${PROJECT_SOURCE_DIR}/src ${CMAKE_CURRENT_SOURCE_DIR})
target_include_directories(fake_tandem_cuda SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS}
                           $<$<BOOL:${CUDNN_HEADERS}>:${CUDNN_HEADERS}>)
target_link_libraries(fake_tandem_cuda PRIVATE fake_cudart tandem tandem_flags OpenMP::OpenMP_CXX fmt::fmt)
# Symbols that the fake lacks fail at link time: a module that does not load would leave the tests
# to the CPU.
target_link_options(fake_cudart PRIVATE -Wl,-z,defs)
target_link_options(fake_tandem_cuda PRIVATE -Wl,-z,defs)
set_target_properties(fake_tandem_cuda PROPERTIES OUTPUT_NAME tandem_cuda CXX_VISIBILITY_PRESET hidden
                      LIBRARY_OUTPUT_DIRECTORY ${folder})

# The same for NCCL, where its header is.
if(NCCL_HEADERS)
  file(GLOB nccl_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/comm/nccl/module/*.cc)
  add_library(fake_tandem_nccl MODULE ${nccl_sources} cuda/nccl/fake_nccl.cc cuda/nccl/segment.cc)
  target_include_directories(fake_tandem_nccl PRIVATE ${PROJECT_SOURCE_DIR}/src ${CMAKE_CURRENT_SOURCE_DIR})
  target_include_directories(fake_tandem_nccl SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS} ${NCCL_HEADERS})
  target_link_libraries(fake_tandem_nccl PRIVATE fake_cudart tandem tandem_flags fmt::fmt)
  set_target_properties(fake_tandem_nccl PROPERTIES OUTPUT_NAME tandem_nccl CXX_VISIBILITY_PRESET hidden
                        LIBRARY_OUTPUT_DIRECTORY ${folder})
  add_dependencies(fake_tandem_cuda fake_tandem_nccl)
endif()

# libtandem looks for its modules where it was loaded from.
add_custom_command(TARGET fake_tandem_cuda POST_BUILD COMMAND ${CMAKE_COMMAND} -E create_symlink
                   $<TARGET_FILE:tandem> ${folder}/$<TARGET_SONAME_FILE_NAME:tandem>)
if(TARGET tandem_lapack)
  add_custom_command(TARGET fake_tandem_cuda POST_BUILD COMMAND ${CMAKE_COMMAND} -E create_symlink
                     $<TARGET_FILE:tandem_lapack> ${folder}/$<TARGET_FILE_NAME:tandem_lapack>)
  add_dependencies(fake_tandem_cuda tandem_lapack)
endif()

add_library(fake_driver SHARED cuda/module/fake_driver.cc)
set_target_properties(fake_driver PROPERTIES OUTPUT_NAME cuda SOVERSION 1 LIBRARY_OUTPUT_DIRECTORY ${folder})

# Kernels have no team of threads, and long chains are the host's matter.
set(not_here "*AnyTeam:*AnyNumberOfThreads:Backward.HandlesLongChains")
# Under a sanitizer, these take minutes each: their kernels run in the release build alone.
if(TANDEM_SANITIZE)
  string(APPEND not_here ":Conv2D.HasRightGradients:Conv2D.FusesActivations:Pool.HasRightGradients"
                         ":Reduce.GradientsMatchDifferences:Attention.LargeGradients*:LayerGradients.Sequences:*BenchmarkCases*")
endif()

# The tests of a folder that `filter` lets through, with `gpus` such GPUs.
function(tandem_test_on_fake_cuda name gpus filter)
  # `scripts/test --sanitize` leaves these tests out, and should not compile kernels for a folder's other tests.
  if(NOT TANDEM_SANITIZE)
    add_dependencies(${name}_test fake_tandem_cuda fake_driver)
  endif()
  gtest_discover_tests(${name}_test TEST_PREFIX fake_cuda.${name}. TEST_FILTER ${filter} TEST_LIST fake_cuda_tests_${gpus}
                       DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 300 LABELS emulated
                       ENVIRONMENT LD_LIBRARY_PATH=${folder} ENVIRONMENT_MODIFICATION FAKE_CUDA_GPUS=set:${gpus})
endfunction()

# Devices of PJRT plug-ins have nothing to do with GPUs.
foreach(name ops autodiff graph)
  tandem_test_on_fake_cuda(${name} 2 -*Slow.*:*Hosts*:FailingRegions*:${not_here})
endforeach()
# Tests that make models and batches, but for those that look at files, messages and the host alone, and
# those that take half a minute and more (of the benchmarks' cases, LeNet and ResNet-20).
tandem_test_on_fake_cuda(nn 2 -*Slow.*:Schedules*:*Refused:*Refuse*:${not_here})
string(CONCAT left_out "Resume.ResumesFromEveryStep:Resume.RestoresTheState*:Model.ATransformer*:"
              "*BenchmarkCases.*/1:*BenchmarkCases.*/2:"
              "Safetensors*:Crc32c*:ProgressBar*:CSVLogger*:ModelCheckpoint.Formats*:*Refuses*:"
              "Explain.Lists*:Explain.CountsBodies*:Explain.CollectiveBytesEqual*:MemoryTags.*Cpu:MemoryTags.Gradients*:MemoryTags.Data*")
tandem_test_on_fake_cuda(train 2 -*Slow.*:${left_out}:${not_here})
tandem_test_on_fake_cuda(data 2 PrefetchToDevice*:-*.RejectsInvalid*:*.EqualsPrefetchOnACpu)
tandem_test_on_fake_cuda(runtime 4 -*Slow.*:*Hosts*)
tandem_test_on_fake_cuda(function 4 -*Slow.*:*Hosts*)
# Between processes, tensors go through the host: that is tested with emulated GPUs.
tandem_test_on_fake_cuda(distribute 2 -*Slow.*:*Hosts*:MultiWorker*:*Tpu*)
tandem_test_on_fake_cuda(parallel 4 DataParallel*:Devices/DataParallel*:Criterion*:MemoryBalance*)
tandem_test_on_fake_cuda(amp 2 Autocast*:Fused*:LARC*:Initialize*:ScaleLoss*:DTypePolicy*:GradScaler*:LossScaleOptimizer*:PolicyTraining*)
# Between GPUs: of one process, and with a process each.
tandem_test_on_fake_cuda(comm 2 OnGpu*Local*)
tandem_test_on_fake_cuda(comm 8 OnGpuNccl*)

# Whole programs on the fake GPUs, which look at what is asked of them.
file(GLOB program_tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/cuda/programs/*.cc)
add_executable(fake_programs_test ${program_tests})
target_include_directories(fake_programs_test PRIVATE ${PROJECT_SOURCE_DIR}/src ${CMAKE_CURRENT_SOURCE_DIR})
target_include_directories(fake_programs_test SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
target_link_libraries(fake_programs_test PRIVATE fake_cudart tandem tandem_flags fmt::fmt GTest::gtest
                                                 GTest::gtest_main)
add_dependencies(fake_programs_test fake_tandem_cuda fake_driver)
gtest_discover_tests(fake_programs_test TEST_PREFIX fake_cuda.programs. TEST_LIST fake_cuda_programs_tests
                     DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 300 LABELS emulated ENVIRONMENT LD_LIBRARY_PATH=${folder})
