// Counts the calls of MPI's functions that Tandem starts transfers with and polls with: those by
// threads other than the main one, and those after MPI_Finalize. Included once per program, whose
// functions stand before the library's own.
#pragma once

#include <mpi.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <map>
#include <string>

namespace host {

inline std::atomic<long> calls_elsewhere{0}, calls_after_finalize{0};
inline std::atomic<bool> finalized{false};
inline int failures = 0;

inline void count_call() {
  if (getpid() != static_cast<pid_t>(syscall(SYS_gettid))) ++calls_elsewhere;
  if (finalized) ++calls_after_finalize;
}

inline void expect(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what.c_str());
  ++failures;
}

inline void finalize() {
  MPI_Finalize();
  finalized = true;
}

// "single", "funneled", "serialized", "multiple".
inline int level_of(const std::string& name) {
  const std::map<std::string, int> levels{{"single", MPI_THREAD_SINGLE},
                                          {"funneled", MPI_THREAD_FUNNELED},
                                          {"serialized", MPI_THREAD_SERIALIZED},
                                          {"multiple", MPI_THREAD_MULTIPLE}};
  return levels.at(name);
}

}  // namespace host

extern "C" {
int MPI_Test(MPI_Request* request, int* flag, MPI_Status* status) {
  host::count_call();
  return PMPI_Test(request, flag, status);
}
int MPI_Isend(const void* buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request* request) {
  host::count_call();
  return PMPI_Isend(buffer, count, type, to, tag, comm, request);
}
int MPI_Irecv(void* buffer, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
              MPI_Request* request) {
  host::count_call();
  return PMPI_Irecv(buffer, count, type, from, tag, comm, request);
}
}
