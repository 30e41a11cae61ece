// How the replicas of this process communicate with each other and with those of other processes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/local/local_group.h"
#include "graph/collective.h"

namespace tandem::distribute {

// Gives each local replica its communicator, and begins, ends and aborts the steps of all of them.
// "Local" replicas are those of this process. `participating` has one flag per local replica.
class ReplicaConnections {
 public:
  virtual ~ReplicaConnections() = default;
  virtual int num_replicas() const = 0;
  virtual int first_replica() const = 0;  // global number of local replica 0
  // Whether a replica without examples runs the step as a padding replica, because the other
  // processes cannot know that it has none. Otherwise it is inactive.
  virtual bool requires_all_replicas() const = 0;
  virtual std::shared_ptr<Communicator> communicator(int local) = 0;

  // Begins a step. Throws the error that ended the group. REQUIRES: no replica is in a collective.
  virtual void begin_step(const std::vector<bool>& participating) = 0;
  // Tells the others that a replica has ended its step.
  virtual void end_step(int local) = 0;
  // Fails the group after a replica's error: the others' waits throw AbortedError. Thread-safe.
  virtual void abort(int local, const std::string& reason) = 0;

  // The ranks of the local replicas in a traced program; -1 for one that takes no part.
  struct ProgramRanks {
    std::shared_ptr<CollectiveGroup> group;
    std::vector<int> of_replica;
  };
  virtual ProgramRanks program_ranks(const std::vector<bool>& participating) = 0;
};

// Connects the threads of this process, one per device in `devices`. `plan` says how they reduce
// gradients.
std::unique_ptr<ReplicaConnections> connect_threads(std::vector<DeviceImpl*> devices,
                                                    const LocalPlan& plan);

}  // namespace tandem::distribute
