#include "graph/schedule_collectives.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "core/status.h"
#include "graph/collective.h"

namespace tandem {
namespace {

class Scheduler {
 public:
  explicit Scheduler(Block& block) : block_(block), count_(block.operations.size()) {}

  void run() {
    find_members();
    if (starts_.empty()) return;
    for (const auto& [group, ranks] : members_) check(*group, ranks);
    for (std::size_t i = 0; i < count_; ++i) index_[block_.operations[i].get()] = i;
    find_updates();
    after_.resize(count_ + starts_.size());
    before_.resize(after_.size(), 0);
    priority_.resize(after_.size());
    for (std::size_t i = 0; i < count_; ++i) priority_[i] = 2 * i + 1;
    for (std::size_t start : starts_) priority_[start] = earliest(*block_.operations[start]);
    order_by_data();
    order_control_flow();
    order_collectives();
    apply();
  }

 private:
  using Ranks = std::map<int, std::vector<std::size_t>>;  // the collectives per rank, in order

  // The priority of the last input: the operation can run right after it.
  std::size_t earliest(const BlockOperation& operation) const {
    std::size_t priority = 0;
    for (const Value* input : operation.inputs)
      if (const Value& root = input->root(); root.kind == Value::Kind::kComputed)
        priority = std::max(priority, priority_[index_.at(root.producer)]);
    return priority;
  }

  void find_members() {
    for (std::size_t i = 0; i < count_; ++i) {
      const BlockOperation& operation = *block_.operations[i];
      if (!operation.member) continue;
      members_[operation.member->group.get()][operation.member->rank].push_back(i);
      wait_of_[&operation] = count_ + starts_.size();
      starts_.push_back(i);
    }
  }

  // Marks updates of variables and the operations that only they use. Nothing else in this run
  // depends on them, so they do not force a wait for a collective: updates with ready gradients run
  // first.
  void find_updates() {
    updates_.resize(count_);
    std::unordered_set<const Value*> wanted;
    for (const Value* fetch : block_.fetches) wanted.insert(&fetch->root());
    for (std::size_t i = count_; i-- > 0;) {
      const BlockOperation& operation = *block_.operations[i];
      updates_[i] = !operation.runs_alone() && !operation.member &&
                    std::none_of(operation.outputs.begin(), operation.outputs.end(),
                                 [&](const Value* output) { return wanted.contains(output); });
      if (updates_[i]) continue;
      for (const Value* input : operation.inputs) wanted.insert(&input->root());
    }
  }

  static bool same(const BlockOperation& a, const BlockOperation& b) {
    return a.does_as(b) &&
           std::equal(a.outputs.begin(), a.outputs.end(), b.outputs.begin(), b.outputs.end(),
                      [](const Value* x, const Value* y) {
                        return x->spec.dtype == y->spec.dtype &&
                               x->spec.shape.num_elements() == y->spec.shape.num_elements();
                      });
  }

  void check(const CollectiveGroup& group, const Ranks& ranks) const {
    if (group.within_program() && static_cast<int>(ranks.size()) != group.size())
      fail<InvalidArgumentError>(
          "[Collective] {} of {} ranks call collectives; every replica must call the same ones in "
          "the same order",
          ranks.size(), group.size());
    const auto& [first, expected] = *ranks.begin();
    for (const auto& [rank, mine] : ranks) {
      if (mine.size() != expected.size())
        fail<InvalidArgumentError>(
            "[Collective] rank {} calls {} collectives, rank {} calls {}; every replica must call "
            "the same ones in the same order",
            first, expected.size(), rank, mine.size());
      for (std::size_t i = 0; i < mine.size(); ++i)
        if (!same(*block_.operations[expected[i]], *block_.operations[mine[i]]))
          fail<InvalidArgumentError>(
              "[Collective] mismatch at collective {}: '{}' of rank {} and '{}' of rank {} differ "
              "in "
              "sizes, dtypes or operation",
              i, block_.operations[expected[i]]->name, first, block_.operations[mine[i]]->name,
              rank);
    }
  }

  void edge(std::size_t from, std::size_t to) {
    if (from == to) return;
    after_[from].push_back(to);
    ++before_[to];
  }

  // Reads come after the writes that they see, and before later writes.
  void order_by_data() {
    struct Access {
      std::size_t writer = kNone;
      std::vector<std::size_t> readers;
    };
    std::unordered_map<const Value*, Access> accesses;
    for (std::size_t i = 0; i < count_; ++i) {
      const BlockOperation& operation = *block_.operations[i];
      for (std::size_t k = 0; k < operation.inputs.size(); ++k) {
        const Value& root = operation.inputs[k]->root();
        Access& access = accesses[&root];
        if (root.kind == Value::Kind::kComputed) read(*root.producer, i);
        if (access.writer != kNone) edge(access.writer, i);
        access.readers.push_back(i);
      }
      for (std::size_t k = 0; k < operation.inputs.size(); ++k) {
        if (!operation.mutates(k)) continue;
        Access& access = accesses[&operation.inputs[k]->root()];
        for (std::size_t reader : access.readers) edge(reader, i);
        access = {i, {}};
      }
    }
  }

  // Host-side effects of a body come before the operations that depend on them: counting the steps
  // of an optimizer and numbering random operations.
  void order_control_flow() {
    for (std::size_t i = 0; i < count_; ++i) {
      const BlockOperation& control = *block_.operations[i];
      if (!control.control) continue;
      for (std::size_t k = 0; k < count_; ++k) {
        const BlockOperation& other = *block_.operations[k];
        if (k > i && other.random_before && other.random_before == control.control->flow->random)
          edge(i, k);
        else if (k != i && write_on_one_device(control, other))
          edge(std::min(i, k), std::max(i, k));
      }
    }
  }
  static bool write_on_one_device(const BlockOperation& a, const BlockOperation& b) {
    for (std::size_t i = 0; i < a.inputs.size(); ++i)
      for (std::size_t k = 0; a.mutates(i) && k < b.inputs.size(); ++k)
        if (b.mutates(k) && a.inputs[i]->device == b.inputs[k]->device) return true;
    return false;
  }

