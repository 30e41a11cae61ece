// Reductions, and operations that rearrange, join, cut and index tensors.
#include "operation_cases.h"

namespace bench {
namespace {

using Reduction = td::Tensor (*)(const td::Tensor&, const td::ReduceOptions&);

void add_reduction(CaseList& list, const std::string& name, const std::string& all,
                   const std::string& axis, Reduction call, Values values = Values::kSigned) {
  const bool backward = values != Values::kBool;
  const auto add = [&](const char* suffix, const std::string& torch, const td::Axes& axes) {
    list.add({.name = name + suffix,
              .torch = torch,
              .inputs = {{kMatrix, values}},
              .call = [=](const Arguments& in) { return call(in[0], {.axis = axes}); },
              .backward = backward,
              .dtypes = backward});
  };
  const auto along = [&](const char* number) {
    std::string torch = axis;
    return torch.replace(torch.find('@'), 1, number);
  };
  add("", all, {});
  add("_rows", along("1"), {1});
  add("_columns", along("0"), {0});
}

td::Tensor chained(const std::vector<td::Tensor>& parts) { return parts.back(); }

const Shapes kImages = {td::Shape{2, 8, 8, 16}, td::Shape{16, 32, 32, 16},
                        td::Shape{32, 64, 64, 64}};

void add_joins(CaseList& list) {
  for (const int axis : {0, 1}) {
    const std::string number = std::to_string(axis);
    list.add({.name = "concat_axis" + number,
              .torch = "torch.cat((a, b, c), " + number + ")",
              .inputs = {{kMatrix}, {kMatrix}, {kMatrix}},
              .call = [axis](const Arguments& in) { return td::concat(in.inputs, axis); }});
    list.add({.name = "stack_axis" + number,
              .torch = "torch.stack((a, b, c), " + number + ")",
              .inputs = {{kMatrix}, {kMatrix}, {kMatrix}},
              .call = [axis](const Arguments& in) { return td::stack(in.inputs, axis); }});
  }
  // PyTorch's parts are views: contiguous copies are what both compute.
  list.matrix("split", "[part.contiguous() for part in torch.split(a, a.shape[1] // 4, 1)][-1]",
              [](const Arguments& in) { return chained(td::split(in[0], 4, {.axis = 1})); });
  list.add({.name = "unstack",
            .torch = "[part.contiguous() for part in torch.unbind(a, 1)][-1]",
            .inputs = {{{td::Shape{64, 4, 16}, td::Shape{512, 4, 128}, td::Shape{4096, 4, 512}}}},
            .call = [](const Arguments& in) { return chained(td::unstack(in[0], 1)); }});
}

void add_layouts(CaseList& list) {
  list.matrix("transpose", "a.t().contiguous()",
              [](const Arguments& in) { return td::transpose(in[0]); });
  list.add({.name = "transpose_images",
            .torch = "a.permute(0, 3, 1, 2).contiguous()",
            .inputs = {{kImages}},
            .call = [](const Arguments& in) {
              return td::transpose(in[0], {0, 3, 1, 2});
            }});
  list.add({.name = "transpose_heads",
            .torch = "a.permute(0, 2, 1, 3).contiguous()",
            .inputs = {{{td::Shape{2, 32, 4, 16}, td::Shape{8, 128, 4, 64},
                         td::Shape{16, 512, 12, 64}}}},
            .call = [](const Arguments& in) {
              return td::transpose(in[0], {0, 2, 1, 3});
            }});
  list.add({.name = "broadcast_rows",
            .torch = "a.expand(4 * a.shape[1], a.shape[1]).contiguous()",
            .inputs = {{{td::Shape{1, 32}, td::Shape{1, 256}, td::Shape{1, 1448}}}},
            .call = [](const Arguments& in) {
              return td::broadcast_to(in[0], {4 * in[0].dim(1), in[0].dim(1)});
            }});
  list.matrix("tile", "a.repeat(2, 2)", [](const Arguments& in) {
    return td::tile(in[0], {2, 2});
  });
  list.matrix("reverse", "a.flip(1)", [](const Arguments& in) { return td::reverse(in[0], {1}); });
  list.matrix("pad", "torch.nn.functional.pad(a, (1, 2, 3, 4))", [](const Arguments& in) {
    return td::pad(in[0], {{3, 4}, {1, 2}});
  });
  list.matrix("slice", "a[:, 8:40].contiguous()", [](const Arguments& in) {
    return td::slice(in[0], {0, 8}, {-1, 32});
  });
  list.matrix("slice_half", "a[:, :a.shape[1] // 2].contiguous()", [](const Arguments& in) {
    return td::slice(in[0], {0, 0}, {-1, in[0].dim(1) / 2});
  });
}

void add_indexing(CaseList& list) {
  const Shapes table = {td::Shape{1000, 64}, td::Shape{10'000, 256}, td::Shape{50'000, 256}};
  const Input rows = {{td::Shape{64}, td::Shape{4096}, td::Shape{16'384}},
                      Values::kClasses,
                      Layout::kPlain,
                      {1000, 10'000, 50'000}};
  list.add({.name = "gather",
            .torch = "torch.index_select(a, 0, b)",
            .inputs = {{table}, rows},
            .call = [](const Arguments& in) { return td::gather(in[0], in[1]); }});
  list.add({.name = "gather_columns",
            .torch = "torch.index_select(a, 1, b)",
            .inputs = {{kMatrix},
                       {{td::Shape{32}, td::Shape{256}, td::Shape{1024}},
                        Values::kClasses,
                        Layout::kPlain,
                        {64, 512, 2048}}},
            .call = [](const Arguments& in) { return td::gather(in[0], in[1], 1); }});
  list.add({.name = "scatter",
            .torch = "torch.scatter(a, 1, b, c)",
            .inputs = {{kMatrix},
                       {kMatrix, Values::kClasses, Layout::kPlain, {64, 512, 2048}},
                       {kMatrix}},
            .call = [](const Arguments& in) { return td::scatter(in[0], 1, in[1], in[2]); }});
  list.add({.name = "embedding_lookup",
            .torch = "F.embedding(b, a)",
            .inputs = {{table}, rows},
            .call = [](const Arguments& in) { return td::nn::embedding_lookup(in[0], in[1]); }});
  list.add(
      {.name = "one_hot",
       .torch = "F.one_hot(a, 512).to(dtype)",
       .inputs = {{{td::Shape{64}, td::Shape{1024}, td::Shape{16'384}},
                   Values::kClasses,
                   Layout::kPlain,
                   {512, 512, 512}}},
       .call = [](const Arguments& in) { return td::one_hot(in[0], 512, {.dtype = in.dtype}); },
       .backward = false});
  list.add({.name = "shuffle",
            .torch = "a[torch.randperm(a.shape[0])]",
            .inputs = {{kMatrix}},
            .call = [](const Arguments& in) { return td::random::shuffle(in[0]); },
            .backward = false,
            .random = true});
}

}  // namespace

void add_reduction_cases(CaseList list) {
  add_reduction(list, "reduce_sum", "a.sum()", "a.sum(@)", td::reduce_sum);
  add_reduction(list, "reduce_mean", "a.mean()", "a.mean(@)", td::reduce_mean);
  add_reduction(list, "reduce_prod", "a.prod()", "a.prod(@)", td::reduce_prod, Values::kNearOne);
  add_reduction(list, "reduce_max", "a.amax()", "a.amax(@)", td::reduce_max);
  add_reduction(list, "reduce_min", "a.amin()", "a.amin(@)", td::reduce_min);
  add_reduction(list, "reduce_any", "a.any()", "a.any(@)", td::reduce_any, Values::kBool);
  add_reduction(list, "reduce_all", "a.all()", "a.all(@)", td::reduce_all, Values::kBool);
  add_reduction(list, "reduce_variance", "a.var(unbiased=False)", "a.var(@, unbiased=False)",
                td::reduce_variance);
  add_reduction(list, "reduce_std", "a.std(unbiased=False)", "a.std(@, unbiased=False)",
                td::reduce_std);
  add_reduction(list, "reduce_logsumexp", "torch.logsumexp(a, (0, 1))", "torch.logsumexp(a, @)",
                td::reduce_logsumexp);
  add_reduction(list, "norm", "torch.linalg.vector_norm(a)", "torch.linalg.vector_norm(a, dim=@)",
                td::norm);
  for (const int axis : {0, 1}) {
    const std::string suffix = axis == 0 ? "_columns" : "_rows", number = std::to_string(axis);
    list.matrix(("argmax" + suffix).c_str(), ("torch.argmax(a, " + number + ")").c_str(),
                [axis](const Arguments& in) { return td::argmax(in[0], axis); }, false);
    list.matrix(("argmin" + suffix).c_str(), ("torch.argmin(a, " + number + ")").c_str(),
                [axis](const Arguments& in) { return td::argmin(in[0], axis); }, false);
    list.matrix(("argsort" + suffix).c_str(),
                ("torch.argsort(a, " + number + ", stable=True)").c_str(),
                [axis](const Arguments& in) { return td::argsort(in[0], axis); }, false);
    list.matrix(("cumsum" + suffix).c_str(), ("torch.cumsum(a, " + number + ")").c_str(),
                [axis](const Arguments& in) { return td::cumsum(in[0], axis); });
  }
  list.add(
      {.name = "global_norm",
       .torch = "torch.linalg.vector_norm(torch.stack(torch._foreach_norm([a, b, c]))).float()",
       .inputs = {{kMatrix}, {kMatrix}, {kMatrix}},
       .call = [](const Arguments& in) { return td::global_norm(in.inputs); },
       .backward = false});
  list.matrix("clip_by_norm", "a * torch.clamp(1.0 / torch.linalg.vector_norm(a), max=1.0)",
              [](const Arguments& in) { return td::clip_by_norm(in[0], 1.0); });
}

void add_array_cases(CaseList list) {
  add_joins(list);
  add_layouts(list);
  add_indexing(list);
}

}  // namespace bench
