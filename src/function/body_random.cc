#include "function/body_random.h"

namespace tandem {

BodyRandomSequence::BodyRandomSequence(std::shared_ptr<RandomSequence> before,
                                       std::vector<BodyCount> bodies)
    : before_(std::move(before)), bodies_(std::move(bodies)) {}

template <class F>
void BodyRandomSequence::for_each_inside(std::size_t body, const F& visit) const {
  for (auto* inside = static_cast<BodyRandomSequence*>(bodies_[body].last.get()); inside;
       inside = static_cast<BodyRandomSequence*>(inside->before_.get()))
    visit(*inside);
}

void BodyRandomSequence::enter(std::uint64_t offset, bool replay) {
  replay_ = replay;
  if (!replay) {
    random::GeneratorState state = Generator::current().state();
    state.offset += offset + (before_ ? before_->total() : 0);
    start_ = state.offset;
    own_.set_state(state);
  }
  scope_.emplace(context.generator, &own_);
}

void BodyRandomSequence::leave() {
  scope_.reset();
  if (!replay_) taken_ = own_.state().offset - start_;
}

void BodyRandomSequence::mark(RandomMark& mark) const {
  const random::GeneratorState state = own_.state();
  mark.seed = state.seed;
  mark.offset = state.offset;
}

void BodyRandomSequence::ran(std::size_t body, RandomMark* mark) {
  const BodyCount& counted = bodies_[body];
  random::GeneratorState state = own_.state();
  state.offset += counted.count + (counted.last ? counted.last->total() : 0);
  own_.set_state(state);
  if (!mark) return;
  mark->inside.clear();
  for_each_inside(body,
                  [&](const BodyRandomSequence& inside) { mark->inside.push_back(inside.taken_); });
}

void BodyRandomSequence::restore(std::size_t body, const RandomMark& mark) {
  own_.set_state({.seed = mark.seed, .offset = mark.offset});
  auto taken = mark.inside.begin();
  for_each_inside(body, [&](BodyRandomSequence& inside) { inside.taken_ = *taken++; });
}

std::uint64_t BodyRandomSequence::total() const {
  return taken_ + (before_ ? before_->total() : 0);
}

void BodyRandomSequence::took(std::uint64_t count) {
  taken_ = count;
  for (std::size_t body = 0; body < bodies_.size(); ++body)
    for_each_inside(body, [](BodyRandomSequence& inside) { inside.took(0); });
}

void BodyRandomSequence::reset() {
  taken_ = 0;
  if (before_) before_->reset();
}

}  // namespace tandem
