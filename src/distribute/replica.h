// What one replica of a step has: its device, its rank among the others, its random stream.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "comm/local/local_group.h"
#include "comm/reducer.h"
#include "distribute/traced_replica.h"
#include "runtime/generator.h"
#include "runtime/replica_context.h"
#include "runtime/variable_impl.h"
#include "tensor/gradient_views.h"

namespace tandem::distribute {

// The context of a replica whose fellows are threads of this process. Used by one thread at a time.
// What a function that is traced inside the replica's step calls becomes nodes of its graph.
class Replica final : public ReplicaContext {
 public:
  Replica(int id, std::shared_ptr<LocalGroup> group, Device& device, std::vector<Replica*>& all);
  ~Replica() override;

  // Starts a step: `count` examples from `offset` on, of `total` (-1: no batch).
  void begin(bool active, std::int64_t offset, std::int64_t total,
             const random::GeneratorState& draws);
  bool active() const { return active_; }
  Device& device() const { return device_; }
  Generator& generator() { return generator_; }

  std::vector<Tensor> all_reduce_sum(std::span<const Tensor> tensors) override;
  std::unique_ptr<GradientReduction> start_reduction(
      const std::vector<Variable>& variables) override;
  void run_for_idle_replicas(const std::function<void()>& update) override;
  Tensor broadcast(const Tensor& tensor) override;
  void add_to_key(std::string& key) const override;

 private:
  friend class Reduction;
  // The reducer of a list of variables: buckets are assigned once.
  struct Plan {
    std::vector<RefPtr<VariableImpl>> variables;
    std::unique_ptr<Reducer> reducer;
    std::optional<GradientViews> views;  // where the reducer packs
  };
  Plan& plan_for(const std::vector<Variable>& variables);
  // A copy on this replica's device that nothing else refers to; `tensor` itself if it is that.
  Tensor own(Tensor tensor) const;
  int first_active() const;

  std::shared_ptr<LocalGroup> group_;
  Device& device_;
  std::vector<Replica*>& all_;
  bool active_ = true;
  Generator generator_;
  std::shared_ptr<Communicator> communicator_;
  TracedRank traced_;
  std::vector<std::unique_ptr<Plan>> plans_;
};

}  // namespace tandem::distribute
