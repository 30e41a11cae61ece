// ./08_process_groups spawns its own ranks; started by the launcher or by torchrun --no-python it takes RANK and
// WORLD_SIZE instead:
//   tandem run -n 4 -- ./08_process_groups
#include <iostream>
#include <tandem/tandem.h>
namespace td = tandem;
namespace comm = tandem::comm;

void exchange(int, int) {
  comm::init_process_group({.timeout = std::chrono::seconds(30)});   // env://, and the fastest backend that there is
  const int rank = comm::get_rank(), size = comm::get_world_size();
  td::Tensor mine = td::constant({static_cast<float>(rank), 1.0F});

  comm::Work work = comm::all_reduce_async(mine);                 // runs while this rank does something else
  std::vector<td::Tensor> all = comm::all_gather(mine);
  td::Tensor sum = work.result();                                 // a new tensor: mine is as it was
  td::Tensor first = comm::broadcast(mine, /*source=*/0);

  // Around the ring: to the next rank, from the one before.
  comm::Work sent = comm::send_async(mine, (rank + 1) % size);
  td::Tensor received = comm::recv({2}, (rank + size - 1) % size);
  sent.wait();

  std::vector<std::string> names = comm::all_gather_object("rank " + std::to_string(rank));
  if (rank == 0) {
    std::cout << "sum " << sum << '\n';                           // of 2 ranks: [1. 2.]
    std::cout << all.size() << " tensors, the last is " << all.back() << '\n';   // 2 tensors, the last is [1. 1.]
    std::cout << "of rank 0 " << first << ", of the rank before " << received << '\n';   // [0. 1.] and [1. 1.]
    for (const std::string& name : names) std::cout << name << '\n';
  }
  comm::destroy_process_group();
}

int main() {
  if (std::getenv("RANK")) exchange(std::atoi(std::getenv("RANK")), std::atoi(std::getenv("WORLD_SIZE")));
  else td::parallel::spawn(exchange, {.nprocs = 2});
}
