#include "core/size_table.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <unordered_map>

#include "core/dim.h"
#include "core/mutex.h"
#include "core/status.h"

namespace tandem {
namespace {

// A handle is kFirstHandle - kDistance * (id * kMaxExpressions + index) - kRest. Twice a handle, a
// sum of two, and one plus a small number have another rest.
constexpr std::int64_t kDistance = 1 << 12, kRest = 1365;
constexpr std::int64_t kMaxTables = std::int64_t{1} << 30;
// Expressions are evaluated by recursion.
constexpr int kMaxDepth = 1000;
// This bounds the memory for untrusted graphs.
constexpr std::size_t kMaxWeight = std::size_t{1} << 22;
constexpr std::size_t kMaxText = 200;

std::int64_t number_of(std::int64_t handle) {
  const std::int64_t distance = dim::kFirstHandle - handle - kRest;
  return distance >= 0 && distance % kDistance == 0 ? distance / kDistance : -1;
}

struct Tables {
  std::mutex mutex;
  std::int64_t next = 0;
  std::unordered_map<std::int64_t, std::weak_ptr<SizeTable>> by_id;
};

// Never destroyed: graphs may be destroyed while the process exits.
Tables& tables() {
  static auto* const all = new Tables();
  return *all;
}

[[noreturn]] void refuse_number() {
  fail<InvalidArgumentError>(
      "[Shape] a number was computed from a size that is not known when the graph is made");
}

}  // namespace

std::shared_ptr<SizeTable> SizeTable::make() {
  // A fork waits until no other thread uses a table.
  class AllTables final : public AtFork {
   public:
    AllTables() { begin(); }
    bool hold() override {
      if (!(locked_ = tables().mutex.try_lock())) return false;
      for (const auto& [id, weak] : tables().by_id) {
        std::shared_ptr<SizeTable> table = weak.lock();
        if (table && !table->mutex_.try_lock()) return false;
        if (table) held_.push_back(std::move(table));
      }
      return true;
    }
    void after(bool) override {
      for (const auto& table : held_) table->mutex_.unlock();
      if (std::exchange(locked_, false)) tables().mutex.unlock();
      held_.clear();
    }
    // A recursive lock is its thread's, which has another number in the new process.
    void forked(bool held) override {
      if (!held && !locked_) std::construct_at(&tables().mutex);
      for (const auto& table : held_) {
        std::construct_at(&table->mutex_);
        table->mutex_.lock();
      }
    }

   private:
    bool locked_ = false;
    std::vector<std::shared_ptr<SizeTable>> held_;
  };
  static const auto& at_fork = *new AllTables;
  static_cast<void>(at_fork);
  Tables& all = tables();
  const std::lock_guard lock(all.mutex);
  while (all.by_id.contains(all.next)) all.next = (all.next + 1) % kMaxTables;
  const std::int64_t id = all.next;
  all.next = (id + 1) % kMaxTables;
  std::shared_ptr<SizeTable> made(new SizeTable(id));
  all.by_id.emplace(id, made);
  return made;
}

SizeTable::~SizeTable() {
  Tables& all = tables();
  const std::lock_guard lock(all.mutex);
  all.by_id.erase(id_);
}

std::shared_ptr<SizeTable> SizeTable::of(std::int64_t handle) {
  const std::int64_t number = number_of(handle);
  if (number < 0) refuse_number();
  std::shared_ptr<SizeTable> table;
  {
    Tables& all = tables();
    const std::lock_guard lock(all.mutex);
    const auto found = all.by_id.find(number / kMaxExpressions);
    if (found != all.by_id.end()) table = found->second.lock();
  }
  if (!table || !table->has(handle)) refuse_number();
  return table;
}

int SizeTable::count() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(expressions_.size());
}

bool SizeTable::has(std::int64_t number) const {
  const std::lock_guard lock(mutex_);
  const std::int64_t place = number_of(number);
  return place >= 0 && place / kMaxExpressions == id_ &&
         place % kMaxExpressions < static_cast<std::int64_t>(expressions_.size());
}

std::int64_t SizeTable::handle(std::int32_t index) const {
  return dim::kFirstHandle - kDistance * (id_ * kMaxExpressions + index) - kRest;
}

std::int32_t SizeTable::index_of(std::int64_t handle) const {
  return static_cast<std::int32_t>(number_of(handle) % kMaxExpressions);
}

SizeTable::Expression SizeTable::at(std::int32_t index) const {
  const std::lock_guard lock(mutex_);
  return expressions_.at(static_cast<std::size_t>(index));
}

