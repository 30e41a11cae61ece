# tandem_add_fortran(FOLDER): tandem::fortran, the Fortran module whose sources are in FOLDER. It is compiled by the
# project's own compilers, because module files belong to a compiler, and over the project's MPI if it has found one in C.
function(tandem_add_fortran folder)
  set(modules ${CMAKE_CURRENT_BINARY_DIR}/tandem_modules)
  add_library(tandem_fortran STATIC EXCLUDE_FROM_ALL ${folder}/arrays.f90 ${folder}/tandem.f90
                                                ${folder}/tandem_mpi_fortran.c)
  add_library(tandem::fortran ALIAS tandem_fortran)
  set_target_properties(tandem_fortran PROPERTIES Fortran_MODULE_DIRECTORY ${modules} POSITION_INDEPENDENT_CODE ON)
  target_include_directories(tandem_fortran INTERFACE ${modules})
  target_link_libraries(tandem_fortran PUBLIC tandem::c)
  if(TARGET MPI::MPI_C)
    target_link_libraries(tandem_fortran PRIVATE MPI::MPI_C)
  else()
    target_compile_definitions(tandem_fortran PRIVATE TANDEM_NO_MPI)
  endif()
endfunction()
