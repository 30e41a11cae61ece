#include "runtime/body_draws.h"

namespace tandem {

BodyDraws::BodyDraws(std::shared_ptr<DrawSequence> behind, std::vector<OfBody> bodies)
    : behind_(std::move(behind)), bodies_(std::move(bodies)) {}

std::shared_ptr<DrawSequence> DrawSequence::make(std::shared_ptr<DrawSequence> behind,
                                                 std::vector<OfBody> bodies) {
  return std::make_shared<BodyDraws>(std::move(behind), std::move(bodies));
}

template <class F>
void BodyDraws::for_each_inside(std::size_t body, const F& visit) const {
  for (auto* inside = static_cast<BodyDraws*>(bodies_[body].behind.get()); inside;
       inside = static_cast<BodyDraws*>(inside->behind_.get()))
    visit(*inside);
}

void BodyDraws::enter(std::uint64_t number, bool replay) {
  replay_ = replay;
  if (!replay) {
    random::GeneratorState state = Generator::current().state();
    state.draws += number + (behind_ ? behind_->total() : 0);
    start_ = state.draws;
    own_.set_state(state);
  }
  scope_.emplace(own_);
}

void BodyDraws::leave() {
  scope_.reset();
  if (!replay_) taken_ = own_.state().draws - start_;
}

void BodyDraws::mark(DrawMark& mark) const {
  const random::GeneratorState state = own_.state();
  mark.seed = state.seed;
  mark.number = state.draws;
}

void BodyDraws::ran(std::size_t body, DrawMark* mark) {
  const OfBody& of_body = bodies_[body];
  random::GeneratorState state = own_.state();
  state.draws += of_body.draws + (of_body.behind ? of_body.behind->total() : 0);
  own_.set_state(state);
  if (!mark) return;
  mark->inside.clear();
  for_each_inside(body, [&](const BodyDraws& inside) { mark->inside.push_back(inside.taken_); });
}

void BodyDraws::restore(std::size_t body, const DrawMark& mark) {
  own_.set_state({.seed = mark.seed, .draws = mark.number});
  auto taken = mark.inside.begin();
  for_each_inside(body, [&](BodyDraws& inside) { inside.taken_ = *taken++; });
}

std::uint64_t BodyDraws::total() const { return taken_ + (behind_ ? behind_->total() : 0); }

void BodyDraws::reset() {
  taken_ = 0;
  if (behind_) behind_->reset();
}

}  // namespace tandem
