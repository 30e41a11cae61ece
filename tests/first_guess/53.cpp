// Plain C++: regression from a CSV-like table, std containers, errors, threads.
#include <tandem/tandem.h>
#include <array>
#include <iostream>
#include <map>
#include <span>
#include <string>
#include <vector>
namespace td = tandem;

struct Row { double a, b, target; };

td::Tensor to_tensor(const std::vector<Row>& rows) {
  std::vector<float> flat;
  for (const auto& r : rows) { flat.push_back(r.a); flat.push_back(r.b); }
  return td::Tensor(flat, {(int)rows.size(), 2});
}

int main() {
  std::vector<Row> rows;
  for (int i = 0; i < 64; ++i) rows.push_back({i * 0.1, i * 0.2, i * 0.5 + 1});
  td::Tensor x = to_tensor(rows);
  std::vector<float> t(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) t[i] = rows[i].target;
  td::Tensor y = td::constant(t).reshape({-1, 1});
  td::Tensor mean = x.mean(0), stddev = x.std(0);
  x = (x - mean) / (stddev + 1e-6f);

  td::Sequential model{td::layers::Dense(16, "relu"), td::layers::Dense(1)};
  model.compile("adam", "mse");
  td::History history = model.fit(x, y, {.epochs = 20, .verbose = 0});
  std::vector<double> losses = history["loss"];
  std::cout << losses.front() << " -> " << losses.back() << "\n";

  float prediction = model.predict(td::constant({{0.5f, 0.5f}})).item<float>();
  std::cout << prediction << "\n";
  std::array<float, 4> arr{1, 2, 3, 4};
  td::Tensor m = td::constant(arr).reshape({2, 2});
  std::span<const float> view = m.span<float>();
  for (float f : view) std::cout << f << ' ';
  for (int i = 0; i < m.shape()[0]; ++i)
    for (int j = 0; j < m.shape()[1]; ++j) std::cout << m[i][j].item<float>() << (j == 1 ? '\n' : ' ');
  std::map<std::string, td::Tensor> params;
  for (const td::Variable& v : model.variables()) params[v.name()] = v;
  td::save("params.safetensors", params);
  auto back = td::load("params.safetensors");
  try {
    auto bad = td::matmul(td::zeros({2, 3}), td::zeros({2, 3}));
  } catch (const td::ShapeError& e) {
    std::cerr << "shape: " << e.what() << "\n";
  } catch (const td::Error& e) {
    std::cerr << e.what() << "\n";
  } catch (const std::exception& e) {
    std::cerr << e.what() << "\n";
  }
  td::Tensor s = m + m * 2 - 1;
  s += 1;
  if (s.sum().item<float>() > 0 && s.shape() == td::Shape{2, 2}) std::cout << "ok " << s.to_string() << "\n";
  td::Tensor inv = td::linalg::inverse(m);
  std::vector<td::Tensor> list{m, s};
  auto stacked = td::stack(list);
  std::cout << stacked.ndim() << " " << stacked.nbytes() << " " << inv << "\n";
  double total = 0;
  for (const auto& r : m.to_vector<float>()) total += r;
  std::cout << total << " " << double(m.sum()) << " " << float(m.mean()) << "\n";
}