// --- making expressions ---

std::int64_t SizeTable::add(Expression expression) {
  weight_ += 1 + expression.parts.size();
  for (const Polynomial::Term& term : expression.polynomial.terms())
    weight_ += 1 + term.atoms.size();
  if (expressions_.size() >= kMaxExpressions || weight_ > kMaxWeight ||
      expression.depth > kMaxDepth)
    fail<InvalidArgumentError>(
        "[Shape] expected at most {} expressions of unknown sizes in a graph, nested {} deep",
        kMaxExpressions, kMaxDepth);
  expressions_.push_back(std::move(expression));
  return handle(static_cast<std::int32_t>(expressions_.size()) - 1);
}

std::int64_t SizeTable::symbol(std::string name) {
  const std::lock_guard lock(mutex_);
  return add({.kind = Kind::kSymbol, .name = std::move(name)});
}

std::int64_t SizeTable::intern(Kind kind, std::vector<std::int64_t> parts) {
  Key key(kind, {}, parts);
  if (const auto found = by_content_.find(key); found != by_content_.end()) return found->second;
  Expression made{.kind = kind, .parts = std::move(parts)};
  const auto is_never_negative = [this](std::int64_t part) { return never_negative(part); };
  made.never_negative = kind == Kind::kBroadcast ||
                        (kind == Kind::kMax ? std::ranges::any_of(made.parts, is_never_negative)
                                            : std::ranges::all_of(made.parts, is_never_negative));
  for (const std::int64_t part : made.parts)
    if (dim::is_unknown(part))
      made.depth = std::max(made.depth, 1 + expressions_[index_of(part)].depth);
  return by_content_[std::move(key)] = add(std::move(made));
}

Polynomial SizeTable::polynomial_of(std::int64_t size) const {
  if (!dim::is_unknown(size)) return Polynomial(size);
  if (!has(size))
    fail<InvalidArgumentError>("[Shape] expected unknown sizes of one graph, got {} of another",
                               dim::text(size));
  const std::int32_t index = index_of(size);
  const Expression& expression = expressions_[static_cast<std::size_t>(index)];
  return expression.kind == Kind::kPolynomial ? expression.polynomial : Polynomial::of_atom(index);
}

std::int64_t SizeTable::size_of(const Polynomial& polynomial) {
  if (const auto constant = polynomial.constant()) {
    if (dim::is_unknown(*constant)) refuse_size(*constant, '+', 0);
    return *constant;
  }
  if (const auto atom = polynomial.atom()) return handle(*atom);
  Key key(Kind::kPolynomial, polynomial, {});
  if (const auto found = by_content_.find(key); found != by_content_.end()) return found->second;
  Expression made{.kind = Kind::kPolynomial, .polynomial = polynomial};
  made.never_negative = at_least(polynomial, 0);
  for (const Polynomial::Term& term : polynomial.terms())
    for (const std::int32_t atom : term.atoms)
      made.depth = std::max(made.depth, 1 + expressions_[static_cast<std::size_t>(atom)].depth);
  return by_content_[std::move(key)] = add(std::move(made));
}

std::int64_t SizeTable::of_polynomial(std::vector<Polynomial::Term> terms) {
  const std::lock_guard lock(mutex_);
  return size_of(Polynomial(std::move(terms)));
}

std::int64_t SizeTable::combine(char op, std::int64_t a, std::int64_t b) {
  const std::lock_guard lock(mutex_);
  const Polynomial left = polynomial_of(a), right = polynomial_of(b);
  return size_of(op == '+' ? left + right : op == '-' ? left - right : left * right);
}

std::int64_t SizeTable::quotient(std::int64_t a, std::int64_t b) {
  const std::lock_guard lock(mutex_);
  if (const auto divided = Polynomial::quotient(polynomial_of(a), polynomial_of(b)))
    return size_of(*divided);
  return intern(Kind::kQuotient, {a, b});
}

std::int64_t SizeTable::floor_quotient(std::int64_t a, std::int64_t b) {
  const std::lock_guard lock(mutex_);
  const Polynomial top = polynomial_of(a), bottom = polynomial_of(b);
  if (const auto divided = Polynomial::quotient(top, bottom)) return size_of(*divided);
  if (dim::is_unknown(b)) return intern(Kind::kFloorQuotient, {a, b});
  if (b <= 0) fail<InvalidArgumentError>("[Shape] expected a divisor above 0, got {}", b);
  // The multiples of b leave the quotient: (b * p + r) / b is p + r / b.
  std::vector<Polynomial::Term> whole, rest;
  for (const Polynomial::Term& term : top.terms()) {
    const std::int64_t times = dim::floor_quotient(term.factor, b);
    whole.push_back({term.atoms, times});
    rest.push_back({term.atoms, term.factor - times * b});
  }
  const std::int64_t left = size_of(Polynomial(std::move(rest)));
  const std::int64_t rounded =
      dim::is_unknown(left) ? intern(Kind::kFloorQuotient, {left, b}) : left / b;
  return size_of(Polynomial(std::move(whole)) + polynomial_of(rounded));
}

