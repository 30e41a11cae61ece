#include "ps/worker.h"

#include <algorithm>
#include <optional>

#include "core/random_number.h"
#include "core/status.h"
#include "device/device_manager.h"
#include "ps/row_gradient.h"
#include "ps/row_reads.h"
#include "ps/rows.h"
#include "runtime/generator.h"

namespace tandem::ps {
namespace {

// A variable as it was read before a run.
class ReadVariable final : public Resource {
 public:
  ReadVariable(VariableId id, const TensorType& spec)
      : name_(fmt::format("variable {}", id)), spec_(spec) {}
  const void* identity() const override { return this; }
  const std::string& name() const override { return name_; }
  DeviceImpl& device() const override { return DeviceManager::get().host(); }
  const TensorType& spec() const override { return spec_; }
  Tensor value() override { return value_; }
  Tensor writable() override {
    fail<InternalError>("[Worker] the worker's part of a function writes {}", name_);
  }
  // A variable of one shard is not copied.
  void set(const Shard& shard, Tensor value) {
    const Shape shape = shape_of(shard, spec_.shape);
    if (value.dtype() != spec_.dtype || value.shape() != shape)
      fail<InvalidArgumentError>("[Worker] expected {} of shape {} and dtype {}, got {} and {}",
                                 name_, shape.to_string(), name_of(spec_.dtype),
                                 value.shape().to_string(), name_of(value.dtype()));
    if (shard.rows == rows_of(spec_.shape)) {
      value_ = std::move(value);
      return;
    }
    if (!value_.defined()) value_ = make_tensor(device(), spec_.shape, spec_.dtype);
    copy_into(view_rows(value_, shard.first_row, shard.rows), value);
  }
  void clear() { value_ = {}; }

 private:
  std::string name_;
  TensorType spec_;
  Tensor value_;
};

}  // namespace

class Worker::Function {
 public:
  using Servers = std::vector<std::shared_ptr<ServerClient>>;

  Function(const proto::Function& message, const Servers& servers)
      : message_(message),
        reads_(servers.size()),
        row_reads_(message, servers.size()),
        updates_(servers.size()) {
    for (const proto::RowGradient& gradient : message.row_gradients())
      row_gradients_.push_back(std::make_unique<RowGradient>(gradient, message.worker()));
    for (int i = 0; i < message.updates_size(); ++i)
      updates_[server_of_update(message.updates(i))].push_back(i);
    const auto resource_of = [&](std::span<const Shard> shards, const TensorType& spec) {
      const RefPtr<ReadVariable> variable = make_ref<ReadVariable>(shards.front().id, spec);
      for (const Shard& shard : shards) {
        Reads& reads = reads_[checked_server(shard.id)];
        reads.ids.push_back(shard.id);
        reads.targets.push_back({variable, shard});
      }
      return RefPtr<Resource>(variable);
    };
    part_.emplace(message.worker(), resource_of);
    if (part_->num_inputs() < message.arguments() + row_reads_.num_feeds() ||
        static_cast<std::uint32_t>(message.worker().function().fetches_size()) < message.results())
      fail<InvalidArgumentError>("[{}] more arguments or results than the graph has", name());
    message_.mutable_worker()->mutable_function()->clear_graph();
    message_.clear_indices();
    message_.clear_row_gradients();
  }

  const std::string& name() const { return message_.worker().name(); }
  const proto::Function& message() const { return message_; }

  void run(const FunctionRun& run, const std::vector<Tensor>& arguments, const Servers& servers,
           const Cancelled& cancelled, RunResult& result) {
    const auto check_wanted = [&] {
      if (cancelled()) fail<AbortedError>("[{}] the call was cancelled", name());
    };
    check_wanted();
    Values values = read(servers, arguments);
    std::vector<UpdateCalls::Update> updates = compute(run, values, result.tensors);
    check_wanted();
    result.staleness.updates = updates.size();
    send(run, std::move(updates), servers, cancelled, result);
    result.tensors.resize(message_.results());
  }

 private:
  struct Reads {
    std::vector<VariableId> ids;
    struct Target {
      RefPtr<ReadVariable> variable;
      Shard shard;
    };
    std::vector<Target> targets;  // of the values
  };
  using Versions = std::map<VariableId, std::uint64_t>;
  // The results of read().
  struct Values {
    std::vector<Tensor> inputs;                  // of the worker's part
    std::vector<std::vector<Tensor>> variables;  // by server, as Reads::targets
    Versions versions;                           // of the shards
  };

