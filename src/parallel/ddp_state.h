// The implementation of DistributedDataParallel.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "comm/signature.h"
#include "group/process_group_impl.h"
#include "op/record.h"
#include "parallel/ddp_trace.h"
#include "parallel/parameter_check.h"
#include "runtime/trace.h"
#include "sync/eager_sync.h"
#include "sync/tree_sum.h"
#include "tandem/ddp.h"

namespace tandem::parallel {

inline constexpr const char* kDdp = "DistributedDataParallel";  // in messages

// How gradients are reduced, where the options of DistributedDataParallel leave it open.
struct GradientReduction {
  BucketSizes sizes{};
  bool delayed = false;  // launches all buckets after the backward pass
  // Reduces the buckets if not null. Unlike a hook of the user, it gets gradients without weights,
  // and returns the values of grad().
  CommHook hook{};
};

// A step: the first gradient of a backward pass starts an exchange of announcements (how many
// examples each rank had). Once these have arrived, gradients are weighted and copied into their
// buckets. At the end of the pass, parameters without a gradient follow as zeros, and the ranks
// exchange which parameters had one. So all ranks launch the same collectives in a step, whatever
// their graphs.
class DistributedDataParallel::State {
 public:
  State(Model module, const DistributedDataParallelOptions& options);
  State(Model module, const DistributedDataParallelOptions& options, GradientReduction reduction);
  ~State();

  const Model& module() const { return module_; }
  Tensor forward(std::span<const Tensor> inputs, const CallOptions& options);
  bool set_sync(bool sync);
  void join(const std::function<void()>& inputs, const JoinOptions& options);
  void set_hook(CommHook hook);
  // In ddp_parts.cc. `around` is called with a function that runs the steps, which it calls. Where
  // one rank's step throws, it throws on all of them: the average would wait for that rank.
  using Around = std::function<void(const std::function<void()>& steps)>;
  std::vector<Tensor> for_each_part(
      const data::Example& examples, const tandem::detail::PartStep& step,
      const Around& around = [](const std::function<void()>& steps) { steps(); });

 private:
  // Called by the leaf of a parameter when its gradient is complete.
  struct GradientReady {
    State* state;
    std::size_t index;
    void operator()(Leaf& leaf) const { state->gradient_ready(index, leaf); }
  };
  enum class Kind : std::int64_t { kForward, kBackward, kJoined };
  struct StepAnnouncement {
    Kind kind = Kind::kBackward;
    std::int64_t examples = 0;
  };

  Leaf& leaf(std::size_t index) const { return *leaves_[index]; }
  bool syncs() const {
    note_setting(sync_);
    return *sync_;
  }
  EagerSync& eager();
  void require_usable() const;
  void prepare_forward();

  void announce(Kind kind);
  StepAnnouncement announced(int rank) const;
  std::vector<int> active_ranks() const;
  void require_kind(Kind kind) const;

  Tensor gradient_buffer(std::size_t index);
  void gradient_ready(std::size_t index, Leaf& leaf);
  void compare_parameters();
  void begin_pass();
  void weight_gradients();
  void send(std::size_t index);
  void end_pass(bool completed);
  void finish_step();
  std::string unused_parameters() const;
  std::string unused_parameters_on(int rank) const;

  void shadow_steps();
  void check_early_termination(const std::vector<int>& active) const;

  void require_parts() const;
  void average_parts(std::vector<TreeSum>& gradients);

  Model module_;
  DistributedDataParallelOptions options_;
  GradientReduction reduction_;
  std::vector<Variable> parameters_, buffers_;
  std::vector<Variable> frozen_;  // when this was made
  std::vector<RefPtr<Leaf>> leaves_;
  DeviceImpl* device_ = nullptr;
  std::shared_ptr<comm::ProcessGroupImpl> group_;
  std::shared_ptr<Communicator> communicator_;
  RankNames names_;  // the group's ranks in messages
  std::shared_ptr<ParameterCheck> check_;
  std::shared_ptr<TracedReductions> traced_;
  CommHook hook_;
  std::shared_ptr<CommunicatorTransport> transport_;  // it and `eager_`: made by the first step
  std::unique_ptr<EagerSync> eager_;
  ByteExchange announcements_;

  // False under no_sync(): functions that are traced then do not reduce.
  std::shared_ptr<std::atomic<bool>> sync_ = std::make_shared<std::atomic<bool>>(true);
  std::optional<JoinOptions> joining_;
  std::vector<int> last_active_;  // in join(): the ranks that took the last step
  std::string failure_;           // if not empty: the error after which steps are refused

  // Since the last step: which parameters received a gradient, and the number of examples.
  std::vector<std::uint8_t> touched_;
  std::int64_t examples_ = 0;
  // With find_unused_parameters or strict: the leaves that the outputs of forward depend on.
  std::unordered_set<const Leaf*> reachable_;
  // State of the present backward pass.
  bool in_pass_ = false;
  bool weighted_ = false;
  double weight_ = 1.0;
  std::vector<std::size_t> unweighted_;  // gradients that wait for the weight
};

}  // namespace tandem::parallel
