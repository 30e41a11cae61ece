#include "distribute/tpu_environment.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "core/env.h"
#include "core/json.h"
#include "core/status.h"

namespace tandem::distribute {
namespace {

constexpr std::string_view kScheme = "grpc://";
constexpr int kDefaultPort = 8470;

std::string member(const Json& root, const char* name) {
  const Json* found = root.find(name);
  if (!found) return "";
  if (!found->is_string())
    fail<InvalidArgumentError>("[TPU_CONFIG] expected a string for '{}', got {}", name,
                               shown(*found));
  return found->text();
}

int port_of(std::string_view digits) {
  int port = 0;
  const char* const end = digits.data() + digits.size();
  const auto [rest, error] = std::from_chars(digits.data(), end, port);
  return error == std::errc() && rest == end && port <= 65535 ? port : 0;
}

// HOST, HOST:PORT, [IPv6] or [IPv6]:PORT, after the scheme, which TensorFlow lets the addresses
// after the first omit.
std::string parse_endpoint(std::string_view endpoint) {
  std::string_view address = endpoint;
  if (address.starts_with(kScheme)) address.remove_prefix(kScheme.size());
  const bool bracketed = address.starts_with('[');
  const std::size_t host_end = bracketed ? address.find(']') + 1 : address.find(':');
  const std::string_view host = address.substr(0, host_end);
  const std::string_view rest = address.substr(host.size());
  const int port = rest.empty() ? kDefaultPort : rest[0] == ':' ? port_of(rest.substr(1)) : 0;
  const bool valid = host.size() > (bracketed ? 2U : 0U) && port > 0 &&
                     std::none_of(host.begin(), host.end(), [](char c) {
                       return c == '/' || c == '@' || static_cast<unsigned char>(c) <= ' ';
                     });
  if (!valid)
    fail<InvalidArgumentError>("[TPUClusterResolver] expected grpc://HOST:PORT, got '{}'",
                               endpoint);
  return fmt::format("{}:{}", host, port);
}

}  // namespace

std::optional<TpuNode> parse_tpu_config(const std::string& text) {
  const Json root = parse_json_variable("TPU_CONFIG", text);
  if (root.object().empty()) return std::nullopt;
  TpuNode node = {.name = member(root, "tpu_node_name"),
                  .zone = member(root, "zone"),
                  .project = member(root, "project")};
  if (node.name.empty())
    fail<InvalidArgumentError>("[TPU_CONFIG] expected the name of a TPU in 'tpu_node_name', got {}",
                               shown(root));
  return node;
}

std::optional<TpuNode> tpu_node_of_environment() {
  for (const char* variable : {"KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME"})
    if (const auto name = env_string(variable)) return TpuNode{.name = *name};
  const auto text = env_string("TPU_CONFIG");
  return text ? parse_tpu_config(*text) : std::nullopt;
}

bool is_tpu_endpoints(const std::string& tpu) { return tpu.starts_with(kScheme); }

std::vector<std::string> parse_tpu_endpoints(const std::string& list) {
  std::vector<std::string> addresses;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    addresses.push_back(parse_endpoint(std::string_view(list).substr(begin, end - begin)));
    begin = end + 1;
  }
  return addresses;
}

}  // namespace tandem::distribute
