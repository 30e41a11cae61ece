#include "comm/rendezvous/descriptors.h"

#include <sys/resource.h>

#include <cerrno>

#include "core/status.h"

namespace tandem {
namespace {

rlimit descriptor_limit() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit;
}

}  // namespace

void require_descriptors(std::int64_t count, std::string_view what) {
  rlimit limit = descriptor_limit();
  if (limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    limit = descriptor_limit();
  }
  if (static_cast<rlim_t>(count) > limit.rlim_cur)
    fail<ResourceExhaustedError>(
        "[rendezvous] {} needs about {} open files and sockets, but this process may have {} "
        "(RLIMIT_NOFILE): raise the hard limit (`ulimit -Hn`, LimitNOFILE)",
        what, count, limit.rlim_cur);
}

bool is_out_of_descriptors(int error) { return error == EMFILE || error == ENFILE; }

void fail_out_of_descriptors() {
  if (errno == ENFILE)
    fail<ResourceExhaustedError>(
        "[rendezvous] the system has no more open files and sockets to give (fs.file-max)");
  fail<ResourceExhaustedError>(
      "[rendezvous] this process has all {} files and sockets open that it may have "
      "(RLIMIT_NOFILE): raise the limit (`ulimit -n`, LimitNOFILE)",
      descriptor_limit().rlim_cur);
}

}  // namespace tandem
