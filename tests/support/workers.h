// Runs workers of a MultiWorkerMirroredStrategy as processes of a test.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "support/processes.h"

namespace tandem::testing {

// TF_CONFIG of worker `index`, for workers that listen at `ports`.
inline std::string tf_config(const std::vector<std::uint16_t>& ports, int index) {
  std::string addresses;
  for (std::uint16_t port : ports)
    addresses +=
        (addresses.empty() ? "\"127.0.0.1:" : ",\"127.0.0.1:") + std::to_string(port) + "\"";
  return R"({"cluster":{"worker":[)" + addresses + R"(]},"task":{"type":"worker","index":)" +
         std::to_string(index) + "}}";
}

// Different ones: the system may give one again.
inline std::vector<std::uint16_t> free_ports(std::size_t count) {
  std::vector<std::uint16_t> ports;
  while (ports.size() < count)
    if (const auto port = free_port(); std::ranges::find(ports, port) == ports.end())
      ports.push_back(port);
  return ports;
}

// A process that runs body(index) as one of `ports.size()` workers.
inline ChildProcess start_worker(const std::vector<std::uint16_t>& ports, int index,
                                 const std::function<std::string(int)>& body) {
  return ChildProcess([=] {
    setenv("TF_CONFIG", tf_config(ports, index).c_str(), 1);
    return body(index);
  });
}

// Runs body(worker) in each of `count` processes. Returns the results.
inline std::vector<std::string> run_workers(int count,
                                            const std::function<std::string(int)>& body) {
  const std::vector<std::uint16_t> ports = free_ports(static_cast<std::size_t>(count));
  std::vector<ChildProcess> workers;
  for (int i = 0; i < count; ++i) workers.push_back(start_worker(ports, i, body));
  std::vector<std::string> results;
  for (ChildProcess& worker : workers) results.push_back(worker.result());
  return results;
}

// Numbers as text, exact to the bit.
inline std::string text_of(const std::vector<double>& numbers) {
  std::ostringstream out;
  out << std::hexfloat;
  for (double number : numbers) out << number << ' ';
  return out.str();
}

inline std::vector<double> numbers_of(const std::string& text) {
  std::vector<double> numbers;
  std::istringstream in(text);
  for (std::string word; in >> word;) numbers.push_back(std::strtod(word.c_str(), nullptr));
  return numbers;
}

}  // namespace tandem::testing
