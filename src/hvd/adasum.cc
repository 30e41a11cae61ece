#include "hvd/adasum.h"

#include "core/clones.h"
#include "core/status.h"

namespace tandem::hvd {
namespace {

template <class T>
TANDEM_CLONES void combine_pair(const T* a, const T* b, T* result, std::int64_t count) {
  double dot = 0.0, a_squared = 0.0, b_squared = 0.0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    dot += x * y;
    a_squared += x * x;
    b_squared += y * y;
  }
  const double of_a = a_squared == 0.0 ? 1.0 : 1.0 - dot / (2.0 * a_squared);
  const double of_b = b_squared == 0.0 ? 1.0 : 1.0 - dot / (2.0 * b_squared);
  for (std::int64_t i = 0; i < count; ++i) {
    const double sum = of_a * static_cast<double>(a[i]) + of_b * static_cast<double>(b[i]);
    if constexpr (std::is_same_v<T, double>)
      result[i] = sum;
    else
      result[i] = T(static_cast<float>(sum));
  }
}

template <class T>
void combine_typed(const Buffer& a, const Buffer& b, void* result) {
  combine_pair(static_cast<const T*>(a.data), static_cast<const T*>(b.data),
               static_cast<T*>(result), a.count);
}

}  // namespace

void adasum_pair(const Buffer& a, const Buffer& b, void* result) {
  switch (a.dtype) {
    case DType::kFloat32: return combine_typed<float>(a, b, result);
    case DType::kFloat64: return combine_typed<double>(a, b, result);
    case DType::kFloat16: return combine_typed<Half>(a, b, result);
    case DType::kBFloat16: return combine_typed<BFloat16>(a, b, result);
    default: fail<InternalError>("[adasum] {} elements", name_of(a.dtype));
  }
}

void adasum(Communicator& communicator, const Buffer& whole, std::span<const Buffer> arrays,
            std::vector<std::byte>& scratch) {
  if (whole.count == 0) return;
  scratch.resize(std::max(scratch.size(), whole.bytes()));
  const int rank = communicator.rank();
  for (int distance = 1; distance < communicator.size(); distance *= 2) {
    const int peer = rank ^ distance;
    const Buffer theirs = {scratch.data(), whole.count, whole.dtype};
    const auto received = communicator.recv(theirs, peer);
    const auto sent = communicator.send(whole, peer);
    received->wait();
    sent->wait();
    for (const Buffer& array : arrays) {
      const auto offset =
          static_cast<std::byte*>(array.data) - static_cast<const std::byte*>(whole.data);
      const Buffer other = {scratch.data() + offset, array.count, array.dtype};
      // The lower rank's first, on both sides.
      if (rank < peer)
        adasum_pair(array, other, array.data);
      else
        adasum_pair(other, array, array.data);
    }
  }
}

}  // namespace tandem::hvd
