// Every `step`-th run of `kept` elements of a stream: shard() has runs of one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "data/stream.h"

namespace tandem::data {

// 0 <= first, 1 <= kept <= step.
struct Selection {
  std::int64_t first = 0, kept = 1, step = 1;

  // The place in the stream of the element that is selected as number `index`.
  std::int64_t place(std::int64_t index) const {
    return first + index / kept * step + index % kept;
  }
  // How many of the first `count` elements are selected.
  std::int64_t size(std::int64_t count) const {
    if (count <= first) return 0;
    const std::int64_t runs = (count - first) / step, rest = (count - first) % step;
    return runs * kept + std::min(kept, rest);
  }
  // The elements of the selected groups of `size` elements; none if their numbers are too large.
  std::optional<Selection> of_groups(std::int64_t size) const {
    Selection elements;
    if (__builtin_mul_overflow(first, size, &elements.first) ||
        __builtin_mul_overflow(kept, size, &elements.kept) ||
        __builtin_mul_overflow(step, size, &elements.step))
      return std::nullopt;
    return elements;
  }
};

// The selected elements. The input leaves the others out if it can (ItemStream::select), or else
// skips them.
template <class Item>
class SelectedStream final : public ItemStream<Item> {
 public:
  SelectedStream(StreamPtr<Item> input, Selection selection)
      : input_(std::move(input)), selection_(selection), gap_(selection.first) {}
  bool next(Item& item) override {
    begin();
    if (gap_ > 0 && input_->skip(gap_) < gap_) return false;
    advance(1);
    return input_->next(item);
  }
  std::int64_t skip(std::int64_t count) override {
    if (count <= 0) return 0;
    begin();
    constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();
    // Places count from the first element of the current run.
    const Selection ahead{0, selection_.kept, selection_.step};
    const std::int64_t last = std::min(count, kAll - in_run_) - 1 + in_run_;
    std::int64_t span;
    if (__builtin_mul_overflow(last / ahead.kept, ahead.step, &span) ||
        __builtin_add_overflow(span, gap_ + ahead.kept, &span))
      span = kAll;
    else
      span = gap_ + ahead.place(last) - in_run_ + 1;
    const std::int64_t passed = input_->skip(span) - gap_;
    const std::int64_t skipped = passed <= 0 ? 0 : ahead.size(passed + in_run_) - in_run_;
    advance(skipped);
    return skipped;
  }
  bool select(const Selection& of) override {
    const std::int64_t step = selection_.step;
    if (selection_.kept != 1 || (step != 1 && of.kept != 1)) return false;
    Selection both{0, of.kept, 0};
    if (__builtin_mul_overflow(of.first, step, &both.first) ||
        __builtin_add_overflow(both.first, gap_, &both.first) ||
        __builtin_mul_overflow(of.step, step, &both.step) || !input_->select(both))
      return false;
    take_all();
    return true;
  }

 private:
  // Asks the input when the stream is first used: a selection of these elements may come before.
  void begin() {
    if (begun_) return;
    begun_ = true;
    if (selection_.step > 1 && input_->select(selection_)) take_all();
  }
  void take_all() {
    selection_ = {};
    gap_ = 0;
    begun_ = true;
  }
  void advance(std::int64_t count) {
    in_run_ = (in_run_ + count) % selection_.kept;
    gap_ = in_run_ == 0 ? selection_.step - selection_.kept : 0;
  }

  StreamPtr<Item> input_;
  Selection selection_;
  std::int64_t gap_;  // elements to skip before the next one
  std::int64_t in_run_ = 0;
  bool begun_ = false;
};

}  // namespace tandem::data
