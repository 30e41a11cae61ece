// The functions of linear algebra. Vectors whose signs differ between libraries are squared, or
// multiplied.
#include <tandem/linalg.h>

#include "operations.h"

namespace check_operations {
namespace {

namespace linalg = td::linalg;
using td::Tensor;

template <class Function>
Operation one(Function f) {
  return [f](const Call& c) -> Tensors { return {f(c)}; };
}
Operation one(Tensor (*f)(const Tensor&)) {
  return one([f](const Call& c) { return f(c.x[0]); });
}

Tensor norm_of(const Call& c) {
  if (!c.has("ord")) return linalg::matrix_norm(c.x[0], "fro", c.flag("keepdim"));
  if (c.text("ord") == "nuc") return linalg::matrix_norm(c.x[0], "nuc", c.flag("keepdim"));
  return linalg::matrix_norm(c.x[0], std::stod(c.text("ord")), c.flag("keepdim"));
}

}  // namespace

std::map<std::string, Operation> linear_algebra() {
  return {
      {"linalg.inv", one(linalg::inv)},
      {"linalg.det", one(linalg::det)},
      {"linalg.eigvalsh", one(linalg::eigvalsh)},
      {"linalg.svdvals", one(linalg::svdvals)},
      {"linalg.slogdet",
       [](const Call& c) -> Tensors {
         const auto [sign, logarithm] = linalg::slogdet(c.x[0]);
         return {sign, logarithm};
       }},
      {"linalg.qr",
       [](const Call& c) -> Tensors {
         const auto [q, r] = linalg::qr(c.x[0]);
         return {td::square(q), td::square(r)};
       }},
      {"linalg.svd", one([](const Call& c) {
         const auto [u, s, vh] = linalg::svd(c.x[0]);
         return td::matmul(u * td::expand_dims(td::square(s), -2), vh);
       })},
      {"linalg.eigh", one([](const Call& c) {
         const auto [values, vectors] = linalg::eigh(c.x[0]);
         return td::matmul(vectors * td::expand_dims(td::sin(values), -2), vectors,
                           {.transpose_b = true});
       })},
      {"linalg.cholesky",
       one([](const Call& c) { return linalg::cholesky(c.x[0], c.flag("upper")); })},
      {"cholesky_solve",
       one([](const Call& c) { return linalg::cholesky_solve(c.x[1], c.x[0], c.flag("upper")); })},
      {"linalg.solve",
       one([](const Call& c) { return linalg::solve(c.x[0], c.x[1], c.flag("left")); })},
      {"linalg.solve_triangular", one([](const Call& c) {
         return linalg::solve_triangular(c.x[0], c.x[1],
                                         {.upper = c.flag("upper"),
                                          .left = c.flag("left"),
                                          .unitriangular = c.flag("unitriangular")});
       })},
      {"linalg.pinv", one([](const Call& c) { return linalg::pinv(c.x[0], c.number("rtol")); })},
      {"linalg.lstsq", one([](const Call& c) { return linalg::lstsq(c.x[0], c.x[1]); })},
      {"linalg.matrix_rank",
       one([](const Call& c) { return linalg::matrix_rank(c.x[0], c.number("rtol")); })},
      {"linalg.matrix_norm", one(norm_of)},
      {"linalg.matrix_power",
       one([](const Call& c) { return linalg::matrix_power(c.x[0], c.integer("n")); })},
  };
}

}  // namespace check_operations
