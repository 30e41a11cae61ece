// PyTorch: own autograd function with saved tensors, gradcheck, jacobian and hessian, a hook.
#include <iostream>
#include <tandem/tandem.h>
namespace td = tandem;
using td::autograd::AutogradContext;
using td::autograd::Function;
using td::autograd::variable_list;

class LeakyClamp : public Function<LeakyClamp> {
 public:
  static td::Tensor forward(AutogradContext* ctx, td::Tensor x, double slope) {
    ctx->save_for_backward({x});
    ctx->saved_data["slope"] = slope;
    return td::where(x > 0.0, x, x * slope);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grad_outputs) {
    auto saved = ctx->get_saved_variables();
    auto x = saved[0];
    double slope = ctx->saved_data["slope"].toDouble();
    auto g = grad_outputs[0];
    return {td::where(x > 0.0, g, g * slope), td::Tensor()};
  }
};

int main() {
  auto x = td::tensor({-1.0, 2.0, -3.0, 4.0}, td::requires_grad());
  auto y = LeakyClamp::apply(x, 0.1).sum();
  y.backward();
  std::cout << x.grad() << "\n";

  auto w = td::randn({3, 3}, td::requires_grad(true));
  auto hook = w.register_hook([](td::Tensor g) { return g * 2.0; });
  auto loss = td::matmul(w, w).sum();
  auto grads = td::autograd::grad({loss}, {w}, {}, /*retain_graph=*/true, /*create_graph=*/true);
  std::cout << grads[0].sizes() << "\n";
  loss.backward();
  std::cout << w.grad().norm().item<float>() << "\n";
  w.grad().zero_();

  auto f = [](const td::Tensor& v) { return td::pow(v, 3); };
  auto J = td::autograd::functional::jacobian(f, td::tensor({1.0, 2.0, 3.0}));
  std::cout << J << "\n";
  auto H = td::autograd::functional::hessian([](const td::Tensor& v) { return v.pow(3).sum(); }, td::tensor({1.0, 2.0}));
  std::cout << H << "\n";
  bool ok = td::autograd::gradcheck([](const td::Tensor& v) { return td::tanh(v) * v; }, td::rand({4}, td::kDouble).requires_grad_());
  auto frozen = w.detach();
  {
    td::NoGradGuard no_grad;
    auto z = w * 2;
    std::cout << std::boolalpha << z.requires_grad() << frozen.requires_grad() << "\n";
  }
  return ok ? 0 : 1;
}
