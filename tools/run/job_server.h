// The rendezvous server of a launcher's job: in this process, or where the user has one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "run/plan.h"
#include "tandem/rendezvous.h"

namespace tandem::tools {

// Outlives the ranks, so that none of them carries the job. Nothing may fork and then allocate
// while it lives: its thread may hold the allocator's lock.
class JobServer {
 public:
  // Raises the limit of open files for what the server and the launcher need. Throws as
  // RendezvousServer does, FailedPreconditionError for a server elsewhere without a token.
  JobServer(const RunOptions& options, const Plan& plan);

  // The job's secret.
  const std::string& token() const { return token_; }
  // HOST:PORT, as it is reached from a host of the plan.
  std::string address_for(const std::string& host) const;

 private:
  std::string token_;
  std::string elsewhere_;  // HOST:PORT
  std::optional<comm::RendezvousServer> server_;
};

}  // namespace tandem::tools
