// Events of a plug-in, which happen when its asynchronous work is done.
#pragma once

#include <pjrt_c_api.h>

#include <chrono>
#include <exception>
#include <functional>
#include <string_view>

namespace tandem::pjrt {

// Calls `then` once the event has happened, from a thread of the plug-in or before it returns, with
// the error of what the event stands for or with nothing. Frees the event. `what`: what failed, for
// the message. If the plug-in cannot do it, this waits for the event and throws.
void when_ready(const PJRT_Api& api, PJRT_Event* event, std::string_view what,
                std::function<void(std::exception_ptr)> then);

// Waits for an event and frees it. Throws the error of what it stands for.
void await(const PJRT_Api& api, PJRT_Event* event, std::string_view what);

// The same, but throws DeadlineExceededError after `limit`. The event is then freed when it
// happens.
void await_for(const PJRT_Api& api, PJRT_Event* event, std::string_view what,
               std::chrono::seconds limit);

}  // namespace tandem::pjrt
