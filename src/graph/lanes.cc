#include "graph/lanes.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "core/callers.h"
#include "core/parallel.h"
#include "core/profile.h"
#include "core/scoped.h"
#include "core/status.h"
#include "device/copy.h"
#include "device/stream_span.h"
#include "graph/collective.h"
#include "graph/cuda_graph_segment.h"
#include "op/find_kernel.h"
#include "op/kernel_event.h"

namespace tandem {
namespace {

struct DeviceLane {
  DeviceImpl* device = nullptr;  // null if the lane is empty
  std::vector<ProgramStep*> steps;
  std::vector<const CollectiveMember*> members;  // of its collectives
  // On a real GPU: the segments, by the index of their first step.
  std::map<std::size_t, std::unique_ptr<CudaGraphSegment>> recorded;

  CudaGraphSegment* recorded_from(std::size_t place) const {
    const auto found = recorded.find(place);
    return found == recorded.end() ? nullptr : found->second.get();
  }
};

// Consecutive kernel calls of this run, for a stream that runs them later.
struct Stretch {
  struct KernelCall {
    KernelFn kernel;
    KernelContext context;
    std::shared_ptr<const void> attrs;
    std::shared_ptr<void> kept;
  };
  std::vector<KernelCall> calls;
  std::vector<profile::Event> events;  // of the calls, while a profile runs