  std::size_t checked_server(VariableId id) const {
    const std::size_t server = server_of(id);
    if (server >= reads_.size())
      fail<InvalidArgumentError>("[Worker] a variable of server {}; there are {}", server,
                                 reads_.size());
    return server;
  }

  std::size_t server_of_update(const proto::Update& update) const {
    std::optional<std::size_t> server;
    for (const proto::Part::Variable& variable : update.part().variables())
      for (const proto::Shard& shard : variable.shards()) {
        const std::size_t of_variable = checked_server(shard.id());
        if (server && *server != of_variable)
          fail<InvalidArgumentError>("[{}] update '{}' writes variables of servers {} and {}",
                                     name(), update.part().name(), *server, of_variable);
        server = of_variable;
      }
    for (const proto::Update::Input& input : update.inputs())
      if (input.has_row_gradient()
              ? input.row_gradient() >= row_gradients_.size()
              : input.fetch() >=
                    static_cast<std::uint32_t>(message_.worker().function().fetches_size()))
        fail<InvalidArgumentError>("[{}] update '{}' uses a result that does not exist", name(),
                                   update.part().name());
    if (!server)
      fail<InvalidArgumentError>("[{}] update '{}' writes no variable", name(),
                                 update.part().name());
    return *server;
  }

  // The inputs are the arguments, and the rows that are looked up.
  Values read(const Servers& servers, const std::vector<Tensor>& arguments) {
    std::vector<std::pair<std::size_t, Pending<std::vector<ParameterStore::Read>>>> pending;
    for (std::size_t i = 0; i < servers.size(); ++i)
      if (!reads_[i].ids.empty()) pending.emplace_back(i, servers[i]->read(reads_[i].ids));
    Values values{.inputs = arguments, .variables = {reads_.size(), std::vector<Tensor>()}};
    const std::vector<Tensor> rows = row_reads_.read(arguments, servers, values.versions);
    values.inputs.insert(values.inputs.end(), rows.begin(), rows.end());
    for (auto& [server, call] : pending)
      for (ParameterStore::Read& read : call.wait()) {
        std::vector<Tensor>& of_server = values.variables[server];
        values.versions[reads_[server].ids[of_server.size()]] = read.version;
        of_server.push_back(std::move(read.value));
      }
    return values;
  }

  // Runs the worker's part, and releases the values.
  std::vector<UpdateCalls::Update> compute(const FunctionRun& run, Values& values,
                                           std::vector<Tensor>& outputs) {
    const std::lock_guard lock(computing_);
    for (std::size_t server = 0; server < reads_.size(); ++server)
      for (std::size_t i = 0; i < values.variables[server].size(); ++i) {
        const Reads::Target& target = reads_[server].targets[i];
        target.variable->set(target.shard, std::move(values.variables[server][i]));
      }
    {
      Generator generator(run.random);
      const Scoped scope(context.generator, &generator);
      part_->run(values.inputs, run.worker_attributes, outputs);
    }
    for (Reads& reads : reads_)
      for (const Reads::Target& target : reads.targets) target.variable->clear();
    return updates_of(run, outputs, values.versions);
  }

  // Has the updates applied, or kept for the coordinator's decision.
  void send(const FunctionRun& run, std::vector<UpdateCalls::Update> all, const Servers& servers,
            const Cancelled& cancelled, RunResult& result) const {
    std::vector<std::pair<std::size_t, Pending<ServerClient::AllApplied>>> applying;
    std::vector<Pending<void>> staging;
    for (std::size_t i = 0; i < servers.size(); ++i) {
      if (updates_[i].empty()) continue;
      UpdateCalls::Updates updates{.function = run.function,
                                   .closure = run.closure,
                                   .finished = run.finished,
                                   .updates = {}};
      ServerClient::Parts parts;
      for (const int index : updates_[i]) {
        updates.updates.push_back(std::move(all[static_cast<std::size_t>(index)]));
        parts.emplace_back(static_cast<std::uint32_t>(index), &message_.updates(index).part());
      }
      if (run.attempt)
        staging.push_back(servers[i]->stage(updates, *run.attempt, cancelled, std::move(parts)));
      else
        applying.emplace_back(i, servers[i]->apply(updates, cancelled, std::move(parts)));
    }
    for (auto& call : staging) call.wait();
    for (auto& [server, call] : applying) {
      ServerClient::AllApplied made = call.wait();
      AppliedUpdates& of_server = result.applied.emplace_back();
      of_server.server = server;
      of_server.life = std::move(made.life);
      for (const ParameterStore::Applied& applied : made.updates) {
        of_server.numbers.push_back(applied.number);
        if (!applied.repeated)
          result.staleness.add({.measured = 1, .sum = applied.staleness, .max = applied.staleness});
      }
    }
  }

