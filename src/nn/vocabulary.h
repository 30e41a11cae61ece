// The vocabulary of a lookup: terms, integers or strings, with their indices.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/status.h"
#include "nn/categories.h"

namespace tandem {

template <class Term>
class Vocabulary {
 public:
  using Counts = std::unordered_map<Term, std::int64_t>;
  // How often each term occurs, in all examples and in how many of them.
  struct Occurrences {
    Counts of_all, of_examples;
    std::int64_t examples = 0;

    // `terms`: those of one example.
    void add(const std::vector<Term>& terms) {
      std::unordered_set<Term> seen;
      for (const Term& term : terms) {
        ++of_all[term];
        if (seen.insert(term).second) ++of_examples[term];
      }
      ++examples;
    }
  };

  // The options of both lookups. Throws InvalidArgumentError "[label] ...".
  template <class Options>
  Vocabulary(std::string label, const Options& options)
      : label_(std::move(label)),
        max_tokens_(options.max_tokens),
        num_oov_(options.num_oov_indices),
        mask_(options.mask_token),
        oov_(options.oov_token),
        mode_(output_mode_from_name(label_, options.output_mode,
                                    {OutputMode::kInt, OutputMode::kOneHot, OutputMode::kMultiHot,
                                     OutputMode::kCount, OutputMode::kTfIdf})),
        invert_(options.invert),
        pads_(options.pad_to_max_tokens) {
    check();
    if (!options.vocabulary.empty()) {
      set(options.vocabulary, options.idf_weights);
      given_ = true;
    } else if (!options.idf_weights.empty()) {
      fail<InvalidArgumentError>("[{}] expected a vocabulary for idf_weights, got none", label_);
    }
  }

  OutputMode mode() const { return mode_; }
  bool invert() const { return invert_; }
  const std::optional<Term>& mask() const { return mask_; }
  std::int64_t num_oov() const { return num_oov_; }
  const Term& oov() const { return oov_; }
  const std::vector<Term>& terms() const { return terms_; }  // without special ones
  const std::vector<double>& idf() const { return idf_; }    // by index
  std::int64_t first_oov() const { return mask_ && mode_ == OutputMode::kInt ? 1 : 0; }
  std::int64_t first_term() const { return first_oov() + num_oov_; }
  std::int64_t size() const { return first_term() + std::ssize(terms_); }
  std::int64_t depth() const { return pads_ ? *max_tokens_ : size(); }  // of vectors
  // The index of a masked term: no category in vectors.
  std::int64_t mask_index() const { return mode_ == OutputMode::kInt ? 0 : -1; }

  // Throws FailedPreconditionError without terms.
  void expect_terms() const {
    if (terms_.empty())
      fail<FailedPreconditionError>(
          "[{}] expected a vocabulary, got none: call adapt(), or give the option `vocabulary`",
          label_);
  }
  void expect_adaptable() const {
    if (given_)
      fail<FailedPreconditionError>(
          "[{}] the option `vocabulary` is given, which adapt() would replace: leave one out",
          label_);
  }

  // Term `index` with the special ones.
  std::vector<Term> all() const {
    std::vector<Term> all;
    if (first_oov() == 1) all.push_back(*mask_);
    all.insert(all.end(), static_cast<std::size_t>(num_oov_), oov_);
    all.insert(all.end(), terms_.begin(), terms_.end());
    return all;
  }

  // Takes the most frequent terms; of equally frequent ones the last.
  void adopt(Occurrences occurrences) {
    if (mask_) occurrences.of_all.erase(*mask_);
    occurrences.of_all.erase(oov_);
    std::vector<std::pair<std::int64_t, Term>> sorted;
    sorted.reserve(occurrences.of_all.size());
    for (const auto& [term, count] : occurrences.of_all) sorted.emplace_back(count, term);
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    if (max_tokens_) {
      const auto most =
          static_cast<std::size_t>(std::max<std::int64_t>(*max_tokens_ - first_term(), 0));
      if (sorted.size() > most) sorted.resize(most);
    }
    terms_.clear();
    idf_.clear();
    for (auto& [count, term] : sorted) {
      const auto having = static_cast<double>(occurrences.of_examples[term]);
      idf_.push_back(std::log(1.0 + static_cast<double>(occurrences.examples) / (1.0 + having)));
      terms_.push_back(std::move(term));
    }
    finish_idf(false);
  }

