#include "ps/task_connections.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>

#include "comm/rendezvous/local_secret.h"
#include "comm/rendezvous/unix_path.h"
#include "comm/rendezvous/url.h"
#include "core/env.h"
#include "core/status.h"
#include "rpc/grpc/grpc_transport.h"

namespace tandem::ps {
namespace {

using distribute::ClusterResolver;
using distribute::ClusterSecurity;
using distribute::ClusterSpec;

// A name that is not known yet belongs to another machine.
bool is_here_alone(const std::string& host) {
  try {
    return is_loopback(host);
  } catch (const NotFoundError&) {
    return false;
  }
}

bool is_on_one_machine(const ClusterSpec& cluster) {
  return std::all_of(cluster.begin(), cluster.end(), [&](const auto& type) {
    const std::vector<TaskAddress> tasks = tasks_of(cluster, type.first);
    return std::all_of(tasks.begin(), tasks.end(), [](const TaskAddress& task) {
      return !task.unix_path.empty() || is_here_alone(task.endpoint.host);
    });
  });
}

std::string secret_of(const ClusterSecurity& security, bool on_one_machine) {
  const std::string token =
      security.token ? *security.token : env_string("TANDEM_JOB_TOKEN").value_or("");
  if (!token.empty()) return token;
  if (!on_one_machine)
    fail<FailedPreconditionError>(
        "[cluster] other machines can reach the tasks: set the environment variable "
        "TANDEM_JOB_TOKEN to the same secret for all tasks");
  return local_secret();
}

std::string read_pem(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (!file) fail<NotFoundError>("[cluster] cannot read '{}'", path);
  return text;
}

bool wants_tls(const ClusterSecurity& security) {
  const bool files = !security.certificate_file.empty() || !security.root_certificate_file.empty();
  if (security.certificate_file.empty() != security.key_file.empty())
    fail<InvalidArgumentError>(
        "[cluster] expected both certificate_file and key_file, got '{}' and '{}'",
        security.certificate_file, security.key_file);
  if (security.tls == false && files)
    fail<InvalidArgumentError>("[cluster] got certificates, but tls is false");
  return files || security.tls.value_or(env_bool("TANDEM_TLS").value_or(true));
}

}  // namespace

std::string TaskAddress::name() const { return fmt::format("{}:{}", type, index); }

std::string TaskAddress::address() const {
  return unix_path.empty() ? to_string(endpoint) : std::string(kUnixPrefix) + unix_path;
}

std::string TaskAddress::described() const { return fmt::format("{} ({})", name(), address()); }

std::vector<TaskAddress> tasks_of(const ClusterSpec& cluster, const std::string& type) {
  std::vector<TaskAddress> tasks;
  const auto found = cluster.find(type);
  if (found == cluster.end()) return tasks;
  for (const std::string& address : found->second) {
    TaskAddress task;
    task.type = type;
    task.index = static_cast<int>(tasks.size());
    task.unix_path = unix_path_of(address);
    try {
      if (task.unix_path.empty()) task.endpoint = parse_endpoint(address);
    } catch (const InvalidArgumentError&) {
      fail<InvalidArgumentError>(
          "[cluster] expected HOST:PORT or unix:/PATH as the address of {}, got '{}'", task.name(),
          address);
    }
    tasks.push_back(std::move(task));
  }
  return tasks;
}

TaskConnections::TaskConnections(const ClusterResolver& cluster, const ClusterSecurity& security)
    : on_one_machine_(is_on_one_machine(cluster.cluster_spec())),
      secret_(secret_of(security, on_one_machine_)) {
  const auto tasks = tasks_of(cluster.cluster_spec(), cluster.task_type());
  if (!tasks.empty()) own_ = tasks.at(static_cast<std::size_t>(cluster.task_id()));
  if (!wants_tls(security)) return;
  if (!security.certificate_file.empty())
    identity_ = {read_pem(security.certificate_file), read_pem(security.key_file)};
  if (!security.root_certificate_file.empty()) {
    root_certificate_ = read_pem(security.root_certificate_file);
  } else if (identity_) {
    root_certificate_ = identity_->certificate;
  } else {
    root_certificate_ = rpc::job_root_certificate(secret_);
    makes_certificate_ = true;
  }
}

std::shared_ptr<rpc::Channel> TaskConnections::connect(const TaskAddress& task) const {
  rpc::ChannelOptions options{.host = task.endpoint.host,
                              .port = task.endpoint.port,
                              .unix_path = task.unix_path,
                              .task = task.name(),
                              .caller = own_.name(),
                              .token = secret_};
  if (task.unix_path.empty()) options.root_certificate = root_certificate_;
  return rpc::make_grpc_channel(std::move(options));
}

std::string TaskConnections::host_to_listen_at() const {
  const std::string& host = own_.endpoint.host;
  // For instance /etc/hosts may map the machine's own name to 127.0.1.1.
  const bool unreachable = !on_one_machine_ && !is_numeric(host) && is_here_alone(host);
  return unreachable ? "0.0.0.0" : host;
}

std::unique_ptr<rpc::Server> TaskConnections::make_server(const std::string& bind_address) const {
  if (!own_.unix_path.empty())
    return rpc::make_grpc_server({.unix_path = own_.unix_path, .token = secret_});
  if (root_certificate_ && !identity_ && !makes_certificate_)
    fail<InvalidArgumentError>(
        "[cluster] {} serves, and needs a certificate_file and a key_file beside the "
        "root_certificate_file",
        own_.name());
  return rpc::make_grpc_server(
      {.host = bind_address.empty() ? host_to_listen_at() : bind_address,
       .port = own_.endpoint.port,
       .token = secret_,
       .tls = makes_certificate_
                  ? rpc::make_job_certificate(secret_, std::array{own_.endpoint.host})
                  : identity_});
}

}  // namespace tandem::ps
