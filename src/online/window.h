// Samples in memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "tandem/online.h"

namespace tandem::online {

// Random numbers that a few words continue (Steele, Lea and Flood 2014, "SplitMix").
class RandomNumbers {
 public:
  explicit RandomNumbers(std::uint64_t state) : state_(state) {}
  std::uint64_t state() const { return state_; }
  std::uint64_t next();
  // Uniform in [0, limit). REQUIRES: limit > 0.
  std::int64_t below(std::int64_t limit);
  bool with_probability(double probability);
  // `count` different numbers of [0, limit), each set of them equally likely. REQUIRES: count <=
  // limit.
  std::vector<std::int64_t> different(std::int64_t count, std::int64_t limit);

 private:
  std::uint64_t state_;
};

// Samples of one kind, in slots.
class Samples {
 public:
  std::int64_t size() const { return size_; }
  // Throws InvalidArgumentError that names `name` if there is a kind, and that of these differs.
  void expect(const Tensor& samples, const char* name) const;
  // Those of the first samples are the kind of all.
  void become(const Tensor& samples);
  // Takes memory for no more than `most` samples.
  void append(const std::byte* sample, std::int64_t most);
  void replace(std::int64_t slot, const std::byte* sample);
  Tensor take(std::span<const std::int64_t> slots) const;
  void clear() {
    size_ = 0;
    memory_.clear();
  }
  Tensor all() const;  // undefined if there are none
  std::size_t sample_bytes() const { return bytes_; }

 private:
  bool known_ = false;
  DType dtype_ = float32;
  Shape sample_;
  std::size_t bytes_ = 0;
  std::int64_t size_ = 0;
  std::vector<std::byte> memory_;
};

// Samples (x, y) of which a new one replaces the oldest, once it is full.
struct Ring {
  Samples x, y;
  std::int64_t capacity = 0, oldest = 0;

  std::int64_t size() const { return x.size(); }
  void expect(const Tensor& new_x, const Tensor& new_y) const;
  void become(const Tensor& new_x, const Tensor& new_y);
  void clear();  // the samples; their kind stays
  void push(const std::byte* new_x, const std::byte* new_y);
  void replace(std::int64_t slot, const std::byte* new_x, const std::byte* new_y);
};

class Window::Impl {
 public:
  explicit Impl(const WindowOptions& options);

  const WindowOptions& options() const { return options_; }
  std::int64_t size() const { return sampled_.size(); }
  std::int64_t holdout_size() const { return held_.size(); }
  std::int64_t pushed() const { return pushed_; }
  // The number of samples of all ranks before training starts.
  std::int64_t min_samples() const {
    return options_.min_samples > 0 ? options_.min_samples : options_.batch_size;
  }
  void push(const Tensor& x, const Tensor& y);
  // Without samples.
  Ring kind() const;
  std::pair<Tensor, Tensor> sample();
  std::pair<Tensor, Tensor> holdout() const { return {held_.x.all(), held_.y.all()}; }
  std::map<std::string, Tensor> state() const;
  void restore(const std::map<std::string, Tensor>& state);
  // Takes every `ranks`-th of the samples of other windows, from `rank` on.
  void deal(const std::vector<std::map<std::string, Tensor>>& states, int rank, int ranks);

  // While it is set, the window is a trainer's. Throws FailedPreconditionError.
  void expect_untrained(const char* what) const;
  std::atomic<bool> trained_beside{false};

 private:
  void push_one(const std::byte* x, const std::byte* y);

  WindowOptions options_;
  Ring sampled_, held_;
  std::int64_t pushed_ = 0, offered_ = 0;  // offered: to sampled_
  RandomNumbers random_;
};

}  // namespace tandem::online
