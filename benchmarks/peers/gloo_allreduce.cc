// Gloo's own all-reduce (the ring), measured as allreduce.cc is.
//
//     gloo_allreduce [--ranks 2] [--seconds 0.5] [--bytes N]
//     link --mbit 1000 gloo_allreduce --store FOLDER    (one rank, where RANK is set)
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "peers/allreduce_loop.h"

namespace {

void run_rank(int rank, int ranks, const std::string& folder, int argc, char** argv) {
  gloo::transport::tcp::attr address("127.0.0.1");
  if (const char* interface = std::getenv("GLOO_SOCKET_IFNAME")) {
    address.hostname.clear();
    address.iface = interface;
  }
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  gloo::rendezvous::FileStore store(folder);
  auto device = gloo::transport::tcp::CreateDevice(address);
  context->connectFullMesh(store, device);
  measure_all_reduce(
      {.name = "gloo_allreduce",
       .rank = rank,
       .ranks = ranks,
       .all_reduce =
           [&](float* data, std::size_t count) {
             gloo::AllreduceOptions options(context);
             options.setOutput(data, count);
             options.setReduceFunction([](void* to, const void* a, const void* b, std::size_t n) {
               gloo::sum<float>(to, a, b, n);
             });
             gloo::allreduce(options);
           },
       .barrier =
           [&] {
             gloo::BarrierOptions options(context);
             gloo::barrier(options);
           },
       .from_rank_0 =
           [&](int value) {
             gloo::BroadcastOptions options(context);
             options.setOutput(&value, 1);
             options.setRoot(0);
             gloo::broadcast(options);
             return value;
           }},
      argc, argv);
}

}  // namespace

int main(int argc, char** argv) {
  if (const char* rank = std::getenv("RANK")) {
    std::string store;
    for (int i = 1; i + 1 < argc; ++i)
      if (std::string(argv[i]) == "--store") store = argv[i + 1];
    run_rank(std::atoi(rank), std::atoi(std::getenv("WORLD_SIZE")), store, argc, argv);
    return 0;
  }
  const int ranks = static_cast<int>(option_of(argc, argv, "--ranks", 2));
  const auto folder =
      std::filesystem::temp_directory_path() / ("gloo_allreduce." + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  for (int rank = 0; rank < ranks; ++rank) {
    if (fork() != 0) continue;
    run_rank(rank, ranks, folder.string(), argc, argv);
    return 0;
  }
  int worst = 0;
  for (int status = 0; wait(&status) > 0;) worst = std::max(worst, status);
  std::filesystem::remove_all(folder);
  return worst == 0 ? 0 : 1;
}