// The parts of an expression of the same kind take its place: min(min(a, b), c) is min(a, b, c).
void SizeTable::append_flat(Kind kind, std::int64_t part, std::vector<std::int64_t>& parts) const {
  polynomial_of(part);  // checks that it is of this table
  if (dim::is_unknown(part)) {
    const Expression& expression = expressions_[static_cast<std::size_t>(index_of(part))];
    if (expression.kind == kind) {
      parts.insert(parts.end(), expression.parts.begin(), expression.parts.end());
      return;
    }
  }
  parts.push_back(part);
}

std::int64_t SizeTable::extreme(Kind kind, std::span<const std::int64_t> parts) {
  const std::lock_guard lock(mutex_);
  std::vector<std::int64_t> flat, kept;
  for (const std::int64_t part : parts) append_flat(kind, part, flat);
  std::sort(flat.begin(), flat.end());
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  for (const std::int64_t part : flat) {
    const bool decided = std::ranges::any_of(flat, [&](std::int64_t other) {
      return other != part &&
             at_least(kind == Kind::kMax ? difference(other, part) : difference(part, other), 0);
    });
    if (!decided) kept.push_back(part);
  }
  return kept.size() == 1 ? kept[0] : intern(kind, std::move(kept));
}

std::int64_t SizeTable::broadcast(std::span<const std::int64_t> parts) {
  const std::lock_guard lock(mutex_);
  std::vector<std::int64_t> flat;
  for (const std::int64_t part : parts) append_flat(Kind::kBroadcast, part, flat);
  std::sort(flat.begin(), flat.end());
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  std::erase(flat, 1);
  // A known size other than 1 is the result, and so is an unknown one that is never 1.
  for (auto part = flat.rbegin(); part != flat.rend(); ++part)
    if (!may_equal(*part, 1)) return *part;
  return flat.empty() ? 1 : flat.size() == 1 ? flat[0] : intern(Kind::kBroadcast, std::move(flat));
}

std::int64_t SizeTable::scaled(std::int64_t a, double factor) {
  // Products of whole numbers are exact.
  if (factor == std::floor(factor) && factor < 0x1p31)
    return combine('*', a, static_cast<std::int64_t>(factor));
  const std::lock_guard lock(mutex_);
  polynomial_of(a);  // checks that it is of this table
  return intern(Kind::kScaled, {a, std::bit_cast<std::int64_t>(factor)});
}

// --- what holds for all sizes ---

Polynomial SizeTable::difference(std::int64_t a, std::int64_t b) const {
  const std::lock_guard lock(mutex_);
  return polynomial_of(a) - polynomial_of(b);
}

bool SizeTable::never_negative(std::int64_t size) const {
  return dim::is_unknown(size)
             ? expressions_[static_cast<std::size_t>(index_of(size))].never_negative
             : size >= 0;
}

bool SizeTable::at_least(const Polynomial& polynomial, std::int64_t limit) const {
  const std::lock_guard lock(mutex_);
  if (polynomial.constant_term() < limit) return false;
  return std::ranges::all_of(polynomial.terms(), [&](const Polynomial::Term& term) {
    return term.atoms.empty() ||
           (term.factor > 0 && std::ranges::all_of(term.atoms, [&](std::int32_t atom) {
              return expressions_[static_cast<std::size_t>(atom)].never_negative;
            }));
  });
}

bool SizeTable::may_equal(std::int64_t a, std::int64_t b) const {
  const std::lock_guard lock(mutex_);
  const Polynomial rest = difference(a, b);
  if (const auto constant = rest.constant()) return *constant == 0;
  return rest.constant_term() % rest.common_factor() == 0 && !at_least(rest, 1) &&
         !at_least(Polynomial() - rest, 1);
}

// --- values ---

std::int64_t SizeTable::evaluate(std::int64_t handle, std::vector<std::int64_t>& values) const {
  const std::lock_guard lock(mutex_);
  if (!has(handle)) refuse_number();
  values.resize(std::max(values.size(), expressions_.size()), kUnset);
  return value_of(handle, values);
}

