#include "online/window.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_set>

#include "core/status.h"
#include "device/device_manager.h"
#include "tensor/tensor_impl.h"

namespace tandem::online {
namespace {

Shape sample_of(const Tensor& samples) {
  Dims sizes;
  for (int axis = 1; axis < samples.rank(); ++axis) sizes.push_back(samples.dim(axis));
  return Shape(sizes);
}

// The capacity for samples that are never sampled.
std::int64_t held_capacity(const WindowOptions& options) {
  if (options.holdout == 0.0) return 0;
  const double share = options.holdout * static_cast<double>(options.capacity);
  return std::max<std::int64_t>(1, std::llround(share));
}

}  // namespace

std::uint64_t RandomNumbers::next() {
  std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

std::int64_t RandomNumbers::below(std::int64_t limit) {
  const auto bound = static_cast<std::uint64_t>(limit);
  const std::uint64_t uneven = (0 - bound) % bound;  // so many of the numbers are left over
  for (;;)
    if (const std::uint64_t number = next(); number >= uneven)
      return static_cast<std::int64_t>(number % bound);
}

bool RandomNumbers::with_probability(double probability) {
  return static_cast<double>(next() >> 11) * 0x1p-53 < probability;
}

// Floyd's algorithm (Bentley and Floyd 1987).
std::vector<std::int64_t> RandomNumbers::different(std::int64_t count, std::int64_t limit) {
  std::vector<std::int64_t> chosen;
  std::unordered_set<std::int64_t> known;
  for (std::int64_t last = limit - count; last < limit; ++last) {
    const std::int64_t number = below(last + 1);
    chosen.push_back(known.insert(number).second ? number : last);
    if (chosen.back() == last) known.insert(last);
  }
  return chosen;
}

void Samples::expect(const Tensor& samples, const char* name) const {
  const Shape sample = sample_of(samples);
  if (known_ && (sample != sample_ || samples.dtype() != dtype_))
    fail<InvalidArgumentError>("[push] {}: expected samples of {} {}, as those before, got {} {}",
                               name, name_of(dtype_), sample_.to_string(), name_of(samples.dtype()),
                               sample.to_string());
}

void Samples::become(const Tensor& samples) {
  if (known_) return;
  known_ = true;
  dtype_ = samples.dtype();
  sample_ = sample_of(samples);
  bytes_ = static_cast<std::size_t>(sample_.num_elements()) * size_of(dtype_);
}

void Samples::append(const std::byte* sample, std::int64_t most) {
  constexpr std::size_t kFirst = 64;
  if (memory_.capacity() < memory_.size() + bytes_)
    memory_.reserve(std::min(static_cast<std::size_t>(most) * bytes_,
                             std::max(2 * memory_.size(), kFirst * bytes_)));
  memory_.insert(memory_.end(), sample, sample + bytes_);
  ++size_;
}

void Samples::replace(std::int64_t slot, const std::byte* sample) {
  std::memcpy(memory_.data() + static_cast<std::size_t>(slot) * bytes_, sample, bytes_);
}

Tensor Samples::take(std::span<const std::int64_t> slots) const {
  Dims sizes{static_cast<std::int64_t>(slots.size())};
  for (const std::int64_t size : sample_) sizes.push_back(size);
  const Tensor batch = make_tensor(DeviceManager::get().host(), Shape(sizes), dtype_);
  std::byte* to = impl_of(batch).data();
  for (const std::int64_t slot : slots) {
    std::memcpy(to, memory_.data() + static_cast<std::size_t>(slot) * bytes_, bytes_);
    to += bytes_;
  }
  return batch;
}

Tensor Samples::all() const {
  if (size_ == 0) return {};
  std::vector<std::int64_t> slots(static_cast<std::size_t>(size_));
  for (std::int64_t slot = 0; slot < size_; ++slot) slots[static_cast<std::size_t>(slot)] = slot;
  return take(slots);
}

void Ring::expect(const Tensor& new_x, const Tensor& new_y) const {
  x.expect(new_x, "x");
  y.expect(new_y, "y");
}

void Ring::become(const Tensor& new_x, const Tensor& new_y) {
  x.become(new_x);
  y.become(new_y);
}

void Ring::clear() {
  x.clear();
  y.clear();
  oldest = 0;
}

void Ring::push(const std::byte* new_x, const std::byte* new_y) {
  if (size() < capacity) {
    x.append(new_x, capacity);
    y.append(new_y, capacity);
    return;
  }
  replace(oldest, new_x, new_y);
  oldest = (oldest + 1) % capacity;
}

void Ring::replace(std::int64_t slot, const std::byte* new_x, const std::byte* new_y) {
  x.replace(slot, new_x);
  y.replace(slot, new_y);
}

Window::Impl::Impl(const WindowOptions& options) : options_(options), random_(options.seed) {
  const auto expect = [](bool right, const char* name, const char* range, auto got) {
    if (!right) fail<InvalidArgumentError>("[Window] expected {} {}, got {}", name, range, got);
  };
  expect(options.batch_size >= 1, "a batch size", "of at least 1", options.batch_size);
  expect(options.capacity >= options.batch_size && options.capacity <= (std::int64_t{1} << 48),
         "a capacity", "from the batch size to 2^48", options.capacity);
  expect(options.min_samples >= 0, "min_samples", "of at least 0", options.min_samples);
  expect(options.holdout >= 0.0 && options.holdout <= 0.5, "a holdout", "of 0 to 0.5",
         options.holdout);
  expect(options.replace == Replace::kOldest || options.replace == Replace::kRandom, "replace",
         "kOldest or kRandom", static_cast<int>(options.replace));
  held_.capacity = held_capacity(options);
  sampled_.capacity = options.capacity - held_.capacity;
  expect(sampled_.capacity >= options.batch_size, "a capacity", "of a batch besides the holdout",
         options.capacity);
}

Ring Window::Impl::kind() const {
  Ring kind = sampled_;
  kind.clear();
  return kind;
}

void Window::Impl::push(const Tensor& x, const Tensor& y) {
  if (!x.defined() || !y.defined()) throw InvalidArgumentError("[push] expected tensors, got none");
  if (x.rank() < 1 || y.rank() < 1 || x.dim(0) != y.dim(0))
    fail<InvalidArgumentError>("[push] expected equally many samples, got x {} and y {}",
                               x.shape().to_string(), y.shape().to_string());
  sampled_.expect(x, y);
  sampled_.become(x, y);
  held_.become(x, y);
  const Tensor xs = x.cpu(), ys = y.cpu();
  const std::byte *from_x = impl_of(xs).data(), *from_y = impl_of(ys).data();
  for (std::int64_t i = 0; i < x.dim(0); ++i) {
    push_one(from_x, from_y);
    from_x += sampled_.x.sample_bytes();
    from_y += sampled_.y.sample_bytes();
  }
}

void Window::Impl::push_one(const std::byte* x, const std::byte* y) {
  ++pushed_;
  if (held_.capacity > 0 && random_.with_probability(options_.holdout)) return held_.push(x, y);
  ++offered_;
  if (options_.replace == Replace::kOldest || size() < sampled_.capacity)
    return sampled_.push(x, y);
  // Algorithm R (Vitter 1985).
  const std::int64_t slot = random_.below(offered_);
  if (slot < sampled_.capacity) sampled_.replace(slot, x, y);
}

void Window::Impl::expect_untrained(const char* what) const {
  if (trained_beside)
    fail<FailedPreconditionError>(
        "[{}] a trainer has this window: push to the trainer, or stop it before", what);
}

std::pair<Tensor, Tensor> Window::Impl::sample() {
  if (size() == 0) return {};
  const auto slots = random_.different(std::min(options_.batch_size, size()), size());
  return {sampled_.x.take(slots), sampled_.y.take(slots)};
}

Window::Window(const WindowOptions& options) : impl_(std::make_shared<Impl>(options)) {}

void Window::push(const Tensor& x, const Tensor& y) const {
  impl_->expect_untrained("push");
  impl_->push(x, y);
}
std::int64_t Window::size() const {
  impl_->expect_untrained("size");
  return impl_->size();
}
std::int64_t Window::holdout_size() const {
  impl_->expect_untrained("holdout_size");
  return impl_->holdout_size();
}
std::int64_t Window::pushed() const {
  impl_->expect_untrained("pushed");
  return impl_->pushed();
}
const WindowOptions& Window::options() const { return impl_->options(); }
std::pair<Tensor, Tensor> Window::sample() const {
  impl_->expect_untrained("sample");
  return impl_->sample();
}
std::pair<Tensor, Tensor> Window::holdout() const {
  impl_->expect_untrained("holdout");
  return impl_->holdout();
}
std::map<std::string, Tensor> Window::state() const {
  impl_->expect_untrained("state");
  return impl_->state();
}
void Window::restore(const std::map<std::string, Tensor>& state) const {
  impl_->expect_untrained("restore");
  impl_->restore(state);
}

}  // namespace tandem::online