  void read(const BlockOperation& producer, std::size_t reader) {
    const auto wait = wait_of_.find(&producer);
    edge(wait == wait_of_.end() ? index_.at(&producer) : wait->second, reader);
    if (wait != wait_of_.end() && !updates_[reader]) {
      std::size_t& priority = priority_[wait->second];
      priority = priority == 0 ? 2 * reader : std::min(priority, 2 * reader);
    }
  }

  void order_collectives() {
    for (std::size_t i = 0; i < starts_.size(); ++i)
      if (std::size_t& priority = priority_[count_ + i]; priority == 0) priority = 2 * count_;
    for (const auto& [group, ranks] : members_) {
      for (const auto& [rank, mine] : ranks)
        for (std::size_t i = 0; i < mine.size(); ++i) {
          if (i + 1 < mine.size()) edge(mine[i], mine[i + 1]);
          for (const auto& [other, theirs] : ranks) {
            edge(theirs[i], wait_at(mine[i]));
            together_[wait_at(mine[i])].push_back(wait_at(theirs[i]));
          }
        }
    }
    // The programs of other processes are not known here, and while they wait they make no progress
    // on other groups. So these collectives are launched and awaited in program order, across
    // groups.
    std::map<const DeviceImpl*, std::size_t> previous;
    for (std::size_t start : starts_) {
      const BlockOperation& operation = *block_.operations[start];
      if (operation.member->group->within_program()) continue;
      if (const auto before = previous.find(operation.device); before != previous.end()) {
        edge(before->second, start);
        edge(wait_at(before->second), wait_at(start));
      }
      previous[operation.device] = start;
    }
  }
  std::size_t wait_at(std::size_t start) const {
    return wait_of_.at(block_.operations[start].get());
  }

  std::unique_ptr<BlockOperation> make_wait(const BlockOperation& start) const {
    auto wait = std::make_unique<BlockOperation>();
    wait->op = &kCollectiveWait;
    wait->device = start.device;
    wait->inputs = start.outputs;
    wait->name = start.name + "/wait";
    return wait;
  }

  void apply() {
    std::vector<std::unique_ptr<BlockOperation>> unordered = std::move(block_.operations);
    for (std::size_t start : starts_) unordered.push_back(make_wait(*unordered[start]));
    for (const auto& operation : unordered)
      if (operation->copied_from)
        if (const auto wait = wait_of_.find(operation->copied_from); wait != wait_of_.end())
          operation->copied_from = unordered[wait->second].get();

    const std::vector<std::size_t> order = gather_waits(sort(), unordered);
    block_.operations.clear();
    for (std::size_t now : order) block_.operations.push_back(std::move(unordered[now]));
  }

  std::vector<std::size_t> sort() {
    using Ready = std::pair<std::size_t, std::size_t>;  // priority, index
    std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready;
    for (std::size_t i = 0; i < before_.size(); ++i)
      if (before_[i] == 0) ready.emplace(priority_[i], i);
    std::vector<std::size_t> order;
    while (!ready.empty()) {
      const std::size_t now = ready.top().second;
      ready.pop();
      order.push_back(now);
      for (std::size_t next : after_[now])
        if (--before_[next] == 0) ready.emplace(priority_[next], next);
    }
    if (order.size() != before_.size())
      throw InvalidArgumentError(
          "[Collective] the collectives of several replicas wait for each other: one replica uses "
          "what another computed from a later collective's result");
    return order;
  }

  // A waiting rank needs the contributions of the others. Their lanes make them only until the next
  // control flow. So all ranks wait for a collective before the same control flow.
  std::vector<std::size_t> gather_waits(
      const std::vector<std::size_t>& order,
      const std::vector<std::unique_ptr<BlockOperation>>& operations) const {
    std::vector<std::size_t> gathered, pending;  // pending: waits, due before the next control flow
    std::vector<bool> placed(order.size(), false);
    const auto place = [&](std::size_t i) {
      if (!placed[i]) gathered.push_back(i);
      placed[i] = true;
    };
    const auto place_pending = [&] {
      for (std::size_t wait : pending) place(wait);
      pending.clear();
    };
    for (std::size_t i : order) {
      if (operations[i]->runs_alone()) place_pending();
      place(i);
      if (const auto waits = together_.find(i); waits != together_.end())
        pending.insert(pending.end(), waits->second.begin(), waits->second.end());
    }
    place_pending();
    return gathered;
  }

  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

  Block& block_;
  std::size_t count_;  // of operations; waits are numbered after them
  std::vector<std::size_t> starts_;
  std::unordered_map<const BlockOperation*, std::size_t> wait_of_;
  std::unordered_map<const BlockOperation*, std::size_t> index_;
  std::map<const CollectiveGroup*, Ranks> members_;
  std::unordered_map<std::size_t, std::vector<std::size_t>>
      together_;  // the waits of all ranks, by any of them
  std::vector<std::vector<std::size_t>> after_;
  std::vector<int> before_;  // the number of unfinished predecessors
  std::vector<std::size_t> priority_;
  std::vector<bool> updates_;
};

}  // namespace

void schedule_collectives(Block& block) { Scheduler(block).run(); }

}  // namespace tandem
