#include "online/exchange.h"

#include <algorithm>
#include <new>

#include "core/status.h"
#include "tandem/creation.h"

namespace tandem::online {
namespace {

template <class E>
[[noreturn]] void throw_as(const std::string& message) {
  throw E(message);
}

[[noreturn]] void throw_kind(int kind, const std::string& message) {
  constexpr void (*kThrow[])(const std::string&) = {
      throw_as<InvalidArgumentError>,
      throw_as<NotFoundError>,
      throw_as<AlreadyExistsError>,
      throw_as<ResourceExhaustedError>,
      throw_as<FailedPreconditionError>,
      throw_as<OutOfRangeError>,
      throw_as<DeadlineExceededError>,
      throw_as<UnavailableError>,
      throw_as<AbortedError>,
      throw_as<DataLossError>,
      throw_as<UnimplementedError>,
      throw_as<RuntimeError>,
  };
  if (kind >= 1 && kind <= static_cast<int>(std::size(kThrow))) kThrow[kind - 1](message);
  throw InternalError(message);
}

int kind_of(const Error& error) {
  if (dynamic_cast<const InvalidArgumentError*>(&error)) return 1;
  const auto found = std::find(kErrorKinds.begin() + 1, kErrorKinds.end(), error.kind());
  return static_cast<int>(found == kErrorKinds.end() ? kErrorKinds.size() - 1
                                                     : found - kErrorKinds.begin());
}

}  // namespace

Caught describe(const std::exception_ptr& error) {
  constexpr int kExhausted = 4, kInternal = 13;
  try {
    std::rethrow_exception(error);
  } catch (const Error& own) {
    return {kind_of(own), own.what()};
  } catch (const std::bad_alloc&) {
    return {kExhausted, "out of memory"};
  } catch (const std::exception& other) {
    return {kInternal, other.what()};
  } catch (...) {
    return {kInternal, "unknown exception"};
  }
}

std::vector<std::vector<double>> exchange(const std::optional<comm::ProcessGroup>& group,
                                          std::string_view what, std::size_t count,
                                          const std::function<std::vector<double>()>& local) {
  if (!group) return {local()};
  std::vector<double> mine;
  std::exception_ptr error;
  Caught caught;
  try {
    mine = local();
  } catch (...) {
    error = std::current_exception();
    caught = describe(error);
  }
  mine.resize(count);
  mine.push_back(caught.kind);
  const std::vector<Tensor> all =
      comm::all_gather(constant(mine, {.dtype = float64}), {.group = *group});
  std::vector<std::vector<double>> numbers;
  std::optional<std::size_t> failed;
  for (const Tensor& each : all) {
    numbers.push_back(each.to_vector<double>());
    if (numbers.back().back() > 0.0 && !failed) failed = numbers.size() - 1;
  }
  if (failed) {
    const std::string message =
        comm::broadcast_object(caught.message, group->ranks()[*failed], {.group = *group});
    if (group->rank() == static_cast<int>(*failed)) std::rethrow_exception(error);
    throw_kind(static_cast<int>(numbers[*failed].back()),
               fmt::format("[{}] rank {} has failed: {}", what, *failed, message));
  }
  for (std::vector<double>& each : numbers) each.pop_back();
  return numbers;
}

}  // namespace tandem::online
