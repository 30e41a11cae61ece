#include "comm/rendezvous/url.h"

#include <charconv>
#include <string_view>

#include "core/status.h"

namespace tandem {
namespace {

std::optional<std::int64_t> integer(std::string_view text) {
  std::int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return value;
}

int parameter(std::string_view name, std::string_view text) {
  constexpr std::int64_t kMax = 1'000'000;
  const auto value = integer(text);
  if (!value || *value < 0 || *value > kMax)
    fail<InvalidArgumentError>("[rendezvous] {}: expected an integer in [0, {}], got '{}'", name,
                               kMax, text);
  return static_cast<int>(*value);
}

void parse_server(std::string_view value, RendezvousUrl& result) {
  if (value != "outside")
    fail<InvalidArgumentError>("[rendezvous] server: expected 'outside', got '{}'", value);
  if (result.outside)
    fail<InvalidArgumentError>("[rendezvous] the parameter server is given twice");
  result.outside = true;
}

void parse_query(std::string_view query, RendezvousUrl& result) {
  while (!query.empty()) {
    const std::string_view item = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), item.size() + 1));
    const std::string_view name = item.substr(0, item.find('='));
    const std::string_view value =
        name.size() < item.size() ? item.substr(name.size() + 1) : std::string_view();
    if (name == "server") {
      parse_server(value, result);
      continue;
    }
    std::optional<int>* target = name == "rank"         ? &result.rank
                                 : name == "world_size" ? &result.world_size
                                                        : nullptr;
    if (target == nullptr)
      fail<InvalidArgumentError>(
          "[rendezvous] expected the parameters rank, world_size and server, got '{}'", item);
    if (target->has_value())
      fail<InvalidArgumentError>("[rendezvous] the parameter {} is given twice", name);
    *target = parameter(name, value);
  }
}

}  // namespace

Endpoint parse_endpoint(std::string_view text) {
  Endpoint result;
  std::string_view rest = text;
  if (!text.empty() && text.front() == '[') {
    const auto close = text.find(']');
    if (close == std::string_view::npos)
      fail<InvalidArgumentError>("[rendezvous] expected ']' after the address in '{}'", text);
    result.host = text.substr(1, close - 1);
    rest.remove_prefix(close + 1);
  } else {
    result.host = text.substr(0, text.find(':'));
    rest.remove_prefix(result.host.size());
  }
  if (rest.size() < 2 || rest.front() != ':') fail_rendezvous("tcp", "port number missing");
  if (result.host.empty()) fail_rendezvous("tcp", "host name missing");
  const std::string_view digits = rest.substr(1);
  const auto port = integer(digits);
  if (!port || *port < 0 || *port > 65535)
    fail<InvalidArgumentError>("[rendezvous] port must have value from 0 to 65535 but was {}.",
                               digits);
  result.port = static_cast<std::uint16_t>(*port);
  return result;
}

void fail_rendezvous(const char* scheme, const std::string& what) {
  fail<InvalidArgumentError>("[rendezvous] Error initializing tandem using {}:// rendezvous: {}",
                             scheme, what);
}

RendezvousUrl parse_rendezvous_url(const std::string& url) {
  const auto colon = url.find("://");
  if (colon == std::string::npos)
    fail<InvalidArgumentError>(
        "[rendezvous] expected env://, tcp://HOST:PORT or file:///PATH, got '{}'", url);
  const std::string scheme = url.substr(0, colon);
  std::string_view rest = std::string_view(url).substr(colon + 3);
  RendezvousUrl result;
  const auto question = rest.find('?');
  if (question != std::string_view::npos) {
    parse_query(rest.substr(question + 1), result);
    rest = rest.substr(0, question);
  }
  if (scheme == "env") {
    if (!rest.empty())
      fail<InvalidArgumentError>("[rendezvous] expected nothing after env://, got '{}'", rest);
  } else if (scheme == "tcp") {
    result.scheme = RendezvousUrl::Scheme::kTcp;
    while (!rest.empty() && rest.back() == '/') rest.remove_suffix(1);
    const Endpoint endpoint = parse_endpoint(rest);
    result.host = endpoint.host;
    result.port = endpoint.port;
  } else if (scheme == "file") {
    result.scheme = RendezvousUrl::Scheme::kFile;
    if (rest.empty() || rest == "/") fail_rendezvous("file", "path missing");
    if (rest.front() != '/')
      fail<InvalidArgumentError>(
          "[rendezvous] expected the path of a file on this machine, file:///PATH, got '{}'", url);
    result.path = rest;
  } else {
    fail<InvalidArgumentError>("[rendezvous] No rendezvous handler for {}://", scheme);
  }
  if (result.outside && result.scheme != RendezvousUrl::Scheme::kTcp)
    fail<InvalidArgumentError>(
        "[rendezvous] server=outside goes with tcp://HOST:PORT; for env:// set the environment "
        "variable TANDEM_RENDEZVOUS");
  return result;
}

}  // namespace tandem