  void add(const ProgramStep& step, bool profiled) {
    if (profiled)
      events.push_back(kernel_event(step.context, *step.operation->device, step.operation->name));
    KernelCall& call =
        calls.emplace_back(KernelCall{step.kernel, step.context, step.attrs, step.kept});
    // The next run may change the attributes before this one has used them.
    if (step.operation->attr_update) {
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

void add_devices(const Block& block, std::vector<const DeviceImpl*>& devices) {
  const auto add = [&](const DeviceImpl* device) {
    if (std::find(devices.begin(), devices.end(), device) == devices.end())
      devices.push_back(device);
  };
  for (const auto& operation : block.operations) {
    if (operation->region || operation->host_collective) continue;
    if (!operation->control) {
      add(operation->device);
      continue;
    }
    for (const BodyBlock& body : operation->control->bodies) add_devices(body.block, devices);
    if (operation->control->body_for)
      for (const DeviceImpl* device : operation->control->devices) add(device);
  }
}

std::vector<const DeviceImpl*> devices_of(const Block& block) {
  std::vector<const DeviceImpl*> devices;
  add_devices(block, devices);
  return devices;
}

}  // namespace

LaneTeam::LaneTeam(const Block& block)
    : devices_(devices_of(block)), threads_(static_cast<int>(devices_.size())) {}

std::size_t LaneTeam::member(const DeviceImpl& device) const {
  const auto at = std::find(devices_.begin(), devices_.end(), &device);
  TANDEM_ASSERT(at != devices_.end());
  return static_cast<std::size_t>(at - devices_.begin());
}

struct Lanes::Impl {
  LaneTeam& team;
  std::vector<DeviceLane> lanes;  // by member of the team
  std::vector<CollectiveGroup*> groups;

  std::mutex mutex;
  std::condition_variable advanced;
  std::atomic<std::uint64_t> round{0};
  std::atomic<bool> failed{false};
  std::exception_ptr error;  // of the first step that threw

  Impl(std::span<ProgramStep* const> steps, LaneTeam& lane_team)
      : team(lane_team), lanes(team.size()) {
    for (ProgramStep* step : steps) {
      DeviceLane& lane = lanes[team.member(*step->operation->device)];
      lane.device = step->operation->device;
      lane.steps.push_back(step);
      if (step->member) join(*step->member, lane);
      // The collective was launched by earlier Lanes. This lane waits for it and makes progress on
      // it.
      if (step->started) join(*step->started->member, lane);
      if (!step->awaits) continue;
      // Results of earlier Lanes are ready when this run starts.
      if (std::find(steps.begin(), steps.end(), step->awaits) == steps.end())
        step->awaits = nullptr;
      else
        step->awaits->awaited = true;
    }
    if (CudaGraphSegment::enabled())
      for (DeviceLane& lane : lanes) record_steps(lane);
  }

  // Creates a segment per uninterrupted stretch of steps. Other lanes only wait for its last step.
  static void record_steps(DeviceLane& lane) {
    NativeGpu* gpu = lane.device ? as_native(*lane.device) : nullptr;
    if (!gpu) return;
    std::size_t end = 0;
    for (std::size_t begin = 0; begin < lane.steps.size(); begin = std::max(begin + 1, end)) {
      for (end = begin; end < lane.steps.size() && CudaGraphSegment::takes(*lane.steps[end]);)
        if (lane.steps[end++]->awaited) break;
      if (end < begin + 2) continue;
      lane.recorded[begin] = std::make_unique<CudaGraphSegment>(
          *gpu, std::vector<ProgramStep*>(lane.steps.begin() + static_cast<std::ptrdiff_t>(begin),
                                          lane.steps.begin() + static_cast<std::ptrdiff_t>(end)));
    }
  }

  void join(const CollectiveMember& member, DeviceLane& lane) {
    if (std::find(groups.begin(), groups.end(), member.group.get()) == groups.end())
      groups.push_back(member.group.get());
    const auto same = [&](const CollectiveMember* other) {
      return other->group == member.group && other->rank == member.rank;
    };
    if (std::none_of(lane.members.begin(), lane.members.end(), same))
      lane.members.push_back(&member);
  }

  void run() {
    failed = false;
    error = nullptr;
    round.fetch_add(1, std::memory_order_release);
    team.threads().run([this](int member) {
      if (const DeviceLane& lane = lanes[static_cast<std::size_t>(member)]; lane.device)
        run_guarded(lane);
    });
    if (error) std::rethrow_exception(error);
  }

  void run_guarded(const DeviceLane& lane) {
    try {
      const int threads = lane.device->intra_op_threads();
      // The threads of several lanes share the cores already.
      const std::optional<Caller> caller =
          lanes.size() == 1 ? std::optional<Caller>(std::in_place) : std::nullopt;
      const ThreadBudget budget(caller ? caller->share(threads) : threads);
      run_lane(lane);
    } catch (const std::exception& cause) {
      fail_run(cause.what());
    } catch (...) {
      fail_run("an exception of an unknown type");
    }
  }

  // In a catch block.
  void fail_run(const char* reason) {
    {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
      failed = true;
    }
    advanced.notify_all();
    for (CollectiveGroup* group : groups) group->abort(reason);
  }

  void run_lane(const DeviceLane& lane) {
    Stream& stream = lane.device->stream();
    const Stream::Execution execution = stream.execution();
    const bool profiled = profile::on();
    const Scoped replica(profile::current_replica, lane.members.empty()
                                                       ? profile::current_replica
                                                       : lane.members.front()->rank);
    const profile::Span span([&] {
      return profile::Event{
          .name = "program", .lane = profile::Lane::kSteps, .node = lane.device->full_name()};
    });
    std::shared_ptr<Stretch> stretch;  // null if it is empty
    const auto flush = [&] {
      if (stretch) stream.enqueue([stretch = std::exchange(stretch, nullptr)] { stretch->run(); });
    };
    for (std::size_t place = 0; place < lane.steps.size(); ++place) {
      if (failed.load(std::memory_order_relaxed)) return;
      CudaGraphSegment* const recorded = lane.recorded_from(place);
      const bool together = recorded && recorded->run();
      if (together) place += recorded->size() - 1;
      ProgramStep* const step = lane.steps[place];
      if (step->awaits) await(*step->awaits);
      if (together) {
        // Nothing is left to be done.
      } else if (step->started) {
        flush();
        finish_collective(*step->started);
      } else if (!step->kernel) {
        flush();
        const TensorView& to = step->context.outputs[0];
        copy_between(*lane.device, to.data, *step->from, step->context.inputs[0].data,
                     step->copy_bytes);
      } else if (execution == Stream::Execution::kDeferred) {
        if (!stretch) stretch = std::make_shared<Stretch>();
        stretch->add(*step, profiled);
      } else {
        call(*step, stream, profiled);
      }
      if (step->member) {
        flush();
        start(*step);
      }
      for (const CollectiveMember* member : lane.members) member->group->progress(member->rank);
      if (step->awaited) {
        flush();
        finish(*step);
      }
    }
    flush();
  }

  static void call(ProgramStep& step, Stream& stream, bool profiled) {
    step.context.native_stream = stream.native_handle();
    if (profiled) [[unlikely]]
      run_profiled(step, stream.execution());
    else
      step.kernel(step.context);
    step.context.end_call();
  }

  static void run_profiled(ProgramStep& step, Stream::Execution execution) {
    const BlockOperation& operation = *step.operation;
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

  // Launches the collective on the outputs, which the kernel has filled.
  static void start(ProgramStep& step) {
    const auto& outputs = step.context.outputs;
    CollectiveGroup& group = *step.member->group;
    const int rank = step.member->rank;
    const bool reduces = step.operation->op == &kCollectiveReduce;
    const ReduceOp how = reduces ? weigh(step.context, rank) : ReduceOp::kSum;
    std::vector<Buffer> parts;
    if (step.bucket) {
      for (std::size_t i = 0; i < step.bucket->size(); ++i)  // unless they were computed there
        step.bucket->put(i, outputs[static_cast<int>(i)].data);
      parts.push_back(step.bucket->whole());
    } else {
      parts.reserve(static_cast<std::size_t>(outputs.size()));
      for (const TensorView& output : outputs)
        parts.push_back({output.data, output.size(), output.dtype});
    }
    step.work = reduces ? group.all_reduce(rank, parts, how)
                        : start_collective(*step.operation->op, step.context.attrs_data,
                                           group.communicator(rank), parts);
  }

  static void finish_collective(ProgramStep& step) {
    std::exchange(step.work, nullptr)->wait();
    if (!step.bucket) return;
    for (std::size_t i = 0; i < step.bucket->size(); ++i)
      step.bucket->take(i, step.context.outputs[static_cast<int>(i)].data);
  }

  void finish(ProgramStep& step) {
    {
      const std::lock_guard lock(mutex);
      step.finished.store(round.load(std::memory_order_relaxed), std::memory_order_release);
    }
    advanced.notify_all();
  }

  // Returns when the other lane has run `step` or has failed. Kernels terminate, so this does, too.
  void await(const ProgramStep& step) {
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

Lanes::Lanes(std::span<ProgramStep* const> steps, LaneTeam& team)
    : impl_(std::make_unique<Impl>(steps, team)) {}
Lanes::~Lanes() = default;

void Lanes::run() { impl_->run(); }

void Lanes::forget_recordings() {
  for (const DeviceLane& lane : impl_->lanes)
    for (const auto& [place, recorded] : lane.recorded) recorded->forget();
}

bool Lanes::wastes_recordings() const {
  for (const DeviceLane& lane : impl_->lanes)
    for (const auto& [place, recorded] : lane.recorded)
      if (recorded->wasted()) return true;
  return false;
}

}  // namespace tandem
