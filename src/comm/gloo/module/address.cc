#include "comm/gloo/module/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

namespace tandem::gloo_backend {
namespace {

std::string number_of(const sockaddr* address) {
  char text[NI_MAXHOST] = "";
  const socklen_t size = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  getnameinfo(address, size, text, sizeof(text), nullptr, 0, NI_NUMERICHOST);
  return text;
}

// Empty for an address that other hosts cannot reach.
std::string text_of(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto& ip = reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
    if ((ntohl(ip.s_addr) >> 24) == IN_LOOPBACKNET) return "";
  } else if (address->sa_family == AF_INET6) {
    const auto& ip = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
    if (IN6_IS_ADDR_LOOPBACK(&ip) || IN6_IS_ADDR_LINKLOCAL(&ip)) return "";
  } else {
    return "";
  }
  return number_of(address);
}

}  // namespace

// Connecting a datagram socket only queries the routing table; it sends nothing.
std::string address_towards(const std::string& master) {
  if (master.empty()) return "";
  addrinfo hints = {}, *found = nullptr;
  hints.ai_socktype = SOCK_DGRAM;
  if (getaddrinfo(master.c_str(), "9", &hints, &found) != 0) return "";
  std::string text;
  for (const addrinfo* at = found; at && text.empty(); at = at->ai_next) {
    const int socket = ::socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_storage mine = {};
    socklen_t length = sizeof(mine);
    if (socket >= 0 && connect(socket, at->ai_addr, at->ai_addrlen) == 0 &&
        getsockname(socket, reinterpret_cast<sockaddr*>(&mine), &length) == 0)
      text = text_of(reinterpret_cast<const sockaddr*>(&mine));
    if (socket >= 0) close(socket);
  }
  freeaddrinfo(found);
  return text;
}

std::string first_address() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  std::string text;
  for (const int family : {AF_INET, AF_INET6})
    for (const ifaddrs* at = all; at && text.empty(); at = at->ifa_next)
      if (at->ifa_addr && at->ifa_addr->sa_family == family && (at->ifa_flags & IFF_UP) &&
          !(at->ifa_flags & IFF_LOOPBACK))
        text = text_of(at->ifa_addr);
  freeifaddrs(all);
  return text;
}

std::string address_of_interface(const std::string& name) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  std::string text;
  for (const int family : {AF_INET, AF_INET6})
    for (const ifaddrs* at = all; at && text.empty(); at = at->ifa_next)
      if (at->ifa_addr && at->ifa_addr->sa_family == family && name == at->ifa_name)
        text = number_of(at->ifa_addr);
  freeifaddrs(all);
  return text;
}

}  // namespace tandem::gloo_backend
