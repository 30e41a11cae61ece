// The expressions of the unknown sizes of one graph. core/dim.h is how others compute with them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "core/polynomial.h"

namespace tandem {

// Thread-safe. Equal expressions get equal handles, and the parts of an expression are in the table
// before it.
class SizeTable {
 public:
  enum class Kind : std::uint8_t {
    kSymbol,
    kPolynomial,
    kQuotient,       // of parts[0] and parts[1], which divides
    kFloorQuotient,  // rounded down
    kMin,            // of two or more parts
    kMax,
    kBroadcast,
    kScaled,  // parts[0] times the double whose bits are parts[1], rounded down
  };
  struct Expression {
    Kind kind = Kind::kSymbol;
    std::string name;                      // kSymbol: for messages, "axis 0 of argument 'x'"
    Polynomial polynomial;                 // kPolynomial: of expressions of other kinds
    std::vector<std::int64_t> parts = {};  // sizes
    bool never_negative = true;
    int depth = 0;
  };
  static constexpr std::int32_t kMaxExpressions = 1 << 20;

  static std::shared_ptr<SizeTable> make();
  ~SizeTable();
  SizeTable(const SizeTable&) = delete;
  SizeTable& operator=(const SizeTable&) = delete;

  // The table of a handle. Throws InvalidArgumentError for other numbers.
  static std::shared_ptr<SizeTable> of(std::int64_t handle);

  std::int64_t symbol(std::string name);
  // As the functions of dim, of parts of which at least one is unknown.
  std::int64_t quotient(std::int64_t a, std::int64_t b);
  std::int64_t floor_quotient(std::int64_t a, std::int64_t b);
  std::int64_t extreme(Kind kind, std::span<const std::int64_t> parts);  // kMin, kMax
  std::int64_t broadcast(std::span<const std::int64_t> parts);
  std::int64_t scaled(std::int64_t a, double factor);
  std::int64_t combine(char op, std::int64_t a, std::int64_t b);  // '+', '-', '*'
  // The polynomial of terms in any order, over expressions of other kinds.
  std::int64_t of_polynomial(std::vector<Polynomial::Term> terms);

  Polynomial difference(std::int64_t a, std::int64_t b) const;
  bool may_equal(std::int64_t a, std::int64_t b) const;
  // Whether the polynomial has no value below `limit`, as far as its terms show it.
  bool at_least(const Polynomial& polynomial, std::int64_t limit) const;

  int count() const;
  // Whether the number is a handle of this table.
  bool has(std::int64_t number) const;
  std::int64_t handle(std::int32_t index) const;
  // REQUIRES: has(handle).
  std::int32_t index_of(std::int64_t handle) const;
  Expression at(std::int32_t index) const;
  std::string text(std::int64_t handle) const;

  // The value of an expression. `values`: those that are known, by index, and kUnset; the function
  // adds all that it computes. Returns kUnset if it depends on a symbol without a value. Throws
  // ShapeError if it has no value: sizes that do not divide or broadcast.
  static constexpr std::int64_t kUnset = INT64_MIN;
  std::int64_t evaluate(std::int64_t handle, std::vector<std::int64_t>& values) const;

 private:
  using Key = std::tuple<Kind, Polynomial, std::vector<std::int64_t>>;

  explicit SizeTable(std::int64_t id) : id_(id) {}
  std::int64_t add(Expression expression);
  std::int64_t intern(Kind kind, std::vector<std::int64_t> parts);
  Polynomial polynomial_of(std::int64_t size) const;
  std::int64_t size_of(const Polynomial& polynomial);
  bool never_negative(std::int64_t size) const;
  void append_flat(Kind kind, std::int64_t part, std::vector<std::int64_t>& parts) const;
  std::int64_t value_of(std::int64_t size, std::vector<std::int64_t>& values) const;
  std::int64_t compute(const Expression& expression, std::vector<std::int64_t>& values) const;
  std::string text_of(std::int64_t size) const;
  std::string text_of(const Polynomial& polynomial) const;

  const std::int64_t id_;
  mutable std::recursive_mutex mutex_;
  std::vector<Expression> expressions_;
  std::size_t weight_ = 0;  // the numbers that the expressions consist of
  std::map<Key, std::int64_t> by_content_;
};

namespace dim {

// a * factor in float64, rounded down. Throws InvalidArgumentError unless the factor is finite and
// above 0, and ShapeError if the result exceeds 63 bits.
std::int64_t scaled(std::int64_t a, double factor);

}  // namespace dim
}  // namespace tandem
