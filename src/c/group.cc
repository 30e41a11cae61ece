#include "c/group.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <optional>

#include "c/array.h"
#include "c/status.h"
#include "online/exchange.h"
#include "tandem/transport.h"

namespace tandem::c {

std::uintptr_t next_handle() {
  static std::atomic<std::uintptr_t> last{0};
  return ++last;
}

Handles<tandem_group, Group>& groups() {
  static auto& all = *new Handles<tandem_group, Group>("group");
  return all;
}

namespace {

std::atomic<double> limit{1800.0};

std::chrono::milliseconds time_limit() {
  constexpr double kMilliseconds = 1000.0;
  return std::chrono::milliseconds(std::llround(limit * kMilliseconds));
}

}  // namespace

std::optional<comm::ProcessGroup> ranks_of(const std::shared_ptr<Group>& group) {
  return group ? std::optional(group->group) : std::nullopt;
}

}  // namespace tandem::c

using namespace tandem;
using namespace tandem::c;

tandem_status tandem_set_time_limit(double seconds) {
  return guarded([&] {
    constexpr double kLeast = 0.001, kMost = 1e9;
    if (!(seconds >= kLeast && seconds <= kMost))
      fail<InvalidArgumentError>("[set_time_limit] expected {} to {} seconds, got {}", kLeast,
                                 kMost, seconds);
    c::limit = seconds;
  });
}

double tandem_time_limit(void) { return c::limit; }

tandem_status tandem_group_create(const tandem_transport* transport, tandem_group** group) {
  return guarded([&] {
    const tandem_transport& functions = required(transport, "group_create", "a transport");
    if (!group && functions.release) functions.release(functions.context);
    tandem_group*& made = required(group, "group_create", "a pointer for the group");
    auto ranks = std::make_shared<Group>();
    ranks->group = comm::from_transport(functions, {.timeout = time_limit()});
    made = groups().add(std::move(ranks));
  });
}

tandem_status tandem_group_rank(const tandem_group* handle, int32_t* rank, int32_t* size) {
  return guarded([&] {
    const auto group = groups().get(handle, "group_rank");
    if (rank) *rank = group->group.rank();
    if (size) *size = group->group.size();
  });
}

tandem_status tandem_group_sum(tandem_group* handle, tandem_array* array) {
  return guarded([&] {
    const auto group = groups().get(handle, "group_sum");
    const CollectiveLock lock(group.get());
    std::optional<HostArray> mine;
    std::vector<double> first;
    const auto shapes = online::exchange(group->group, "group_sum", TANDEM_MAX_RANK + 2, [&] {
      mine.emplace(array, "group_sum", "array");
      mine->expect_apart();
      std::vector<double> described{static_cast<double>(array->dtype),
                                    static_cast<double>(array->rank)};
      for (const std::int64_t size : mine->shape().words())
        described.push_back(static_cast<double>(size));
      described.resize(TANDEM_MAX_RANK + 2);
      return described;
    });
    for (const auto& shape : shapes)
      if (shape != shapes.front())
        mine->reject("expected arrays of equal dtypes and shapes on all ranks");
    const Tensor sum = comm::all_reduce(mine->read(float64), {.group = group->group});
    mine->write(sum);
  });
}

tandem_status tandem_group_free(tandem_group* handle) {
  return guarded([&] { groups().remove(handle, "group_free"); });
}
