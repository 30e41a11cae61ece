// The tasks of a cluster, and connections between them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/rendezvous/socket.h"
#include "rpc/channel.h"
#include "rpc/server.h"
#include "tandem/cluster.h"

namespace tandem::ps {

struct TaskAddress {
  std::string type;
  int index = 0;
  Endpoint endpoint;
  std::string unix_path;  // in place of the endpoint; empty: none

  std::string name() const;       // "ps:1"
  std::string address() const;    // HOST:PORT or unix:/PATH
  std::string described() const;  // "ps:1 (HOST:PORT)"
};

// The tasks of this type. Throws InvalidArgumentError for an address of another form.
std::vector<TaskAddress> tasks_of(const distribute::ClusterSpec& cluster, const std::string& type);

// Makes channels and servers with the token and TLS of a job. Thread-safe.
class TaskConnections {
 public:
  // Throws FailedPreconditionError if other machines can reach the cluster and there is no token,
  // and NotFoundError or InvalidArgumentError for files of TLS that are missing or invalid.
  TaskConnections(const distribute::ClusterResolver& cluster,
                  const distribute::ClusterSecurity& security);

  // Throws UnavailableError without gRPC.
  std::shared_ptr<rpc::Channel> connect(const TaskAddress& task) const;
  // A server for this process's task at its address, or at another local one.
  std::unique_ptr<rpc::Server> make_server(const std::string& bind_address) const;

 private:
  std::string host_to_listen_at() const;

  TaskAddress own_;
  bool on_one_machine_ = true;
  std::string secret_;
  std::optional<rpc::TlsIdentity> identity_;
  std::optional<std::string> root_certificate_;  // empty: no TLS
  bool makes_certificate_ = false;               // with a root that follows from the secret
};

}  // namespace tandem::ps
