#include "hvd/adasum.h"

#include "core/multiversion.h"
#include "core/status.h"

namespace tandem::hvd {
namespace {

template <class T>
TANDEM_MULTIVERSION void combine_pair(const T* a, const T* b, T* result, std::int64_t count) {
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

namespace {

// One level after the other: at each, this rank exchanges vectors with a peer, and both combine
// them.
class AdasumWork final : public CollectiveWork {
 public:
  AdasumWork(Communicator& communicator, const Buffer& whole, std::vector<Buffer> arrays,
             Scratch& scratch)
      : communicator_(communicator),
        whole_(whole),
        arrays_(std::move(arrays)),
        theirs_(scratch.take(whole.bytes())) {
    start_level();
  }

  void wait() override {
    for (; received_; end_level()) {
      received_->wait();
      sent_->wait();
    }
  }
  bool test() override {
    for (; received_; end_level())
      if (!received_->test() || !sent_->test()) return false;
    return true;
  }
  void check_peers() override {
    if (!received_) return;
    received_->check_peers();
    sent_->check_peers();
  }
  bool sleep(std::chrono::microseconds limit) const override {
    return !received_ || received_->sleep(limit);
  }

 private:
  int peer() const { return communicator_.rank() ^ distance_; }

  void start_level() {
    if (distance_ >= communicator_.size() || whole_.count == 0) return;
    received_ = communicator_.recv({theirs_.get(), whole_.count, whole_.dtype}, peer());
    sent_ = communicator_.send(whole_, peer());
  }

  void end_level() {
    received_.reset();
    sent_.reset();
    for (const Buffer& array : arrays_) {
      const auto offset =
          static_cast<std::byte*>(array.data) - static_cast<const std::byte*>(whole_.data);
      const Buffer other = {theirs_.get() + offset, array.count, array.dtype};
      // Both ranks pass the lower rank's vector first, so that they compute the same bits.
      if (communicator_.rank() < peer())
        adasum_pair(array, other, array.data);
      else
        adasum_pair(other, array, array.data);
    }
    distance_ *= 2;
    start_level();
  }

  Communicator& communicator_;
  const Buffer whole_;
  const std::vector<Buffer> arrays_;
  const Scratch::Block theirs_;
  int distance_ = 1;                                 // to the peer's rank
  std::shared_ptr<CollectiveWork> received_, sent_;  // of this level; null once all levels are done
};

}  // namespace

std::shared_ptr<CollectiveWork> start_adasum(Communicator& communicator, const Buffer& whole,
                                             std::vector<Buffer> arrays, Scratch& scratch) {
  return std::make_shared<AdasumWork>(communicator, whole, std::move(arrays), scratch);
}

}  // namespace tandem::hvd
