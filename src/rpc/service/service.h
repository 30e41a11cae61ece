// The part of a server that does not depend on how calls reach it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "rpc/frame.h"
#include "rpc/server.h"
#include "tandem/errors.h"

namespace tandem::rpc {

// Thread-safe once the handlers are set.
struct Service {
  ServerOptions options;
  std::string credential;  // of the job's token
  std::map<std::string, Handler> handlers = {};

  // The reply of the method's handler, or an error: its own, that of `receive`, or that of a
  // request or reply which is too large.
  Frame answer(const std::string& method, const CallContext& context,
               const std::function<Frame()>& receive) noexcept;
  // The answers to calls for which there is no thread, or no memory.
  Frame busy() const;
  static Frame no_memory(const std::string& method);

 private:
  Frame handle(const std::string& method, const CallContext& context, Frame request);
};

}  // namespace tandem::rpc
