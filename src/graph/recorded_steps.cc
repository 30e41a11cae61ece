#include "graph/recorded_steps.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "comm/device_memory.h"
#include "core/env.h"
#include "core/log.h"
#include "core/profile.h"
#include "core/status.h"
#include "op/scratch_scope.h"

namespace tandem {
namespace {

constexpr std::size_t kKept = 4;  // recordings
constexpr int kMostWasted = 8;

}  // namespace

// Workspace of everything recorded on a device, which runs one after the other. Whoever needs more
// gets a larger one for all that follows.
struct RecordedSteps::Scratch {
  std::shared_ptr<void> memory;
  std::size_t bytes = 0;

  static std::shared_ptr<Scratch> on(Device& device, std::size_t bytes) {
    static std::mutex mutex;
    static auto* const all = new std::map<Device*, std::weak_ptr<Scratch>>;
    const std::lock_guard lock(mutex);
    std::weak_ptr<Scratch>& known = (*all)[&device];
    std::shared_ptr<Scratch> scratch = known.lock();
    if (scratch && scratch->bytes >= bytes) return scratch;
    const MemoryTagScope tag(MemoryTag::kWorkspace);
    scratch = std::make_shared<Scratch>();
    scratch->memory = allocate_on(device, bytes, "graph", "workspace of recorded operations");
    scratch->bytes = bytes;
    known = scratch;
    return scratch;
  }
};

bool RecordedSteps::takes(const Step& step) {
  return step.kernel && !step.member && !step.started && !step.behind;
}

bool RecordedSteps::wanted() {
  static const bool value = env_bool("TANDEM_CUDA_GRAPHS").value_or(true);
  return value;
}

RecordedSteps::RecordedSteps(NativeGpu& gpu, std::vector<Step*> steps)
    : gpu_(gpu), steps_(std::move(steps)) {}

RecordedSteps::~RecordedSteps() = default;

bool RecordedSteps::run() {
  if (given_up_ || profile::on()) return false;
  if (runs_++ == 0) {
    measure();
    return true;
  }
  find_addresses();
  auto found = std::find_if(recorded_.begin(), recorded_.end(),
                            [&](const Recorded& each) { return each.addresses == addresses_; });
  if (found != recorded_.end()) {
    found->replayed = true;
    wasted_ = 0;
  } else {
    try {
      record();
    } catch (const ResourceExhaustedError& error) {
      // Other addresses may make a library choose what takes more.
      if (++wasted_ == kMostWasted) give_up(error.what());
      measure();
      return true;
    } catch (const Error& error) {
      give_up(error.what());
      return false;
    }
    if (given_up_) return false;
    found = recorded_.end() - 1;
  }
  found->last_run = runs_;
  renew(found->renewals);
  found->work->launch();
  return true;
}

void RecordedSteps::find_addresses() {
  addresses_.clear();
  for (const Step* step : steps_)
    for (const auto* views : {&step->context.inputs, &step->context.outputs})
      for (const TensorView& view : *views) addresses_.push_back(view.data);
}

void RecordedSteps::measure() {
  ScratchScope scratch;
  RenewalScope renewals;
  const Step* unsuited = nullptr;
  for (Step* step : steps_) {
    scratch.begin_kernel();
    renewals.begin_kernel(step->operation->renewal != nullptr);
    step->context.native_stream = gpu_.stream().native_handle();
    step->kernel(step->context);
    step->context.end_call();
    if (!renewals.complete()) unsuited = step;
  }
  workspace_ = std::max(workspace_, scratch.needed());
  renewed_ = std::max(renewed_, renewals.needed());
  if (unsuited)
    give_up(fmt::format("the kernel of '{}' keeps attributes that change in each run",
                        unsuited->operation->op->name));
}

void RecordedSteps::renew(Renewals& renewals) {
  if (renewals.values.empty()) return;
  now_.assign(renewals.bytes, std::byte{0});
  for (const RenewedValue& value : renewals.values)
    value.compute(value.attrs, now_.data() + value.offset);
  if (now_ == renewals.there) return;
  gpu_.copy_from_host(renewals.memory.get(), now_.data(), now_.size());
  std::swap(now_, renewals.there);
}

void RecordedSteps::record() {
  Recorded another;
  if (recorded_.size() == kKept) {
    const auto oldest = std::min_element(
        recorded_.begin(), recorded_.end(),
        [](const Recorded& a, const Recorded& b) { return a.last_run < b.last_run; });
    if (!oldest->replayed && ++wasted_ == kMostWasted)
      return give_up("what they read or write is in other memory in each run");
    another = std::move(*oldest);
    recorded_.erase(oldest);
  }
  another.addresses = addresses_;
  another.replayed = false;
  if (workspace_ > 0) another.scratch = Scratch::on(gpu_, workspace_);
  Renewals& renewals = another.renewals;
  renewals.there.clear();
  if (renewals.bytes < renewed_) {
    const MemoryTagScope tag(MemoryTag::kWorkspace);
    renewals.memory =
        allocate_on(gpu_, renewed_, "graph", "attributes of recorded operations that change");
    renewals.bytes = renewed_;
  }
  another.work = gpu_.record_work(
      [&](void* native_stream) {
        ScratchScope scratch(another.scratch ? another.scratch->memory.get() : nullptr, workspace_);
        RenewalScope renewal(renewals.memory.get(), renewals.bytes);
        for (Step* step : steps_) {
          scratch.begin_kernel();
          renewal.begin_kernel(step->operation->renewal != nullptr);
          step->context.native_stream = native_stream;
          try {
            step->kernel(step->context);
          } catch (...) {
            step->context.end_call();
            throw;
          }
          step->context.end_call();
          TANDEM_ASSERT(renewal.complete());
        }
        renewals.values = renewal.values();
      },
      std::move(another.work));
  recorded_.push_back(std::move(another));
  logging::debug("[graph] {} operations on {} are recorded, and launched as one", steps_.size(),
                 gpu_.full_name());
}

void RecordedSteps::give_up(const std::string& why) {
  given_up_ = true;
  recorded_.clear();
  logging::info("[graph] {} operations on {} are launched one by one: {}", steps_.size(),
                gpu_.full_name(), why);
}

}  // namespace tandem
