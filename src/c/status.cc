#include "c/status.h"

#include <atomic>
#include <cfenv>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "core/available_cores.h"
#include "core/parallel.h"
#include "core/status.h"
#include "tandem/config.h"

namespace tandem::c {
namespace {

constexpr std::string_view kKinds[] = {
    "",
    "InvalidArgumentError",
    "NotFoundError",
    "AlreadyExistsError",
    "ResourceExhaustedError",
    "FailedPreconditionError",
    "OutOfRangeError",
    "DeadlineExceededError",
    "UnavailableError",
    "AbortedError",
    "DataLossError",
    "UnimplementedError",
    "RuntimeError",
    "InternalError",
};

tandem_status status_of(const Error& error) {
  if (dynamic_cast<const InvalidArgumentError*>(&error)) return TANDEM_INVALID_ARGUMENT;
  for (std::size_t i = 1; i < std::size(kKinds); ++i)
    if (kKinds[i] == error.kind()) return static_cast<tandem_status>(i);
  return TANDEM_INTERNAL;
}

thread_local std::string last_error;

struct Handler {
  tandem_error_handler call = nullptr;
  void* data = nullptr;
};
std::mutex handler_mutex;
Handler handler;

// Restores the floating-point environment of the calling thread.
class FloatEnvironment {
 public:
  FloatEnvironment() { std::fegetenv(&host_); }
  ~FloatEnvironment() { std::fesetenv(&host_); }
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

 private:
  std::fenv_t host_;
};

tandem_status fail_with(Caught error) noexcept {
  Handler called;
  {
    const std::lock_guard lock(handler_mutex);
    called = handler;
  }
  last_error = std::move(error.message);
  if (called.call) called.call(error.status, last_error.c_str(), called.data);
  return error.status;
}

}  // namespace

Caught caught() {
  try {
    throw;
  } catch (const RankError& error) {
    return {error.status(), error.what()};
  } catch (const Error& error) {
    return {status_of(error), error.what()};
  } catch (const std::bad_alloc&) {
    return {TANDEM_RESOURCE_EXHAUSTED, "out of memory"};
  } catch (const std::exception& error) {
    return {TANDEM_INTERNAL, error.what()};
  } catch (...) {
    return {TANDEM_INTERNAL, "unknown exception"};
  }
}

tandem_status guarded(const std::function<void()>& body) noexcept {
  Caught error;
  {
    const FloatEnvironment host;
    try {
      const int threads = config::get_intra_op_parallelism_threads();
      const ThreadBudget budget(threads > 0 ? threads : available_cores());
      body();
      last_error.clear();
      return TANDEM_OK;
    } catch (...) {
      error = caught();
    }
  }
  return fail_with(std::move(error));
}

}  // namespace tandem::c

using namespace tandem;

int32_t tandem_c_api(void) { return TANDEM_C_API; }

const char* tandem_version(void) { return TANDEM_VERSION; }

const char* tandem_last_error(void) { return c::last_error.c_str(); }

const char* tandem_status_name(tandem_status status) {
  static constexpr const char* kNames[] = {
      "OK",
      "INVALID_ARGUMENT",
      "NOT_FOUND",
      "ALREADY_EXISTS",
      "RESOURCE_EXHAUSTED",
      "FAILED_PRECONDITION",
      "OUT_OF_RANGE",
      "DEADLINE_EXCEEDED",
      "UNAVAILABLE",
      "ABORTED",
      "DATA_LOSS",
      "UNIMPLEMENTED",
      "RUNTIME",
      "INTERNAL",
  };
  static_assert(std::size(kNames) == std::size(c::kKinds));
  return status >= 0 && status <= TANDEM_INTERNAL ? kNames[status] : "UNKNOWN";
}

void tandem_set_error_handler(tandem_error_handler handler, void* data) {
  const std::lock_guard lock(c::handler_mutex);
  c::handler = {handler, data};
}