std::int64_t SizeTable::value_of(std::int64_t size, std::vector<std::int64_t>& values) const {
  if (!dim::is_unknown(size)) return size;
  const auto index = static_cast<std::size_t>(index_of(size));
  if (values[index] == kUnset && expressions_[index].kind != Kind::kSymbol)
    values[index] = compute(expressions_[index], values);
  return values[index];
}

std::int64_t SizeTable::compute(const Expression& expression,
                                std::vector<std::int64_t>& values) const {
  if (expression.kind == Kind::kPolynomial) {
    for (const Polynomial::Term& term : expression.polynomial.terms())
      for (const std::int32_t atom : term.atoms)
        if (value_of(handle(atom), values) == kUnset) return kUnset;
    return expression.polynomial.value(
        [&](std::int32_t atom) { return values[static_cast<std::size_t>(atom)]; });
  }
  std::vector<std::int64_t> parts;
  for (const std::int64_t part : expression.parts) {
    parts.push_back(value_of(part, values));
    if (parts.back() == kUnset) return kUnset;
  }
  switch (expression.kind) {
    case Kind::kQuotient:
    case Kind::kFloorQuotient:
      if (parts[1] <= 0 || (expression.kind == Kind::kQuotient && parts[0] % parts[1] != 0))
        fail<ShapeError>("[Shape] expected a multiple of {}, which is {}, got {}, which is {}",
                         text_of(expression.parts[1]), parts[1], text_of(expression.parts[0]),
                         parts[0]);
      return dim::floor_quotient(parts[0], parts[1]);
    case Kind::kMin: return *std::ranges::min_element(parts);
    case Kind::kMax: return *std::ranges::max_element(parts);
    case Kind::kScaled: return dim::scaled(parts[0], std::bit_cast<double>(parts[1]));
    default: break;
  }
  std::int64_t size = 1;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!dim::may_broadcast(size, parts[i]))
      fail<ShapeError>("[Shape] expected sizes that broadcast together, got {} and {} ({})", size,
                       parts[i], text_of(expression.parts[i]));
    size = dim::broadcast(size, parts[i]);
  }
  return size;
}

// --- messages ---

std::string SizeTable::text_of(const Polynomial& polynomial) const {
  std::string text;
  // The constant is the first term, and is written last.
  std::vector<Polynomial::Term> terms = polynomial.terms();
  if (terms.size() > 1 && terms.front().atoms.empty())
    std::rotate(terms.begin(), terms.begin() + 1, terms.end());
  for (const Polynomial::Term& term : terms) {
    const std::int64_t factor = term.factor < 0 && !text.empty() ? -term.factor : term.factor;
    if (!text.empty()) text += term.factor < 0 ? " - " : " + ";
    if (term.atoms.empty() || factor != 1) text += std::to_string(factor);
    for (std::size_t i = 0; i < term.atoms.size(); ++i)
      text += (i > 0 || factor != 1 ? " * " : "") + text_of(handle(term.atoms[i]));
    if (text.size() > kMaxText) return "?";
  }
  return text;
}

std::string SizeTable::text_of(std::int64_t size) const {
  if (!dim::is_unknown(size)) return std::to_string(size);
  const Expression& expression = expressions_[static_cast<std::size_t>(index_of(size))];
  const auto list = [&](const char* separator) {
    std::string text;
    for (const std::int64_t part : expression.parts)
      if (text.size() <= kMaxText) text += (text.empty() ? "" : separator) + text_of(part);
    return text.size() > kMaxText ? std::string("?") : text;
  };
  switch (expression.kind) {
    case Kind::kSymbol: return expression.name.empty() ? "?" : expression.name;
    case Kind::kPolynomial: return "(" + text_of(expression.polynomial) + ")";
    case Kind::kQuotient: return "(" + list(" / ") + ")";
    case Kind::kFloorQuotient: return "floor(" + list(" / ") + ")";
    case Kind::kMin: return "min(" + list(", ") + ")";
    case Kind::kMax: return "max(" + list(", ") + ")";
    case Kind::kBroadcast: return "broadcast(" + list(", ") + ")";
    case Kind::kScaled:
      return fmt::format("floor({} * {})", text_of(expression.parts[0]),
                         std::bit_cast<double>(expression.parts[1]));
  }
  return "?";
}

std::string SizeTable::text(std::int64_t handle) const {
  const std::lock_guard lock(mutex_);
  return text_of(handle);
}

}  // namespace tandem
