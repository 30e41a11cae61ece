// Calls of the PJRT C API, whose errors become exceptions.
#pragma once

#include <pjrt_c_api.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace tandem::pjrt {

// Whether the plug-in's table of functions has this one. Tables of older versions end earlier.
#define TANDEM_PJRT_HAS(api, Function) \
  ((api).struct_size >= offsetof(PJRT_Api, Function) + sizeof((api).Function) && (api).Function)

// Throws the exception for an error of the plug-in and frees it. `what`: what failed, for the
// message.
[[noreturn]] void throw_error(const PJRT_Api& api, PJRT_Error* error, std::string_view what);

inline void check(const PJRT_Api& api, PJRT_Error* error, std::string_view what) {
  if (error) throw_error(api, error, what);
}

// The arguments of a function with their size filled in: the plug-in's version may know fewer or
// more fields.
template <class Args>
Args make_args(std::size_t struct_size) {
  Args args{};
  args.struct_size = struct_size;
  return args;
}

}  // namespace tandem::pjrt

// PJRT_Foo_Args args = TANDEM_PJRT_ARGS(PJRT_Foo)
#define TANDEM_PJRT_ARGS(Function) \
  ::tandem::pjrt::make_args<Function##_Args>(Function##_Args_STRUCT_SIZE)
