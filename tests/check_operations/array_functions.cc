// Functions that sort, describe, join, cut, turn and overwrite tensors, and further arithmetic.
#include <tandem/elementary.h>
#include <tandem/functional.h>
#include <tandem/names.h>
#include <tandem/rearrange.h>
#include <tandem/scatter.h>
#include <tandem/special.h>
#include <tandem/statistics.h>

#include <utility>

#include "operations.h"

namespace check_operations {
namespace {

using td::Tensor;
using Table = std::map<std::string, Operation>;
using Numbers = std::vector<std::int64_t>;

template <class Function>
Operation call(Function f) {
  return [f](const Call& c) -> Tensors { return {f(c)}; };
}
// A function of all tensors that returns several.
template <class Function>
Operation several(Function f) {
  return [f](const Call& c) -> Tensors { return f(c); };
}
Operation unary(Tensor (*f)(const Tensor&)) {
  return call([f](const Call& c) { return f(c.x[0]); });
}
Operation binary(Tensor (*f)(const Tensor&, const Tensor&)) {
  return call([f](const Call& c) { return f(c.x[0], c.x[1]); });
}
Operation reduction(Tensor (*f)(const Tensor&, const td::ReduceOptions&)) {
  return call([f](const Call& c) { return f(c.x[0], reduce_options(c)); });
}
Operation of_all(Tensor (*f)(td::TensorList)) {
  return call([f](const Call& c) { return f(c.x); });
}
using AddedProduct = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, double, double);
Operation added(AddedProduct f) {
  return call([f](const Call& c) {
    return f(c.x[0], c.x[1], c.x[2], c.number("beta"), c.number("alpha"));
  });
}

Numbers numbers(const Call& c, const char* name) { return c.attributes.at(name).get<Numbers>(); }

Table arithmetic() {
  return {
      {"is_inf", unary(td::is_inf)},
      {"isposinf", unary(td::isposinf)},
      {"isneginf", unary(td::isneginf)},
      {"log2", unary(td::log2)},
      {"log10", unary(td::log10)},
      {"tan", unary(td::tan)},
      {"deg2rad", unary(td::deg2rad)},
      {"rad2deg", unary(td::rad2deg)},
      {"signbit", unary(td::signbit)},
      {"entr", unary(td::entr)},
      {"fmax", binary(td::fmax)},
      {"fmin", binary(td::fmin)},
      {"copysign", binary(td::copysign)},
      {"heaviside", binary(td::heaviside)},
      {"ldexp", binary(td::ldexp)},
      {"float_power", binary(td::float_power)},
      {"xlog1py", binary(td::xlog1py)},
      {"inner", binary(td::inner)},
      {"outer", binary(td::outer)},
      {"vecdot", call([](const Call& c) { return td::reduce_sum(c.x[0] * c.x[1], -1); })},
      {"round_decimals",
       call([](const Call& c) { return td::round(c.x[0], c.integer("decimals")); })},
      {"addmm", added(td::addmm)},
      {"addmv", added(td::addmv)},
      {"addr", added(td::addr)},
      {"baddbmm", added(td::baddbmm)},
      {"addbmm", added(td::addbmm)},
      {"multi_dot", call([](const Call& c) {
         Tensor product = c.x[0];
         for (std::size_t i = 1; i < c.x.size(); ++i) product = td::matmul(product, c.x[i]);
         return product;
       })},
      {"cast_softmax", call([](const Call& c) {
         return td::nn::softmax(td::cast(c.x[0], c.dtype().dtype), c.integer("axis"));
       })},
      {"cast_log_softmax", call([](const Call& c) {
         return td::nn::log_softmax(td::cast(c.x[0], c.dtype().dtype), c.integer("axis"));
       })},
      {"cast_softmin", call([](const Call& c) {
         return td::nn::softmax(-td::cast(c.x[0], c.dtype().dtype), c.integer("axis"));
       })},
      {"F.normalize", call([](const Call& c) {
         return td::nn::functional::normalize(c.x[0], c.number("p"), c.integer("dim"),
                                              c.number("eps"));
       })},
      {"full_like", call([](const Call& c) { return td::full_like(c.x[0], c.number("value")); })},
      {"logspace", call([](const Call& c) {
         return td::pow(c.number("base"), td::linspace(c.number("start"), c.number("stop"),
                                                       c.integer("count"), c.dtype()));
       })},
      {"tril_indices", call([](const Call& c) {
         return td::tril_indices(c.integer("rows"), c.integer("columns"), c.integer("offset"));
       })},
      {"triu_indices", call([](const Call& c) {
         return td::triu_indices(c.integer("rows"), c.integer("columns"), c.integer("offset"));
       })},
  };
}

// One that is of all elements unless there is an axis; the values alone.
template <class All, class Along>
Operation order_statistic(All all, Along along) {
  return call([=](const Call& c) {
    return c.has("dim") ? along(c.x[0], c.integer("dim"), c.flag("keepdim")).values : all(c.x[0]);
  });
}

template <class OfTensor, class OfNumber>
Operation quantile(OfTensor of_tensor, OfNumber of_number) {
  return call([=](const Call& c) {
    const std::string how = c.text("how");
    td::QuantileOptions options{.keepdims = c.flag("keepdim"), .interpolation = how};
    if (c.has("dim")) options.axis = c.integer("dim");
    return c.has("q") ? of_number(c.x[0], c.number("q"), options)
                      : of_tensor(c.x[0], c.x[1], options);
  });
}

template <class AtPoints, class Apart>
Operation integral(AtPoints at_points, Apart apart) {
  return call([=](const Call& c) {
    return c.x.size() > 1 ? at_points(c.x[0], c.x[1], c.integer("dim"))
                          : apart(c.x[0], c.number("dx"), c.integer("dim"));
  });
}

Table statistics() {
  using X = const Tensor&;
  using Options = const td::QuantileOptions&;
  const auto along = [](auto f) {
    return [f](X x, std::int64_t axis, bool keepdims) { return f(x, axis, keepdims); };
  };
  return {
      {"sort", several([](const Call& c) -> Tensors {
         const auto found = td::sort(c.x[0], c.integer("dim"), c.flag("descending"));
         return {found.values, found.indices};
       })},
      {"sorted", call([](const Call& c) { return td::sort(c.x[0], c.integer("dim")).values; })},
      {"argsort", call([](const Call& c) {
         return td::argsort(c.x[0], c.integer("dim"), c.flag("descending"));
       })},
      {"topk", call([](const Call& c) {
         return td::topk(c.x[0], c.integer("k"), c.integer("dim"), c.flag("largest")).values;
       })},
      {"kthvalue", call([](const Call& c) {
         return td::kthvalue(c.x[0], c.integer("k"), c.integer("dim"), c.flag("keepdim")).values;
       })},
      {"median", order_statistic([](X x) { return td::median(x); },
                                 along([](X x, auto... args) { return td::median(x, args...); }))},
      {"nanmedian",
       order_statistic([](X x) { return td::nanmedian(x); },
                       along([](X x, auto... args) { return td::nanmedian(x, args...); }))},
      {"mode", order_statistic([](X x) { return x; },
                               along([](X x, auto... args) { return td::mode(x, args...); }))},
      {"quantile", quantile([](X x, X q, Options o) { return td::quantile(x, q, o); },
                            [](X x, double q, Options o) { return td::quantile(x, q, o); })},
      {"nanquantile", quantile([](X x, X q, Options o) { return td::nanquantile(x, q, o); },
                               [](X x, double q, Options o) { return td::nanquantile(x, q, o); })},
      {"nansum", reduction(td::nansum)},
      {"nanmean", reduction(td::nanmean)},
      {"count_nonzero", reduction(td::count_nonzero)},
      {"aminmax", several([](const Call& c) -> Tensors {
         return {td::reduce_min(c.x[0], reduce_options(c)),
                 td::reduce_max(c.x[0], reduce_options(c))};
       })},
      {"norm_of_order", call([](const Call& c) { return td::norm(c.x[0], c.number("p")); })},
      {"dist", call([](const Call& c) { return td::dist(c.x[0], c.x[1], c.number("p")); })},
      {"renorm", call([](const Call& c) {
         return td::renorm(c.x[0], c.number("p"), c.integer("dim"), c.number("most"));
       })},
      {"cov", call([](const Call& c) { return td::cov(c.x[0], c.integer("correction")); })},
      {"corrcoef", unary(td::corrcoef)},
      {"trapezoid",
       integral([](X y, X x, std::int64_t axis) { return td::trapezoid(y, x, axis); },
                [](X y, double dx, std::int64_t axis) { return td::trapezoid(y, dx, axis); })},
      {"cumulative_trapezoid",
       integral([](X y, X x, std::int64_t axis) { return td::cumulative_trapezoid(y, x, axis); },
                [](X y, double dx, std::int64_t axis) {
                  return td::cumulative_trapezoid(y, dx, axis);
                })},
      {"isin", binary(td::isin)},
      {"histc", call([](const Call& c) {
         return td::histc(c.x[0], c.integer("bins"), c.number("low"), c.number("high"));
       })},
      {"vander", call([](const Call& c) {
         return c.has("columns") ? td::vander(c.x[0], c.integer("columns"), true)
                                 : td::vander(c.x[0], std::nullopt, true);
       })},
      {"bincount", call([](const Call& c) {
         return td::cast(td::bincount(c.x[0], c.integer("least")), td::int64);
       })},
      {"unique", call([](const Call& c) {
         return td::sort(td::unique(td::reshape(c.x[0], {-1})).y).values;
       })},
      {"nonzero", unary(td::nonzero)},
  };
}

Table rearranging() {
  return {
      {"hstack", of_all(td::hstack)},
      {"vstack", of_all(td::vstack)},
      {"dstack", of_all(td::dstack)},
      {"column_stack", of_all(td::column_stack)},
      {"block_diag", of_all(td::block_diag)},
      {"cartesian_prod", of_all(td::cartesian_prod)},
      {"tensor_split", several([](const Call& c) {
         return c.has("parts")
                    ? td::tensor_split(c.x[0], c.integer("parts"), c.integer("axis"))
                    : td::tensor_split(c.x[0], numbers(c, "positions"), c.integer("axis"));
       })},
      {"unfold", call([](const Call& c) {
         return td::unfold(c.x[0], c.integer("axis"), c.integer("size"), c.integer("step"));
       })},
      {"rot90", call([](const Call& c) {
         return td::rot90(c.x[0], c.integer("times"), c.integer("first"), c.integer("second"));
       })},
      {"tril", call([](const Call& c) { return td::tril(c.x[0], c.integer("diagonal")); })},
      {"triu", call([](const Call& c) { return td::triu(c.x[0], c.integer("diagonal")); })},
      {"trace", unary(td::trace)},
      {"diag_embed_flat", call([](const Call& c) {
         return td::diag_embed(td::reshape(c.x[0], {-1}), c.integer("offset"));
       })},
      {"diagonal", call([](const Call& c) {
         return c.x[0].diagonal(c.integer("offset"), c.integer("first"), c.integer("second"));
       })},
      {"diagonal_scatter", call([](const Call& c) {
         return td::diagonal_scatter(c.x[0], c.x[1], c.integer("offset"));
       })},
      {"select_scatter", call([](const Call& c) {
         return td::select_scatter(c.x[0], c.x[1], c.integer("axis"), c.integer("index"));
       })},
      {"slice_scatter", call([](const Call& c) {
         return td::slice_scatter(c.x[0], c.x[1], c.integer("axis"),
                                  index(c.attributes.at("range")).slice());
       })},
      {"roll", call([](const Call& c) {
         const Numbers shifts = numbers(c, "shifts"), axes = numbers(c, "dims");
         if (axes.empty())
           return td::reshape(td::roll(td::reshape(c.x[0], {-1}), shifts[0], 0), c.x[0].shape());
         Tensor x = c.x[0];
         for (std::size_t i = 0; i < axes.size(); ++i) x = td::roll(x, shifts[i], axes[i]);
         return x;
       })},
      {"combinations", call([](const Call& c) {
         return td::combinations(c.x[0], c.integer("count"), c.flag("repeated"));
       })},
      {"broadcast_all", several([](const Call& c) {
         Tensors all;
         for (const Tensor& x : c.x) all.push_back(td::broadcast_to(x, c.shape()));
         return all;
       })},
      {"meshgrid", several([](const Call& c) { return td::meshgrid(c.x, c.text("indexing")); })},
      {"boolean_mask", binary(td::boolean_mask)},
  };
}

Table positions() {
  return {
      {"gather_elements",
       call([](const Call& c) { return td::gather(c.x[0], c.integer("axis"), c.x[1]); })},
      {"take_along_axis",
       call([](const Call& c) { return td::take_along_axis(c.x[0], c.x[1], c.integer("axis")); })},
      {"take", binary(td::take)},
      {"scatter", call([](const Call& c) {
         return c.has("value") ? td::scatter(c.x[0], c.integer("axis"), c.x[1], c.number("value"))
                               : td::scatter(c.x[0], c.integer("axis"), c.x[1], c.x[2]);
       })},
      {"scatter_add", call([](const Call& c) {
         return td::scatter_add(c.x[0], c.integer("axis"), c.x[1], c.x[2]);
       })},
      {"index_copy", call([](const Call& c) {
         return td::index_copy(c.x[0], c.integer("axis"), c.x[1], c.x[2]);
       })},
      {"scatter_reduce", call([](const Call& c) {
         return td::scatter_reduce(c.x[0], c.integer("axis"), c.x[1], c.x[2], c.text("reduce"),
                                   c.flag("include_self"));
       })},
      {"index_reduce", call([](const Call& c) {
         return td::index_reduce(c.x[0], c.integer("axis"), c.x[1], c.x[2], c.text("reduce"),
                                 c.flag("include_self"));
       })},
      {"index_fill", call([](const Call& c) {
         return td::index_fill(c.x[0], c.integer("axis"), c.x[1], c.number("value"));
       })},
  };
}

Table special_functions() {
  return {
      {"asin", unary(td::asin)},
      {"acos", unary(td::acos)},
      {"atan", unary(td::atan)},
      {"atan2", binary(td::atan2)},
      {"erfinv", unary(td::erfinv)},
      {"lgamma", unary(td::lgamma)},
      {"digamma", unary(td::digamma)},
      {"polygamma", call([](const Call& c) { return td::polygamma(c.integer("n"), c.x[0]); })},
      {"mvlgamma", call([](const Call& c) { return td::mvlgamma(c.x[0], c.integer("p")); })},
  };
}

using Window = Tensor (*)(std::int64_t, const td::windows::WindowOptions&);
td::windows::WindowOptions window_options(const Call& c) {
  return {.sym = c.flag("sym"), .dtype = c.dtype().dtype};
}
Operation window(Window f) {
  return call([f](const Call& c) { return f(c.integer("size"), window_options(c)); });
}
// One with a number.
using WindowOf = Tensor (*)(std::int64_t, double, const td::windows::WindowOptions&);
Operation window(WindowOf f) {
  return call(
      [f](const Call& c) { return f(c.integer("size"), c.number("number"), window_options(c)); });
}

Table window_functions() {
  return {
      {"bartlett", window(td::windows::bartlett)},
      {"blackman", window(td::windows::blackman)},
      {"cosine", window(td::windows::cosine)},
      {"exponential", window(td::windows::exponential)},
      {"gaussian", window(td::windows::gaussian)},
      {"general_hamming", window(td::windows::general_hamming)},
      {"hamming", window(td::windows::hamming)},
      {"hann", window(td::windows::hann)},
      {"kaiser", window(td::windows::kaiser)},
      {"nuttall", window(td::windows::nuttall)},
      {"general_cosine", call([](const Call& c) {
         return td::windows::general_cosine(
             c.integer("size"), c.attributes.at("a").get<std::vector<double>>(), window_options(c));
       })},
  };
}

}  // namespace

Table array_functions() {
  Table joined = arithmetic();
  for (Table part :
       {statistics(), rearranging(), positions(), special_functions(), window_functions()})
    joined.merge(part);
  return joined;
}

}  // namespace check_operations