 private:
  void check() const {
    if (max_tokens_ && *max_tokens_ <= 1)
      fail<InvalidArgumentError>("[{}] expected max_tokens of at least 2, got {}", label_,
                                 *max_tokens_);
    if (pads_ && !max_tokens_)
      fail<InvalidArgumentError>("[{}] expected max_tokens with pad_to_max_tokens, got none",
                                 label_);
    if (num_oov_ < 0)
      fail<InvalidArgumentError>("[{}] expected num_oov_indices of at least 0, got {}", label_,
                                 num_oov_);
    if (invert_ && mode_ != OutputMode::kInt)
      fail<InvalidArgumentError>("[{}] expected the output mode 'int' with invert, got another",
                                 label_);
  }

  // `given` may begin with the special terms.
  void set(const std::vector<Term>& given, const std::vector<double>& idf) {
    terms_.clear();
    const std::vector<Term> special = all();
    const bool has_special =
        given.size() >= special.size() && std::equal(special.begin(), special.end(), given.begin());
    terms_.assign(given.begin() + (has_special ? std::ssize(special) : 0), given.end());
    std::unordered_set<Term> seen;
    for (const Term& term : terms_) {
      if (!seen.insert(term).second)
        fail<InvalidArgumentError>("[{}] expected a vocabulary of different terms, got '{}' twice",
                                   label_, term);
      if ((mask_ && term == *mask_) || (invert_ && term == oov_))
        fail<InvalidArgumentError>(
            "[{}] expected a vocabulary without the special terms, or with all of them at its "
            "beginning, got '{}' at {}",
            label_, term,
            has_special ? std::ssize(seen) - 1 + std::ssize(special) : std::ssize(seen) - 1);
    }
    if (max_tokens_ && size() > *max_tokens_)
      fail<InvalidArgumentError>("[{}] expected a vocabulary of at most {} terms, got {}", label_,
                                 *max_tokens_, size());
    set_idf(idf, given.size(), has_special);
  }

  void set_idf(const std::vector<double>& idf, std::size_t expected, bool has_special) {
    if ((mode_ == OutputMode::kTfIdf) == idf.empty())
      fail<InvalidArgumentError>(
          "[{}] expected idf_weights with the output mode 'tf_idf' and not with others", label_);
    if (idf.empty()) return;
    if (idf.size() != expected)
      fail<InvalidArgumentError>("[{}] expected {} idf_weights, as terms, got {}", label_, expected,
                                 idf.size());
    idf_ = idf;
    finish_idf(has_special);
  }

  // Terms out of the vocabulary have the mean weight, because theirs is not known.
  void finish_idf(bool has_special) {
    if (mode_ != OutputMode::kTfIdf) idf_.clear();
    if (idf_.empty()) return;
    double mean = 0.0;
    for (const double weight : idf_) mean += weight / static_cast<double>(idf_.size());
    if (!has_special) idf_.insert(idf_.begin(), static_cast<std::size_t>(first_term()), mean);
    idf_.resize(static_cast<std::size_t>(depth()), 0.0);
  }

  std::string label_;
  std::optional<std::int64_t> max_tokens_;
  std::int64_t num_oov_;
  std::optional<Term> mask_;
  Term oov_;
  OutputMode mode_;
  bool invert_, pads_;
  bool given_ = false;
  std::vector<Term> terms_;
  std::vector<double> idf_;
};

}  // namespace tandem
