// Two virtual GPUs on one physical GPU, one of which runs out of memory.
#include <iostream>
#include <tandem/tandem.h>
#include <vector>
namespace td = tandem;

int main() {
  td::config::set_emulated_gpus(1, 256);
  const auto gpu = td::config::list_physical_devices("GPU").at(0);
  td::config::set_logical_device_configuration(gpu, {{.memory_limit = 128}, {.memory_limit = 128}});

  const td::Tensor neighbour = [] {
    td::DeviceScope on("/gpu:1");
    return td::ones({16, 1024, 1024});  // 64 MiB
  }();
  td::DeviceScope on("/gpu:0");
  try {
    td::Tensor all = td::zeros({129, 256, 1024});  // 129 MiB at once
    std::cout << "129 MiB fitted in 128\n";
  } catch (const td::ResourceExhaustedError& e) {
    std::cout << "at once: " << e.what() << '\n';
  }
  {
    std::vector<td::Tensor> pieces;
    try {
      while (true) pieces.push_back(td::ones({256, 1024}));  // 1 MiB each
    } catch (const td::ResourceExhaustedError& e) {
      std::cout << "after " << pieces.size() << " MiB: " << e.what() << '\n';
    }
    td::DeviceScope there("/gpu:1");
    std::cout << "neighbour: " << td::reduce_sum(neighbour).item<float>() << ' '
              << (td::config::get_memory_info("GPU:1").current >> 20) << '\n';
  }
  td::Tensor again = td::ones({64, 256, 1024});  // the pieces have been freed
  std::cout << "after freeing: " << td::reduce_sum(again).item<float>() << ' '
            << (td::config::get_memory_info("GPU:0").current >> 20) << '\n';
}
