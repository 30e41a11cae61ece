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
#include "online/exchange.h"
#include "tandem/config.h"

namespace tandem::c {
namespace {

thread_local std::string last_error;

struct Handler {
  tandem_error_handler call = nullptr;
  void* data = nullptr;
};
std::mutex handler_mutex;
Handler handler;

// Switches traps off, and restores the floating-point environment of the calling thread.
class FloatEnvironment {
 public:
  FloatEnvironment() { std::feholdexcept(&host_); }
  ~FloatEnvironment() { std::fesetenv(&host_); }
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

 private:
  std::fenv_t host_;
};

tandem_status fail_with(online::Caught error) noexcept {
  Handler called;
  {
    const std::lock_guard lock(handler_mutex);
    called = handler;
  }
  last_error = std::move(error.message);
  if (called.call) called.call(error.kind, last_error.c_str(), called.data);
  return error.kind;
}

}  // namespace

tandem_status guarded(const std::function<void()>& body) noexcept {
  online::Caught error;
  {
    const FloatEnvironment host;
    try {
      const int threads = config::get_intra_op_parallelism_threads();
      const ThreadBudget budget(threads > 0 ? threads : available_cores());
      body();
      last_error.clear();
      return TANDEM_OK;
    } catch (...) {
      error = online::describe(std::current_exception());
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
  static_assert(std::size(kNames) == std::size(online::kErrorKinds));
  return status >= 0 && status <= TANDEM_INTERNAL ? kNames[status] : "UNKNOWN";
}

void tandem_set_error_handler(tandem_error_handler handler, void* data) {
  const std::lock_guard lock(c::handler_mutex);
  c::handler = {handler, data};
}

tandem_status tandem_fail(tandem_status status, const char* message) {
  const bool known = status > TANDEM_OK && status <= TANDEM_INTERNAL;
  return c::fail_with({known ? status : TANDEM_INTERNAL, message ? message : "unknown error"});
}
