// How the replicas of this process are joined: to each other, and to those of other processes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/local/local_group.h"
#include "graph/collective.h"

namespace tandem::distribute {

// Replicas are numbered over all processes, and "local" ones over this process's. What a step takes
// part in with `taking_part` is one flag a local replica.
class ReplicaGroup {
 public:
  virtual ~ReplicaGroup() = default;
  virtual int num_replicas() const = 0;
  virtual int first_replica() const = 0;  // the number of local replica 0
  // Whether a replica without examples takes its part in a step's collectives (it cannot tell the
  // other processes that it does not), or sits the step out.
  virtual bool all_take_part() const = 0;
  virtual std::shared_ptr<Communicator> communicator(int local) = 0;

  // A step starts. Throws what has ended the group. REQUIRES: no replica is in a collective.
  virtual void begin(const std::vector<bool>& taking_part) = 0;
  // A replica has ended its step.
  virtual void leave(int local) = 0;
  // A replica has failed: the others' waits throw AbortedError. Thread-safe.
  virtual void abort(int local, const std::string& reason) = 0;

  // The ranks of a program that runs the local replicas as lanes; -1: takes no part.
  struct Ranks {
    std::shared_ptr<CollectiveGroup> group;
    std::vector<int> of_replica;
  };
  virtual Ranks ranks_of_program(const std::vector<bool>& taking_part) = 0;
};

// Threads of this process, one for each of `devices`. They bring gradients together by `plan`.
std::unique_ptr<ReplicaGroup> make_thread_replicas(std::vector<Device*> devices,
                                                   const LocalPlan& plan);

}  // namespace tandem::distribute
