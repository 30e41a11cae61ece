#include "graph/lanes.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "core/parallel.h"
#include "core/profile.h"
#include "core/status.h"
#include "core/thread_team.h"
#include "device/stream_span.h"
#include "graph/collective.h"
#include "op/kernel_event.h"

namespace tandem {
namespace {

struct Lane {
  Device* device = nullptr;
  std::vector<Step*> steps;
  std::vector<Communicator*> communicators;  // of its collectives
};

// The kernels of a stretch of steps as they are in this run, for a stream that runs them later.
struct Stretch {
  struct Call {
    KernelFn kernel;
    KernelContext context;
    std::shared_ptr<const void> attrs;
    std::shared_ptr<void> kept;
  };
  std::vector<Call> calls;
  std::vector<profile::Event> events;  // of the calls, while a profile runs

  void add(const Step& step, bool profiled) {
    if (profiled)
      events.push_back(kernel_event(step.context, *step.operation->device, step.operation->name));
    Call& call = calls.emplace_back(Call{step.kernel, step.context, step.attrs, step.kept});
    // The next run may change the attributes before this one has used them.
    if (step.operation->renewal) {
      call.attrs = step.operation->op->attrs().copy(step.attrs.get());
      call.context.attrs_data = call.attrs.get();
    }
  }
  void run() {
    for (std::size_t i = 0; i < calls.size(); ++i) {
      std::optional<profile::Span> span;
      if (i < events.size()) span.emplace(std::move(events[i]));
      calls[i].kernel(calls[i].context);
      calls[i].context.end_call();
    }
  }
};

}  // namespace

struct Lanes::Impl {
  std::vector<std::unique_ptr<Step>> steps;  // in the order of the block
  std::vector<Lane> lanes;
  std::unique_ptr<ThreadTeam> team;
  std::vector<CollectiveGroup*> groups;

  std::mutex mutex;
  std::condition_variable advanced;
  std::atomic<std::uint64_t> round{0};
  std::atomic<bool> failed{false};
  std::exception_ptr error;  // of the first step that threw

  explicit Impl(const Block& block) {
    std::unordered_map<const Operation*, Step*> step_of;
    std::unordered_map<const Device*, std::size_t> lane_of;
    for (const auto& operation : block.operations) {
      Step& step = *steps.emplace_back(std::make_unique<Step>());
      step.operation = operation.get();
      step_of[operation.get()] = &step;
      if (operation->op == &kCopy) {
        step.from = operation->inputs[0]->device;
        step.copy_bytes = operation->outputs[0]->bytes();
      } else if (operation->op == &kCollectiveWait) {
        step.started = step_of.at(operation->inputs[0]->producer);
      } else {
        step.kernel = find_kernel(*operation->op, operation->device->backend());
        TANDEM_ASSERT(step.kernel);
      }
      if (operation->behind) {
        step.behind = step_of.at(operation->behind);
        step.behind->awaited = true;
      }
      const auto [at, added] = lane_of.try_emplace(operation->device, lanes.size());
      if (added) lanes.push_back({operation->device, {}});
      lanes[at->second].steps.push_back(&step);
      if (operation->member) join(step, *operation->member, lanes[at->second]);
    }
    team = std::make_unique<ThreadTeam>(static_cast<int>(lanes.size()));
  }

  void join(Step& step, const CollectiveMember& member, Lane& lane) {
    step.member = &member;
    const auto add = [](auto& list, auto* item) {
      if (std::find(list.begin(), list.end(), item) == list.end()) list.push_back(item);
    };
    add(groups, member.group.get());
    add(lane.communicators, &member.group->communicator(member.rank));
  }

  void run() {
    if (lanes.empty()) return;
    for (CollectiveGroup* group : groups) group->begin();
    failed = false;
    error = nullptr;
    round.fetch_add(1, std::memory_order_release);
    team->run([this](int lane) { run_guarded(lanes[static_cast<std::size_t>(lane)]); });
    if (error) std::rethrow_exception(error);
  }

  void run_guarded(const Lane& lane) {
    try {
      const ThreadBudget budget(lane.device->intra_op_threads());
      run_lane(lane);
    } catch (const std::exception& cause) {
      give_up(cause.what());
    } catch (...) {
      give_up("an exception of an unknown type");
    }
  }

