// What a DistributedDataParallel handle points to.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "comm/signature.h"
#include "group/process_group_impl.h"
#include "op/record.h"
#include "parallel/ddp_trace.h"
#include "runtime/trace_mark.h"
#include "sync/eager_sync.h"
#include "sync/tree_sum.h"
#include "tandem/ddp.h"

namespace tandem::parallel {

// A step is: the first gradient of a backward pass starts the ranks' announcements (how many
// examples each had); as soon as these are there, gradients are weighed and go into their buckets;
// at the end of the pass what has no gradient follows as zeros, and with the buckets goes which
// parameters each rank had a gradient for. So the collectives of a step are the same on every rank,
// whatever its graph.
class DistributedDataParallel::State {
 public:
  State(Model module, const DistributedDataParallelOptions& options);
  ~State();

  const Model& module() const { return module_; }
  Tensor forward(std::span<const Tensor> inputs, const CallOptions& options);
  bool set_sync(bool sync);
  void join(const std::function<void()>& inputs, const JoinOptions& options);
  void set_hook(CommHook hook);
  // ddp_parts.cc
  std::vector<Tensor> for_each_part(const data::Example& examples, const detail::PartStep& step);

 private:
  // Told by the leaves of the parameters.
  struct GradientReady {
    State* state;
    std::size_t index;
    void operator()(Leaf& leaf) const { state->gradient_ready(index, leaf); }
  };
  enum class Kind : std::int64_t { kForward, kBackward, kJoined };
  struct Announcement {
    Kind kind = Kind::kBackward;
    std::int64_t examples = 0;
  };

  Leaf& leaf(std::size_t index) const { return *leaves_[index]; }
  EagerSync& eager();
  void require_sound() const;
  void prepare_forward();
  void note_reachable(const Tensor& output);

  void announce(Kind kind);
  Announcement announced(int rank) const;
  std::vector<int> active_ranks() const;
  void require_kind(Kind kind) const;

  Tensor place_of(std::size_t index);
  void gradient_ready(std::size_t index, Leaf& leaf);
  void begin_pass();
  void weigh();
  void send(std::size_t index);
  void end_pass(bool completed);
  void finish_step();
  std::string unused() const;
  std::string unused_on(int rank) const;

  void shadow();
  void stop_early(const std::vector<int>& active) const;

  void require_parts() const;
  void average_parts(std::vector<TreeSum>& gradients);

  Model module_;
  DistributedDataParallelOptions options_;
  std::vector<Variable> parameters_, buffers_;
  std::vector<RefPtr<Leaf>> leaves_;
  Device* device_ = nullptr;
  std::shared_ptr<comm::ProcessGroupImpl> group_;
  std::shared_ptr<Communicator> communicator_;
  RankNames names_;  // the group's ranks in errors
  std::shared_ptr<TracedReductions> traced_;
  CommHook hook_;
  std::shared_ptr<CommunicatorTransport> transport_;  // this and the next: made by the first step
  std::unique_ptr<EagerSync> eager_;
  ByteExchange announcements_;

  bool sync_ = true;
  std::optional<TraceMark> local_;  // while not: functions are traced without reductions
  std::optional<JoinOptions> joining_;
  std::vector<int> last_active_;  // join(): the ranks that took the last step
  std::string failure_;           // why the object is of no use any more

  // Since the last step: gradients that came, and examples.
  std::vector<std::uint8_t> touched_;
  std::int64_t examples_ = 0;
  // With find_unused_parameters or strict: what the results of the forwards depend on.
  std::unordered_set<const Leaf*> reachable_;
  // Of the step under way.
  bool in_pass_ = false;
  bool weighed_ = false;
  double weight_ = 1.0;
  std::vector<std::size_t> waiting_;  // for the weight
};

}  // namespace tandem::parallel
