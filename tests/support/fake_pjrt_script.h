// The interface between a test and the fake PJRT plug-in (fake_pjrt_plugin.cc).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tandem::testing {

// The plug-in does what a test sets here, and notes what it was given.
struct FakePjrt {
  // These describe its table of functions. `table_size`: 0 is that of the whole table.
  bool has_table = true;
  int major = 0, minor = 81;
  std::size_t table_size = 0;

  // This function fails, "PJRT_Client_Create", after some calls that do not. With "results", the
  // results of a program fail after the call that starts it has returned.
  std::string failing;
  int passes = 0;
  int code = 13;  // of PJRT_Error_Code
  std::string message = "it fails";
  void fail_in(const std::string& function, int with = 13) {
    failing = function;
    code = with;
  }

  int devices = 2;
  std::int64_t memory_limit = 0;  // 0: it does not tell
  bool late_transfers = false;    // host memory is read by finish_transfers(), or if it is needed
  void (*finish_transfers)() = nullptr;
  bool late_elements = false;  // no buffer has its elements until finish_elements()
  void (*finish_elements)() = nullptr;

  int live = 0;        // objects of the plug-in that have not been destroyed
  int executions = 0;  // of programs
  std::map<std::string, std::string> options;  // of the last client, "int64 3"
  std::string compile_options;                 // of the last program
  std::vector<std::int64_t> not_donatable;     // of the last run
};

}  // namespace tandem::testing