  // In a catch block.
  void give_up(const char* reason) {
    {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
      failed = true;
    }
    advanced.notify_all();
    for (CollectiveGroup* group : groups) group->abort(reason);
  }

  void run_lane(const Lane& lane) {
    Stream& stream = lane.device->stream();
    const Stream::Execution execution = stream.execution();
    const bool profiled = profile::on();
    const profile::ReplicaScope replica(
        lane.communicators.empty() ? profile::current_replica : lane.communicators.front()->rank());
    const profile::Span span([&] {
      return profile::Event{
          .name = "program", .lane = profile::Lane::kSteps, .node = lane.device->full_name()};
    });
    std::shared_ptr<Stretch> stretch;  // null: nothing has gathered
    const auto flush = [&] {
      if (stretch) stream.enqueue([stretch = std::exchange(stretch, nullptr)] { stretch->run(); });
    };
    for (Step* step : lane.steps) {
      if (failed.load(std::memory_order_relaxed)) return;
      if (step->behind) await(*step->behind);
      if (step->started) {
        flush();
        std::exchange(step->started->work, nullptr)->wait();
      } else if (!step->kernel) {
        flush();
        const TensorView& to = step->context.outputs[0];
        copy_between(*lane.device, to.data, *step->from, step->context.inputs[0].data,
                     step->copy_bytes);
      } else if (execution == Stream::Execution::kDeferred) {
        if (!stretch) stretch = std::make_shared<Stretch>();
        stretch->add(*step, profiled);
      } else {
        step->context.native_stream = stream.native_handle();
        if (profiled) [[unlikely]]
          run_profiled(*step, execution);
        else
          step->kernel(step->context);
        step->context.end_call();
      }
      if (step->member) {
        flush();
        start(*step);
      }
      for (Communicator* communicator : lane.communicators) communicator->progress();
      if (step->awaited) {
        flush();
        finish(*step);
      }
    }
    flush();
  }

  static void run_profiled(Step& step, Stream::Execution execution) {
    const Operation& operation = *step.operation;
    const auto event = [&] {
      return kernel_event(step.context, *operation.device, operation.name);
    };
    std::optional<profile::Span> inline_span;
    std::optional<StreamSpan> native_span;
    if (execution == Stream::Execution::kInline)
      inline_span.emplace(event());
    else
      native_span.emplace(*operation.device, event);
    step.kernel(step.context);
  }

  // What the kernel has put into the outputs sets out.
  void start(Step& step) {
    std::vector<Buffer> parts;
    parts.reserve(static_cast<std::size_t>(step.context.outputs.size()));
    for (const TensorView& output : step.context.outputs)
      parts.push_back({output.data, output.size(), output.dtype});
    Communicator& communicator = step.member->group->communicator(step.member->rank);
    step.work =
        step.operation->op == &kCollectiveBroadcast
            ? communicator.broadcast(
                  parts, static_cast<int>(step.context.attrs<CollectiveBroadcastAttrs>().root))
            : communicator.all_reduce(parts, step.context.attrs<CollectiveReduceAttrs>().op);
  }

  void finish(Step& step) {
    {
      const std::lock_guard lock(mutex);
      step.finished.store(round.load(std::memory_order_relaxed), std::memory_order_release);
    }
    advanced.notify_all();
  }

  // Ends when the other lane has come to `step` or has failed; kernels end, so this does.
  void await(const Step& step) {
    const std::uint64_t now = round.load(std::memory_order_acquire);
    const auto there = [&] {
      return step.finished.load(std::memory_order_acquire) == now ||
             failed.load(std::memory_order_relaxed);
    };
    for (int i = 0; i < 1000; ++i) {
      if (there()) return;
      std::this_thread::yield();
    }
    std::unique_lock lock(mutex);
    advanced.wait(lock, there);
  }
};

Lanes::Lanes(const Block& block) : impl_(std::make_unique<Impl>(block)) {}
Lanes::~Lanes() = default;

Step& Lanes::step(std::size_t operation) { return *impl_->steps[operation]; }
void Lanes::run() { impl_->run(); }

}  // namespace tandem
