#include "function/serialize_sizes.h"

#include <bit>

#include "core/status.h"

namespace tandem {
namespace {

using Kind = SizeTable::Kind;

constexpr int kMaxStored = 1 << 14;

}  // namespace

std::int64_t stored_size(const SizeTable& sizes, std::int64_t size) {
  return dim::is_unknown(size) ? dim::kFirstHandle - sizes.index_of(size) : size;
}

void write_sizes(const SizeTable& sizes, SizeMessages& to) {
  const int count = sizes.count();
  if (count > kMaxStored)
    fail<UnimplementedError>(
        "[Graph] the graph has {} expressions of unknown sizes; at most {} can "
        "be serialised",
        count, kMaxStored);
  for (std::int32_t i = 0; i < count; ++i) {
    const SizeTable::Expression expression = sizes.at(i);
    proto::Size& written = *to.Add();
    written.set_kind(static_cast<std::uint32_t>(expression.kind));
    written.set_name(expression.name);
    for (const std::int64_t part : expression.parts) written.add_parts(stored_size(sizes, part));
    for (const Polynomial::Term& term : expression.polynomial.terms()) {
      proto::Size::Term& made = *written.add_terms();
      made.set_factor(term.factor);
      for (const std::int32_t atom : term.atoms) made.add_atoms(static_cast<std::uint32_t>(atom));
    }
  }
}

StoredSizes::StoredSizes(const SizeMessages& from, SizeTable& sizes) {
  if (from.size() > kMaxStored)
    fail<InvalidArgumentError>("[Graph] expected at most {} expressions of unknown sizes, got {}",
                               kMaxStored, from.size());
  for (const proto::Size& size : from) sizes_.push_back(read(size, sizes));
}

std::int64_t StoredSizes::operator()(std::int64_t stored) const {
  if (!dim::is_unknown(stored)) return stored;
  if (stored > dim::kFirstHandle ||
      dim::kFirstHandle - stored >= static_cast<std::int64_t>(sizes_.size()))
    fail<InvalidArgumentError>("[Graph] the stored size {} has no expression before it", stored);
  return sizes_[static_cast<std::size_t>(dim::kFirstHandle - stored)];
}

std::int64_t StoredSizes::read(const proto::Size& from, SizeTable& sizes) const {
  const auto require = [](bool valid) {
    if (!valid) fail<InvalidArgumentError>("[Graph] an expression of unknown sizes is not valid");
  };
  require(from.kind() <= static_cast<std::uint32_t>(Kind::kScaled));
  const auto kind = static_cast<Kind>(from.kind());
  if (kind == Kind::kSymbol) return sizes.symbol(from.name());
  if (kind == Kind::kPolynomial) {
    std::vector<Polynomial::Term> terms;
    for (const proto::Size::Term& stored : from.terms()) {
      Polynomial::Term& term = terms.emplace_back(Polynomial::Term{{}, stored.factor()});
      for (const std::uint32_t number : stored.atoms()) {
        require(number < sizes_.size() && sizes.has(sizes_[number]));
        term.atoms.push_back(sizes.index_of(sizes_[number]));
        require(sizes.at(term.atoms.back()).kind != Kind::kPolynomial);
      }
    }
    return sizes.of_polynomial(terms);
  }
  std::vector<std::int64_t> parts;
  bool unknown = false;
  for (const std::int64_t part : from.parts()) {
    parts.push_back((*this)(part));
    unknown = unknown || dim::is_unknown(parts.back());
  }
  const bool of_two =
      kind == Kind::kQuotient || kind == Kind::kFloorQuotient || kind == Kind::kScaled;
  require(unknown && (of_two ? parts.size() == 2 : parts.size() >= 2));
  switch (kind) {
    case Kind::kQuotient: return sizes.quotient(parts[0], parts[1]);
    case Kind::kFloorQuotient: return sizes.floor_quotient(parts[0], parts[1]);
    case Kind::kBroadcast: return sizes.broadcast(parts);
    case Kind::kScaled:
      require(dim::is_unknown(parts[0]));
      return dim::scaled(parts[0], std::bit_cast<double>(parts[1]));
    default: return sizes.extreme(kind, parts);
  }
}

}  // namespace tandem
