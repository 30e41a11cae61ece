# Flags of every target of the project: warnings, and the sanitizers of the preset.
add_library(tandem_flags INTERFACE)

# Options of the C++ compiler; CUDA's compiler has its own (TandemCuda.cmake).
function(tandem_add_flags)
  target_compile_options(tandem_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:${ARGN}>)
endfunction()

tandem_add_flags(-Wall -Wextra -Wno-missing-field-initializers -fno-math-errno -fno-trapping-math)
# Messages name source files relative to the source tree.
tandem_add_flags(-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
if(CMAKE_UNITY_BUILD)
  # GCC takes a source file for a header, whose types should not have members of unnamed namespaces.
  tandem_add_flags(-Wno-subobject-linkage)
endif()
if(TANDEM_WERROR)
  tandem_add_flags(-Werror)
endif()
if(TANDEM_SANITIZE)
  tandem_add_flags(-fsanitize=${TANDEM_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  if(TANDEM_SANITIZE MATCHES undefined AND NOT TANDEM_FUZZ)
    # A fifth of the build's time. Accesses to null crash anyway; fuzzers check the alignment of what parsers read.
    tandem_add_flags(-fno-sanitize=null,alignment)
  endif()
  target_link_options(tandem_flags INTERFACE -fsanitize=${TANDEM_SANITIZE})
  # The resolvers of multiversioned functions run before a sanitizer is ready.
  target_compile_definitions(tandem_flags INTERFACE TANDEM_NO_FUNCTION_CLONES)
endif()
if(TANDEM_FUZZ)
  # Coverage of the library guides the fuzzers. clang does not know the OpenMP pragmas for GCC.
  tandem_add_flags(-fsanitize=fuzzer-no-link -Wno-unknown-pragmas)
endif()

# Precompiled headers shorten a clean build by two fifths. A compiler cache saves more, but does not work
# with them, so they are off with a cache.
set(precompile ON)
if(CMAKE_CXX_COMPILER_LAUNCHER)
  set(precompile OFF)
endif()
option(TANDEM_PRECOMPILED_HEADERS "Precompile the headers that most files include" ${precompile})

function(tandem_precompile target)
  if(TANDEM_PRECOMPILED_HEADERS)
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
endfunction()

# Parts that are not built, and what would build them: one line at the end of the configuration, which the scripts
# print.
function(tandem_left_out what)
  set_property(GLOBAL APPEND PROPERTY TANDEM_LEFT_OUT "${what}")
endfunction()
