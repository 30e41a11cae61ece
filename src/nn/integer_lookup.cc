// The layer that looks up integers in a vocabulary.
#include <atomic>
#include <numeric>

#include "data/stream.h"
#include "nn/layer_base.h"
#include "nn/vocabulary.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/elementary.h"
#include "tandem/math.h"
#include "tandem/preprocessing.h"
#include "tensor/tensor_impl.h"

namespace tandem::layers {
namespace {

using Integers = Vocabulary<std::int64_t>;

class IntegerLookupLayer final : public UnaryLayer {
 public:
  explicit IntegerLookupLayer(const IntegerLookupOptions& options)
      : UnaryLayer("integer_lookup", options), vocabulary_(label(), options) {
    sort_terms();
  }
  bool casts_inputs() const override { return false; }
  const Integers& vocabulary() const { return vocabulary_; }

  // A traced function keeps the vocabulary that it has seen.
  void expect_adaptable() const {
    vocabulary_.expect_adaptable();
    if (called_)
      fail<FailedPreconditionError>(
          "[{}] the layer has been called with its vocabulary: adapt() before, or make another "
          "layer",
          label());
  }
  void adopt(Integers::Occurrences occurrences) {
    if (occurrences.of_all.empty())
      fail<InvalidArgumentError>("[{}] expected integers to adapt to, got none", label());
    vocabulary_.adopt(std::move(occurrences));
    sort_terms();
  }

 private:
  void sort_terms() {
    const std::vector<std::int64_t>& terms = vocabulary_.terms();
    order_.resize(terms.size());
    std::iota(order_.begin(), order_.end(), std::int64_t{0});
    const auto term = [&](std::int64_t i) { return terms[static_cast<std::size_t>(i)]; };
    std::sort(order_.begin(), order_.end(),
              [&](std::int64_t a, std::int64_t b) { return term(a) < term(b); });
    sorted_.clear();
    for (std::int64_t& index : order_) {
      sorted_.push_back(term(index));
      index += vocabulary_.first_term();
    }
  }

  void make_weights(const Shape&) override {}
  Shape infer(const Shape& x) const override {
    if (vocabulary_.mode() != OutputMode::kInt) vocabulary_.expect_terms();
    return encoded_shape(vocabulary_.mode(), x, vocabulary_.depth());
  }

  Tensor run(const Tensor& x, const CallOptions&) override {
    vocabulary_.expect_terms();
    called_ = true;
    const Tensor integers = x.to(int64);
    if (vocabulary_.invert()) return terms_of(integers);
    const DType dtype = dtype_policy().compute_dtype();
    const std::vector<double>& idf = vocabulary_.idf();
    return encoded(vocabulary_.mode(), indices_of(integers), vocabulary_.depth(), dtype, {},
                   idf.empty() ? Tensor() : constant(idf, {.dtype = dtype}));
  }

  Tensor indices_of(const Tensor& x) const {
    const Tensor sorted = constant(sorted_);
    const Tensor place = maximum(searchsorted(sorted, x, true), 1.0) - 1.0;
    Tensor known = equal(gather(sorted, place), x);
    Tensor masked;
    if (vocabulary_.mask()) {
      masked = equal(x, scalar(*vocabulary_.mask()));
      known = logical_or(known, masked);
    }
    // gather() refuses -1: a graph cannot read the values before.
    if (vocabulary_.num_oov() == 0) expect_known(known, x);
    const Tensor found =
        gather(constant(order_), vocabulary_.num_oov() == 0 ? where(known, place, -1.0) : place);
    const Tensor indices = vocabulary_.num_oov() == 0 ? found : where(known, found, unknown(x));
    return masked.defined() ? where(masked, static_cast<double>(vocabulary_.mask_index()), indices)
                            : indices;
  }

  static Tensor scalar(std::int64_t value) {
    return constant(std::vector<std::int64_t>{value}, {.shape = Shape::scalar()});
  }

  Tensor unknown(const Tensor& x) const {
    const auto first = static_cast<double>(vocabulary_.first_oov());
    if (vocabulary_.num_oov() == 1) return zeros_like(x) + first;
    return floor_mod(x, static_cast<double>(vocabulary_.num_oov())) + first;
  }

  void expect_known(const Tensor& known, const Tensor& x) const {
    if (impl_of(x).symbol || reduce_all(known).item<bool>()) return;
    const std::vector<std::int64_t> all = integers_of(x), found = integers_of(known);
    std::string unknown;
    int count = 0;
    for (std::size_t i = 0; i < all.size() && count < 10; ++i)
      if (found[i] == 0) unknown += (count++ > 0 ? ", " : "") + std::to_string(all[i]);
    fail<InvalidArgumentError>(
        "[{}] expected integers of the vocabulary without num_oov_indices, got {}; consider "
        "num_oov_indices = 1",
        label(), unknown);
  }

  Tensor terms_of(const Tensor& indices) const {
    const std::vector<std::int64_t> all = vocabulary_.all();
    const Tensor valid =
        logical_and(greater_equal(indices, 0.0), less(indices, static_cast<double>(all.size())));
    const Tensor terms = gather(constant(all), where(valid, indices, 0.0));
    return where(valid, terms, scalar(vocabulary_.oov()));
  }

  Integers vocabulary_;
  std::vector<std::int64_t> sorted_, order_;  // the terms in order, and their indices
  std::atomic<bool> called_ = false;
};

void add(Integers::Occurrences& occurrences, const Tensor& batch) {
  const std::vector<std::int64_t> all = integers_of(batch.cpu());
  const std::int64_t examples = batch.rank() == 0 ? 1 : batch.shape().word(0);
  if (examples == 0) return;
  const std::int64_t size = std::ssize(all) / examples;
  for (auto from = all.begin(); from != all.end(); from += size)
    occurrences.add({from, from + size});
}

IntegerLookupLayer& layer_of(const tandem::Layer& layer) {
  return static_cast<IntegerLookupLayer&>(layer.base());
}

}  // namespace

IntegerLookup::IntegerLookup(const IntegerLookupOptions& options)
    : tandem::Layer(std::make_shared<IntegerLookupLayer>(options)) {}

void IntegerLookup::adapt(const Tensor& integers) const {
  layer_of(*this).expect_adaptable();
  const data::PipelineScope scope;
  Integers::Occurrences occurrences;
  add(occurrences, integers);
  layer_of(*this).adopt(std::move(occurrences));
}

void IntegerLookup::adapt(const data::Dataset& batches) const {
  layer_of(*this).expect_adaptable();
  if (batches.cardinality() == data::kInfiniteCardinality)
    fail<InvalidArgumentError>("[{}] expected finite data, got an endless dataset: use take()",
                               base().label());
  const data::PipelineScope scope;
  Integers::Occurrences occurrences;
  for (const data::Example& batch : batches.iterate()) add(occurrences, batch[0]);
  layer_of(*this).adopt(std::move(occurrences));
}

std::vector<std::int64_t> IntegerLookup::vocabulary(bool include_special_tokens) const {
  const Integers& vocabulary = layer_of(*this).vocabulary();
  return include_special_tokens ? vocabulary.all() : vocabulary.terms();
}
std::vector<double> IntegerLookup::idf_weights() const {
  return layer_of(*this).vocabulary().idf();
}
std::int64_t IntegerLookup::vocabulary_size() const { return layer_of(*this).vocabulary().size(); }

}  // namespace tandem::layers
