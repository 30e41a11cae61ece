// The rendezvous URLs:
//
//   env://[?rank=R&world_size=N]
//   tcp://HOST:PORT[?rank=R&world_size=N][&server=outside]
//   file:///PATH[?rank=R&world_size=N]
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "comm/rendezvous/socket.h"

namespace tandem {

struct RendezvousUrl {
  enum class Scheme { kEnv, kTcp, kFile };
  Scheme scheme = Scheme::kEnv;
  std::string host;        // kTcp
  std::uint16_t port = 0;  // kTcp
  std::string path;        // kFile
  std::optional<int> rank, world_size;
  bool outside = false;  // kTcp: a server that is not one of the ranks listens there
};

// Parses HOST:PORT; IPv6 addresses are in brackets. Throws as parse_rendezvous_url() does.
Endpoint parse_endpoint(std::string_view text);

// Throws InvalidArgumentError with the messages of torch.distributed.
RendezvousUrl parse_rendezvous_url(const std::string& url);

// Throws "[rendezvous] Error initializing tandem using tcp:// rendezvous: WHAT".
[[noreturn]] void fail_rendezvous(const char* scheme, const std::string& what);

}  // namespace tandem
