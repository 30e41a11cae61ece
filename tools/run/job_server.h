// The rendezvous server of a launcher's job: one in this process, or one that the user runs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "run/plan.h"
#include "tandem/rendezvous.h"

namespace tandem::tools {

// Outlives the ranks, so that the job does not depend on any of them. No fork may allocate memory
// while it lives, because its thread may hold the allocator's lock.
class JobServer {
 public:
  // Raises the limit of open files as the server and the launcher need. Throws as
  // RendezvousServer does, and FailedPreconditionError if a user's server is given without a token.
  JobServer(const RunOptions& options, const JobPlan& plan);

  // The job's secret.
  const std::string& token() const { return token_; }
  // HOST:PORT by which a host of the plan reaches the server.
  std::string address_for(const std::string& host) const;
  // The process of a rank has ended.
  void rank_ended(int rank);

 private:
  std::string token_;
  std::string external_;  // HOST:PORT of the user's server; empty if there is none
  std::optional<comm::RendezvousServer> server_;
};

}  // namespace tandem::tools
