// Lookups of strings, and of the tokens of documents.
#include <memory>

#include "core/atomic_file.h"
#include "data/stream.h"
#include "nn/hashing.h"
#include "nn/vocabulary.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/text_files.h"
#include "tandem/text_preprocessing.h"

namespace tandem::layers {
namespace {

using Strings = Vocabulary<std::string>;

// A vocabulary with an index of it.
class Lookup {
 public:
  template <class Options>
  Lookup(const char* label, const Options& options) : label_(label), vocabulary_(label, options) {
    index_terms();
  }
  Lookup(Lookup&&) = default;  // the strings keep their places

  const Strings& vocabulary() const { return vocabulary_; }
  void expect_adaptable() const { vocabulary_.expect_adaptable(); }
  void adopt(Strings::Occurrences occurrences) {
    if (occurrences.of_all.empty())
      fail<InvalidArgumentError>("[{}] expected strings to adapt to, got none", label_);
    vocabulary_.adopt(std::move(occurrences));
    index_terms();
  }

  std::int64_t operator()(std::string_view string) const {
    vocabulary_.expect_terms();
    if (vocabulary_.mask() && string == *vocabulary_.mask()) return vocabulary_.mask_index();
    const auto found = indices_.find(string);
    return found != indices_.end() ? found->second : unknown(string);
  }

  std::vector<std::string> terms(bool with_special) const {
    return with_special ? vocabulary_.all() : vocabulary_.terms();
  }

  void save(const std::string& path) const {
    vocabulary_.expect_terms();
    std::string lines;
    for (const std::string& term : vocabulary_.terms()) {
      if (term.find('\n') != std::string::npos)
        fail<InvalidArgumentError>(
            "[{}] expected strings without line ends to save, got one in '{}'", label_, term);
      lines += term + '\n';
    }
    AtomicFile file(path, label_);
    file.write(lines.data(), lines.size());
    file.commit();
  }

 private:
  void index_terms() {
    indices_.clear();
    std::int64_t index = vocabulary_.first_term();
    for (const std::string& term : vocabulary_.terms()) indices_.emplace(term, index++);
  }

  std::int64_t unknown(std::string_view string) const {
    const std::int64_t bins = vocabulary_.num_oov();
    if (bins == 0)
      fail<InvalidArgumentError>(
          "[{}] expected strings of the vocabulary without num_oov_indices, got '{}'; consider "
          "num_oov_indices = 1",
          label_, string);
    const std::uint64_t bin =
        bins == 1 ? 0 : fingerprint64(string) % static_cast<std::uint64_t>(bins);
    return vocabulary_.first_oov() + static_cast<std::int64_t>(bin);
  }

  std::string label_;
  Strings vocabulary_;
  std::unordered_map<std::string_view, std::int64_t> indices_;  // of the strings of vocabulary_
};

// One row of a result of several.
Tensor only_row(const Tensor& rows) { return squeeze(rows, {0}); }

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_punctuation(char c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
         (c >= '{' && c <= '~');
}
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// The bytes of the code point that `text` begins with; 0: it is no UTF-8.
std::size_t code_point_size(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const std::size_t size = first < 0x80   ? 1
                           : first < 0xc2 ? 0
                           : first < 0xe0 ? 2
                           : first < 0xf0 ? 3
                           : first < 0xf5 ? 4
                                          : 0;
  if (size > text.size()) return 0;
  for (std::size_t i = 1; i < size; ++i)
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) return 0;
  return size;
}

StringLookupOptions lookup_options(const TextVectorizationOptions& options) {
  return {.max_tokens = options.max_tokens,
          .mask_token = "",
          .vocabulary = options.vocabulary,
          .idf_weights = options.idf_weights,
          .output_mode = options.output_mode,
          .pad_to_max_tokens = options.pad_to_max_tokens};
}

// Splits documents by the options, which it checks.
class Splitter {
 public:
  explicit Splitter(const TextVectorizationOptions& options) : ngrams_(options.ngrams) {
    const std::string& standardize = options.standardize;
    lowers_ = standardize == "lower" || standardize == "lower_and_strip_punctuation";
    strips_ = standardize == "strip_punctuation" || standardize == "lower_and_strip_punctuation";
    if (!lowers_ && !strips_ && !standardize.empty())
      fail<InvalidArgumentError>(
          "[TextVectorization] expected standardize 'lower_and_strip_punctuation', 'lower', "
          "'strip_punctuation' or '', got '{}'",
          standardize);
    by_space_ = options.split == "whitespace";
    by_character_ = options.split == "character";
    if (!by_space_ && !by_character_ && !options.split.empty())
      fail<InvalidArgumentError>(
          "[TextVectorization] expected split 'whitespace', 'character' or '', got '{}'",
          options.split);
    for (const std::int64_t size : ngrams_)
      if (size < 1)
        fail<InvalidArgumentError>("[TextVectorization] expected ngrams of at least 1, got {}",
                                   size);
  }

