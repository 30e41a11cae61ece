// Streams of random numbers of users' own.
#include "core/scoped.h"
#include "core/status.h"
#include "op/context.h"
#include "runtime/generator.h"
#include "tandem/random.h"

namespace tandem::random {

struct Generator::Stream {
  tandem::Generator numbers;
};

namespace {

// Random operations of the calling thread use the stream while it lives.
class StreamScope {
 public:
  explicit StreamScope(tandem::Generator& numbers) : scope_(context.generator, &numbers) {
    if (context.graph)
      throw UnimplementedError(
          "[Generator] expected a call outside of a traced function, which would repeat the same "
          "numbers in each run: use td::random's functions there");
  }

 private:
  const Scoped<tandem::Generator*> scope_;
};

}  // namespace

Generator::Generator(std::uint64_t seed) : stream_(std::make_shared<Stream>()) {
  stream_->numbers.set_state({.seed = seed, .offset = 0});
}

Tensor Generator::normal(const Shape& shape, double mean, double stddev) const {
  const StreamScope scope(stream_->numbers);
  return random::normal(shape, mean, stddev);
}
Tensor Generator::normal(const Shape& shape, const NormalOptions& options) const {
  const StreamScope scope(stream_->numbers);
  return random::normal(shape, options);
}
Tensor Generator::truncated_normal(const Shape& shape, double mean, double stddev) const {
  const StreamScope scope(stream_->numbers);
  return random::truncated_normal(shape, mean, stddev);
}
Tensor Generator::uniform(const Shape& shape, double low, double high) const {
  const StreamScope scope(stream_->numbers);
  return random::uniform(shape, low, high);
}
Tensor Generator::uniform(const Shape& shape, const UniformOptions& options) const {
  const StreamScope scope(stream_->numbers);
  return random::uniform(shape, options);
}
Tensor Generator::uniform_int(const Shape& shape, std::int64_t low, std::int64_t high) const {
  const StreamScope scope(stream_->numbers);
  return random::uniform_int(shape, low, high);
}
Tensor Generator::permutation(Dim count) const {
  const StreamScope scope(stream_->numbers);
  return random::permutation(count);
}
Tensor Generator::shuffle(const Tensor& x) const {
  const StreamScope scope(stream_->numbers);
  return random::shuffle(x);
}

GeneratorState Generator::get_state() const { return stream_->numbers.state(); }
void Generator::set_state(const GeneratorState& state) const { stream_->numbers.set_state(state); }

}  // namespace tandem::random
