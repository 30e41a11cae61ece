// PyTorch user: tensor work: top-k, gather, sorting, masking.
#include <iostream>
#include <tandem/tandem.h>
namespace td = tandem;

int main() {
  td::manual_seed(0);
  auto logits = td::randn({4, 6});
  auto probs = td::softmax(logits, -1);
  auto [values, indices] = td::topk(probs, 2, -1);
  std::cout << values << "\n" << indices << "\n";
  auto [sorted, order] = probs.sort(1, /*descending=*/true);
  auto target = td::tensor({0, 2, 1, 5}, td::kLong);
  auto picked = probs.gather(1, target.unsqueeze(1)).squeeze(1);
  std::cout << "nll " << -picked.log().mean().item<float>() << "\n";
  auto [maxv, maxi] = probs.max(1);
  auto correct = (maxi == target).sum().item<int64_t>();
  std::cout << correct << " right of " << target.numel() << "\n";

  auto masked = logits.masked_fill(logits < 0, 0.0);
  auto w = td::where(logits > 0, logits, td::zeros_like(logits));
  std::cout << td::equal(masked, w) << " " << td::allclose(masked, w.clamp(0.0)) << "\n";
  auto cum = probs.cumsum(1);
  std::cout << cum.select(1, -1) << "\n";
  auto eye = td::eye(3);
  auto a = td::tril(td::ones({3, 3}));
  std::cout << a.mm(eye).flip({0}) << "\n" << td::einsum("ij,kj->ik", {a, eye}) << "\n";
  auto chunks = logits.chunk(2, 1);
  auto back = td::cat({chunks[0], chunks[1]}, 1);
  std::cout << chunks[0].sizes() << " " << back.norm().item<float>() << " " << logits.std().item<float>() << "\n";
  auto u = td::tensor({{1.0, 2.0}, {3.0, 4.0}});
  std::cout << u.t() << u.mean(0) << u.argmax().item<int64_t>() << "\n";
}