  std::vector<std::string> operator()(std::string_view text) const {
    std::string standard;
    for (const char c : text)
      if (!strips_ || !is_punctuation(c)) standard += lowers_ ? lower(c) : c;
    std::vector<std::string> words = by_space_       ? split_by_space(standard)
                                     : by_character_ ? split_by_character(standard)
                                                     : std::vector<std::string>{standard};
    return ngrams_.empty() ? words : joined(words);
  }

 private:
  static std::vector<std::string> split_by_space(const std::string& text) {
    std::vector<std::string> words;
    bool inside = false;
    for (const char c : text) {
      if (is_space(c)) {
        inside = false;
        continue;
      }
      if (!inside) words.emplace_back();
      inside = true;
      words.back() += c;
    }
    return words;
  }

  // Bytes that are no UTF-8 become U+FFFD, one by one.
  static std::vector<std::string> split_by_character(std::string_view text) {
    std::vector<std::string> characters;
    while (!text.empty()) {
      const std::size_t size = code_point_size(text);
      characters.emplace_back(size == 0 ? std::string_view("\xef\xbf\xbd") : text.substr(0, size));
      text.remove_prefix(std::max<std::size_t>(size, 1));
    }
    return characters;
  }

  std::vector<std::string> joined(const std::vector<std::string>& words) const {
    std::vector<std::string> tokens;
    for (const std::int64_t length : ngrams_) {
      const auto size = static_cast<std::size_t>(length);
      for (std::size_t from = 0; from + size <= words.size(); ++from)
        tokens.push_back(fmt::format(
            "{}", fmt::join(words.begin() + static_cast<std::ptrdiff_t>(from),
                            words.begin() + static_cast<std::ptrdiff_t>(from + size), " ")));
    }
    return tokens;
  }

  bool lowers_ = false, strips_ = false, by_space_ = false, by_character_ = false;
  std::vector<std::int64_t> ngrams_;
};

}  // namespace

struct StringLookup::State {
  Lookup lookup;
};

StringLookup::StringLookup(const StringLookupOptions& options)
    : state_(std::make_shared<State>(State{Lookup("StringLookup", options)})) {}

void StringLookup::adapt(const data::StringColumn& strings) const {
  state_->lookup.expect_adaptable();
  Strings::Occurrences occurrences;
  for (std::int64_t row = 0; row < strings.size(); ++row)
    if (!strings.is_missing(row)) occurrences.add({std::string(strings[row])});
  state_->lookup.adopt(std::move(occurrences));
}

Tensor StringLookup::operator()(const data::StringColumn& strings) const {
  const Lookup& lookup = state_->lookup;
  const Strings& vocabulary = lookup.vocabulary();
  if (vocabulary.invert())
    throw InvalidArgumentError(
        "[StringLookup] expected indices with the option invert, got strings");
  std::vector<std::vector<std::int64_t>> rows;
  std::vector<std::int64_t> indices;
  for (std::int64_t row = 0; row < strings.size(); ++row) {
    const bool masked = strings.is_missing(row) && vocabulary.mask();
    indices.push_back(masked ? vocabulary.mask_index() : lookup(strings[row]));
  }
  const data::PipelineScope scope;
  if (vocabulary.mode() == OutputMode::kInt) return constant(indices);
  for (const std::int64_t index : indices) rows.push_back({index});
  return encoded_rows(vocabulary.mode(), rows, vocabulary.depth(), vocabulary.idf());
}

Tensor StringLookup::operator()(std::string_view string) const {
  return only_row((*this)({std::string(string)}));
}

data::StringColumn StringLookup::operator()(const Tensor& indices) const {
  const Strings& vocabulary = state_->lookup.vocabulary();
  if (!vocabulary.invert())
    throw InvalidArgumentError(
        "[StringLookup] expected strings without the option invert, got indices");
  if (is_floating(indices.dtype()))
    fail<DTypeError>("[StringLookup] expected integers, got {}", name_of(indices.dtype()));
  vocabulary.expect_terms();
  const data::PipelineScope scope;
  const std::vector<std::string> all = vocabulary.all();
  data::StringColumn strings;
  for (const std::int64_t index : integers_of(indices.cpu())) {
    const bool known = index >= 0 && index < std::ssize(all);
    strings.push_back(known ? all[static_cast<std::size_t>(index)] : vocabulary.oov());
  }
  return strings;
}