  std::vector<UpdateCalls::Update> updates_of(const FunctionRun& run,
                                              const std::vector<Tensor>& outputs,
                                              const Versions& versions) const {
    std::vector<RowGradient::Rows> row_gradients;
    for (const auto& gradient : row_gradients_) row_gradients.push_back(gradient->rows(outputs));
    std::vector<UpdateCalls::Update> result;
    auto attributes = run.update_attributes.begin();
    for (const proto::Update& message : message_.updates()) {
      UpdateCalls::Update& update = result.emplace_back();
      update.index = static_cast<std::uint32_t>(result.size() - 1);
      const auto version = versions.find(message.part().variables(0).shards(0).id());
      if (version != versions.end()) update.read_version = version->second;
      for (const proto::Update::Input& input : message.inputs())
        if (input.has_row_gradient())
          add_rows(input, row_gradients[input.row_gradient()], update.inputs);
        else
          update.inputs.push_back(input_of(input, outputs[input.fetch()]));
      for (int i = 0; i < message.part().attributes_size(); ++i) {
        if (attributes == run.update_attributes.end())
          fail<InvalidArgumentError>("[{}] the attributes of an update are missing", name());
        update.attributes.push_back(*attributes++);
      }
    }
    return result;
  }

  // The rows of a result of the worker's part that an update needs.
  Tensor input_of(const proto::Update::Input& input, const Tensor& result) const {
    if (!input.has_rows()) return result;
    const std::int64_t first = input.rows().first(), count = input.rows().count();
    const std::int64_t rows = result.rank() > 0 ? result.size_word(0) : 0;
    if (first < 0 || count < 0 || first > rows || count > rows - first)
      fail<InvalidArgumentError>("[{}] an update uses {} rows from {} of a result of {} rows",
                                 name(), count, first, rows);
    return view_rows(result, first, count);
  }

  // The row numbers and the rows that are in the shard of an update.
  void add_rows(const proto::Update::Input& input, const RowGradient::Rows& gradient,
                std::vector<Tensor>& to) const {
    Shard shard{.rows = kMaxElements};
    if (input.has_rows()) shard = {.first_row = input.rows().first(), .rows = input.rows().count()};
    if (shard.first_row < 0 || shard.first_row > kMaxElements || shard.rows < 0 ||
        shard.rows > kMaxElements)
      fail<InvalidArgumentError>("[{}] an update uses {} rows from {}", name(), shard.rows,
                                 shard.first_row);
    RowsOfShard rows = rows_in(shard, gradient.numbers);
    const std::int64_t count = rows.numbers.size();
    to.push_back(std::move(rows.numbers));
    to.push_back(view_rows(gradient.values, rows.first, count));
  }

