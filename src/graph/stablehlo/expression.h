// Element-wise formulas in StableHLO, written with operators. Operands have one shape and one
// element type; numbers are repeated.
#pragma once

#include <string_view>
#include <utility>

#include "graph/stablehlo/builder.h"

namespace tandem::stablehlo {

class Expression {
 public:
  Expression(Builder& build, Value value) : build_(&build), value_(std::move(value)) {}

  const Value& value() const { return value_; }
  const Shape& shape() const { return value_.shape(); }
  Element element() const { return value_.element(); }

  Expression like(double number) const { return with(build_->like(value_, number)); }
  // A size as a number, like this value; it may be unknown (core/dim.h).
  Expression size(std::int64_t size) const { return with(build_->size(size, value_.type)); }
  Expression as(Element element) const { return with(build_->convert(value_, element)); }
  Expression unary(std::string_view operation) const {
    return with(build_->unary(operation, value_));
  }
  Expression binary(std::string_view operation, const Expression& other) const {
    return with(build_->binary(operation, value_, other.value_));
  }
  Expression compare(std::string_view direction, const Expression& other) const {
    return with(build_->compare(direction, value_, other.value_));
  }
  // This value where `condition` is true.
  Expression where(const Expression& condition, const Expression& otherwise) const {
    return with(build_->select(condition.value_, value_, otherwise.value_));
  }
  // A value of fewer axes that are the last ones, or of sizes of 1, repeated to this shape.
  Expression repeat(const Value& value) const { return with(build_->broadcast_to(value, shape())); }
  // The same for a value whose axis i is axis axes[i] of this shape.
  Expression repeat(const Value& value, const Axes& axes) const {
    return with(build_->broadcast(value, shape(), axes));
  }
  // The sum over `axes`, which the result does not have; float32 for 16-bit elements.
  Expression sum(const Axes& axes) const { return with(build_->sum(value_, axes)); }

 private:
  Expression with(Value value) const { return {*build_, std::move(value)}; }

  Builder* build_;
  Value value_;
};

inline Expression operator+(const Expression& a, const Expression& b) { return a.binary("add", b); }
inline Expression operator-(const Expression& a, const Expression& b) {
  return a.binary("subtract", b);
}
inline Expression operator*(const Expression& a, const Expression& b) {
  return a.binary("multiply", b);
}
inline Expression operator/(const Expression& a, const Expression& b) {
  return a.binary("divide", b);
}
inline Expression operator-(const Expression& a) { return a.unary("negate"); }
inline Expression operator<(const Expression& a, const Expression& b) { return a.compare("LT", b); }
inline Expression operator>(const Expression& a, const Expression& b) { return a.compare("GT", b); }
inline Expression operator+(const Expression& a, double b) { return a + a.like(b); }
inline Expression operator-(const Expression& a, double b) { return a - a.like(b); }
inline Expression operator*(const Expression& a, double b) { return a * a.like(b); }
inline Expression operator/(const Expression& a, double b) { return a / a.like(b); }
inline Expression operator+(double a, const Expression& b) { return b.like(a) + b; }
inline Expression operator-(double a, const Expression& b) { return b.like(a) - b; }
inline Expression operator*(double a, const Expression& b) { return b.like(a) * b; }
inline Expression operator/(double a, const Expression& b) { return b.like(a) / b; }
inline Expression operator<(const Expression& a, double b) { return a < a.like(b); }
inline Expression operator>(const Expression& a, double b) { return a > a.like(b); }

inline Expression exp(const Expression& x) { return x.unary("exponential"); }
inline Expression expm1(const Expression& x) { return x.unary("exponential_minus_one"); }
inline Expression log(const Expression& x) { return x.unary("log"); }
inline Expression log1p(const Expression& x) { return x.unary("log_plus_one"); }
inline Expression abs(const Expression& x) { return x.unary("abs"); }
inline Expression tanh(const Expression& x) { return x.unary("tanh"); }
inline Expression sqrt(const Expression& x) { return x.unary("sqrt"); }
inline Expression sigmoid(const Expression& x) { return x.unary("logistic"); }
inline Expression square(const Expression& x) { return x * x; }
// log(1 + exp(x)) without overflow.
inline Expression softplus(const Expression& x) {
  return x.binary("maximum", x.like(0.0)) + log1p(exp(-abs(x)));
}

}  // namespace tandem::stablehlo
