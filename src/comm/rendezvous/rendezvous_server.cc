#include "tandem/rendezvous.h"

#include "comm/rendezvous/descriptors.h"
#include "comm/rendezvous/local_secret.h"
#include "comm/rendezvous/tcp_server.h"
#include "comm/rendezvous/wire.h"
#include "core/env.h"
#include "core/status.h"

namespace tandem::comm {

RendezvousServer::RendezvousServer(const RendezvousServerOptions& options) {
  if (options.ranks < 1)
    fail<InvalidArgumentError>("[rendezvous] expected a job of at least 1 rank, got {}",
                               options.ranks);
  const std::string token =
      options.token ? *options.token : env_string("TANDEM_JOB_TOKEN").value_or("");
  require_token(options.address, token, kOutsideServer);
  require_descriptors(options.other_descriptors + kDescriptorsPerRank * options.ranks,
                      fmt::format("the host of a job of {} ranks", options.ranks));
  server_ =
      std::make_unique<TcpServer>(TcpServerOptions{.host = options.address,
                                                   .port = options.port,
                                                   .secret = job_secret(options.address, token),
                                                   .size = options.ranks,
                                                   .outside = true});
}

RendezvousServer::~RendezvousServer() = default;

std::uint16_t RendezvousServer::port() const { return server_->port(); }

void RendezvousServer::rank_ended(int rank) { server_->rank_ended(rank); }

void RendezvousServer::wait(std::chrono::milliseconds join_limit) {
  server_->wait_for_first_job(TimeLimit(join_limit));
}

}  // namespace tandem::comm