  proto::Function message_;
  std::vector<Reads> reads_;  // by server
  RowReads row_reads_;
  std::vector<std::vector<int>> updates_;  // by server: indices
  std::mutex computing_;                   // held while the following run
  std::optional<PartProgram> part_;
  std::vector<std::unique_ptr<RowGradient>> row_gradients_;
};

// The place of a run that has taken elements among such runs.
class Worker::Turn {
 public:
  explicit Turn(Worker& worker) : worker_(worker) {
    const std::lock_guard lock(worker_.mutex_);
    number_ = worker_.next_turn_++;
    worker_.turns_.insert(number_);
  }
  ~Turn() {
    {
      const std::lock_guard lock(worker_.mutex_);
      worker_.turns_.erase(number_);
    }
    worker_.turn_ended_.notify_all();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  // Waits until the runs before it have ended. Returns false if `cancelled` becomes true.
  bool wait(const Cancelled& cancelled) const {
    std::unique_lock lock(worker_.mutex_);
    while (*worker_.turns_.begin() != number_) {
      if (cancelled()) return false;
      worker_.turn_ended_.wait_for(lock, kLookAround);
    }
    return true;
  }

 private:
  static constexpr std::chrono::milliseconds kLookAround{100};

  Worker& worker_;
  std::uint64_t number_ = 0;
};

Worker::Worker(std::vector<std::shared_ptr<ServerClient>> servers)
    : incarnation_(random_number()), servers_(std::move(servers)) {}
Worker::~Worker() = default;

void Worker::add_function(std::uint64_t id, const proto::Function& function) {
  auto made = std::make_shared<Function>(function, servers_);
  const std::lock_guard lock(mutex_);
  functions_.try_emplace(id, std::move(made));
}

void Worker::remove_function(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  functions_.erase(id);
}

std::size_t Worker::num_functions() const {
  const std::lock_guard lock(mutex_);
  return functions_.size();
}

void Worker::add_iterator(std::uint64_t id, data::Iterator iterator) {
  auto made = std::make_shared<SharedIterator>();
  made->iterator = std::move(iterator);
  const std::lock_guard lock(mutex_);
  iterators_[id] = std::move(made);
  std::erase_if(kept_, [&](const auto& entry) {
    const auto& taken = entry.second.taken;
    return std::any_of(taken.begin(), taken.end(),
                       [&](const TakenElements& each) { return each.iterator == id; });
  });
}

void Worker::remove_iterator(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  iterators_.erase(id);
}

std::shared_ptr<Worker::SharedIterator> Worker::iterator(std::uint64_t id) const {
  const std::lock_guard lock(mutex_);
  const auto found = iterators_.find(id);
  if (found == iterators_.end()) fail<NotFoundError>("[Worker] there is no iterator {} here", id);
  return found->second;
}

Worker::Elements Worker::take_elements(const FunctionRun& run, const Function& function) const {
  Elements result;
  std::map<std::uint64_t, TakenElements> taken;
  for (const proto::Element& element : function.message().elements()) {
    if (element.iterator() >= run.iterators.size())
      fail<InvalidArgumentError>("[{}] expected more than {} iterators", function.name(),
                                 run.iterators.size());
    const std::uint64_t id = run.iterators[element.iterator()];
    const std::shared_ptr<SharedIterator> shared = iterator(id);
    const std::lock_guard lock(shared->mutex);
    TakenElements& of_iterator =
        taken.try_emplace(id, TakenElements{id, shared->iterator.position(), {}}).first->second;
    const data::NextExample next = shared->iterator.next();
    if (!next)
      fail<OutOfRangeError>("[{}] End of sequence: an iterator has no element left for the call",
                            function.name());
    if (next->size() != element.tensors())
      fail<InvalidArgumentError>("[{}] expected an element of {} components, got {}",
                                 function.name(), element.tensors(), next->size());
    result.tensors.insert(result.tensors.end(), next->begin(), next->end());
    of_iterator.after = shared->iterator.position();
  }
  for (const auto& [id, of_iterator] : taken) result.taken.push_back(of_iterator);
  return result;
}

Worker::Elements Worker::elements_of(const FunctionRun& run, const Function& function) {
  {
    const std::lock_guard lock(mutex_);
    const auto kept = kept_.find(run.closure);
    if (kept != kept_.end()) return kept->second;
  }
  Elements elements = take_elements(run, function);
  const std::lock_guard lock(mutex_);
  if (run.attempt) kept_.emplace(run.closure, elements);
  return elements;
}

RunResult Worker::run(const FunctionRun& run, const Cancelled& cancelled) {
  std::shared_ptr<Function> function;
  {
    const std::lock_guard lock(mutex_);
    for (const std::uint64_t closure : run.settled) kept_.erase(closure);
    const auto found = functions_.find(run.function);
    if (found == functions_.end())
      fail<NotFoundError>("[Worker] there is no function {} here", run.function);
    function = found->second;
  }
  const proto::Function& message = function->message();
  if (run.arguments.size() != message.arguments())
    fail<InvalidArgumentError>("[{}] expected {} arguments, got {}", function->name(),
                               message.arguments(), run.arguments.size());
  RunResult result;
  if (message.elements_size() == 0) {
    function->run(run, run.arguments, servers_, cancelled, result);
    return result;
  }
  std::optional<Turn> turn;
  Elements elements;
  {
    const std::lock_guard one(taking_);
    elements = elements_of(run, *function);
    turn.emplace(*this);
  }
  result.taken = std::move(elements.taken);
  std::vector<Tensor> inputs = run.arguments;
  inputs.insert(inputs.end(), elements.tensors.begin(), elements.tensors.end());
  function->run(run, inputs, servers_, cancelled, result);
  if (!turn->wait(cancelled)) fail<AbortedError>("[{}] the call was cancelled", function->name());
  return result;
}

}  // namespace tandem::ps