std::vector<std::string> StringLookup::vocabulary(bool include_special_tokens) const {
  return state_->lookup.terms(include_special_tokens);
}
std::vector<double> StringLookup::idf_weights() const { return state_->lookup.vocabulary().idf(); }
std::int64_t StringLookup::vocabulary_size() const { return state_->lookup.vocabulary().size(); }
void StringLookup::save_vocabulary(const std::string& path) const { state_->lookup.save(path); }

struct TextVectorization::State {
  Splitter split;
  Lookup lookup;
  std::optional<std::int64_t> length;

  // The indices of a document's tokens.
  std::vector<std::int64_t> indices_of(std::string_view text) const {
    std::vector<std::int64_t> indices;
    for (const std::string& token : split(text)) indices.push_back(lookup(token));
    return indices;
  }
};

TextVectorization::TextVectorization(const TextVectorizationOptions& options)
    : state_(std::make_shared<State>(State{Splitter(options),
                                           Lookup("TextVectorization", lookup_options(options)),
                                           options.output_sequence_length})) {
  if (options.output_mode == "one_hot")
    throw InvalidArgumentError(
        "[TextVectorization] expected one of the output modes int, multi_hot, count, tf_idf; got "
        "'one_hot'");
  if (!options.output_sequence_length) return;
  if (options.output_mode != "int")
    fail<InvalidArgumentError>(
        "[TextVectorization] expected output_sequence_length with the output mode 'int' alone, got "
        "'{}'",
        options.output_mode);
  if (*options.output_sequence_length < 1)
    fail<InvalidArgumentError>("[TextVectorization] expected a positive length, got {}",
                               *options.output_sequence_length);
}

void TextVectorization::adapt(const data::StringColumn& documents) const {
  state_->lookup.expect_adaptable();
  Strings::Occurrences occurrences;
  for (std::int64_t row = 0; row < documents.size(); ++row)
    if (!documents.is_missing(row)) occurrences.add(tokens(documents[row]));
  state_->lookup.adopt(std::move(occurrences));
}

void TextVectorization::adapt(const data::Dataset& documents) const {
  state_->lookup.expect_adaptable();
  if (documents.cardinality() == data::kInfiniteCardinality)
    throw InvalidArgumentError(
        "[TextVectorization] expected finite data, got an endless dataset: use take()");
  Strings::Occurrences occurrences;
  for (const data::Example& text : documents.iterate())
    occurrences.add(tokens(data::text_of(text[0])));
  state_->lookup.adopt(std::move(occurrences));
}

Tensor TextVectorization::operator()(const data::StringColumn& documents) const {
  const Strings& vocabulary = state_->lookup.vocabulary();
  std::vector<std::vector<std::int64_t>> rows;
  std::size_t longest = 0;
  for (std::int64_t row = 0; row < documents.size(); ++row) {
    rows.push_back(documents.is_missing(row) ? std::vector<std::int64_t>()
                                             : state_->indices_of(documents[row]));
    longest = std::max(longest, rows.back().size());
  }
  if (vocabulary.mode() != OutputMode::kInt)
    return encoded_rows(vocabulary.mode(), rows, vocabulary.depth(), vocabulary.idf());
  const auto length = state_->length ? static_cast<std::size_t>(*state_->length) : longest;
  std::vector<std::int64_t> padded;
  for (std::vector<std::int64_t>& row : rows) {
    row.resize(length, 0);
    padded.insert(padded.end(), row.begin(), row.end());
  }
  const data::PipelineScope scope;
  return constant(padded, {.shape = {documents.size(), static_cast<std::int64_t>(length)}});
}

Tensor TextVectorization::operator()(std::string_view text) const {
  return only_row((*this)({std::string(text)}));
}

std::vector<std::string> TextVectorization::tokens(std::string_view text) const {
  return state_->split(text);
}
std::vector<std::string> TextVectorization::vocabulary(bool include_special_tokens) const {
  return state_->lookup.terms(include_special_tokens);
}
std::vector<double> TextVectorization::idf_weights() const {
  return state_->lookup.vocabulary().idf();
}
std::int64_t TextVectorization::vocabulary_size() const {
  return state_->lookup.vocabulary().size();
}
void TextVectorization::save_vocabulary(const std::string& path) const {
  state_->lookup.save(path);
}

}  // namespace tandem::layers
