// Remote procedure calls over the loopback: through Tandem's interface and through bare gRPC, in
// turns.
//
//     rpc [--cycles 5] [--seconds 2] [--api unix]
//
// Tandem's server listens at a Unix socket with `--api unix`; bare gRPC's always uses TCP. The
// processor time is that of both processes.
//
// A push has a large request and a small reply, a pull a small request and a large reply. Bare gRPC
// is a generic stub, one ByteBuffer per message, and gRPC's defaults but for the largest message;
// it leaves what it received in gRPC's buffers, where Tandem copies it into aligned memory. Each
// call waits for the one before. The server is another process.
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "report.h"
#include "rpc/grpc/grpc_transport.h"

namespace {

using namespace tandem;
constexpr std::chrono::minutes kLimit{1};
constexpr std::size_t kLargest = std::size_t{25} << 20;

std::shared_ptr<std::vector<std::byte>> memory() {
  static const auto bytes = std::make_shared<std::vector<std::byte>>(kLargest, std::byte{7});
  return bytes;
}

rpc::Message message_of(std::size_t size) {
  return {"", {{memory(), std::span<const std::byte>(*memory()).first(size)}}};
}

grpc::ByteBuffer buffer_of(std::size_t size) {
  const grpc::Slice slice(memory()->data(), size, grpc::Slice::STATIC_SLICE);
  return grpc::ByteBuffer(&slice, 1);
}

// "/push" answers with nothing, "/pull/N" with N bytes.
class BareService final : public grpc::CallbackGenericService {
  class Reactor final : public grpc::ServerGenericBidiReactor {
   public:
    explicit Reactor(const std::string& method)
        : reply_(buffer_of(method == "/push" ? 0 : std::stoul(method.substr(6)))) {
      StartRead(&request_);
    }
    void OnReadDone(bool) override {
      StartWriteAndFinish(&reply_, grpc::WriteOptions(), grpc::Status::OK);
    }
    void OnDone() override { delete this; }

   private:
    grpc::ByteBuffer request_, reply_;
  };
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    return new Reactor(context->method());
  }
};

struct Ports {
  int bare = 0, ours = 0;
};

[[noreturn]] void serve(int result, const std::string& unix_path) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Ports ports;
  BareService service;
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(INT_MAX);
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &ports.bare);
  builder.RegisterCallbackGenericService(&service);
  const auto bare = builder.BuildAndStart();
  const auto ours = rpc::make_grpc_server({.unix_path = unix_path, .token = "of a benchmark"});
  ours->handle("push", [](const rpc::CallContext&, rpc::Message) { return rpc::Message{}; });
  ours->handle("pull", [](const rpc::CallContext&, const rpc::Message& request) {
    return message_of(std::stoul(request.header));
  });
  ours->start();
  ports.ours = ours->port();
  if (write(result, &ports, sizeof(ports)) != sizeof(ports)) _exit(1);
  while (true) pause();
}

void call_bare(grpc::GenericStub& stub, const std::string& method, std::size_t size,
               std::size_t expected) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kLimit);
  const grpc::ByteBuffer request = buffer_of(size);
  grpc::ByteBuffer reply;
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  grpc::Status result;
  stub.UnaryCall(&context, method, {}, &request, &reply, [&](grpc::Status status) {
    const std::lock_guard lock(mutex);
    result = std::move(status);
    done = true;
    changed.notify_one();
  });
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return done; });
  if (!result.ok() || reply.Length() != expected)
    throw std::runtime_error("bare gRPC: " + result.error_message());
}

double seconds_of(clockid_t clock) {
  timespec time = {};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Seconds of a call.
struct Cost {
  double time = 0, processor = 0;
};

Cost cost_of(double seconds, clockid_t server, const std::function<void()>& call) {
  long calls = 0;
  const auto processor = [&] { return seconds_of(CLOCK_PROCESS_CPUTIME_ID) + seconds_of(server); };
  const double before = processor();
  const double time = bench::time_for(seconds, 1, [&](int) {
    call();
    ++calls;
  });
  return {time / 1e3, (processor() - before) / static_cast<double>(calls)};
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void measure(const bench::BenchOptions& options, clockid_t server, const char* what,
             std::size_t size, const std::function<void()>& ours,
             const std::function<void()>& bare) {
  std::vector<double> our_times, bare_times, our_processor, bare_processor, ratios;
  for (int cycle = 0; cycle <= options.cycles; ++cycle) {
    const Cost our_cost = cost_of(options.seconds, server, ours);
    const Cost bare_cost = cost_of(options.seconds, server, bare);
    if (cycle == 0) continue;  // warms up
    our_times.push_back(our_cost.time);
    our_processor.push_back(our_cost.processor);
    bare_times.push_back(bare_cost.time);
    bare_processor.push_back(bare_cost.processor);
    ratios.push_back(bare_cost.time / our_cost.time);
  }
  const double mib = static_cast<double>(size) / (1 << 20);
  std::printf("%-5s %9zu  %8.1f %8.1f  %8.1f %8.1f  %8.0f %8.0f  %6.2f\n", what, size,
              median(our_times) * 1e6, median(bare_times) * 1e6, median(our_processor) * 1e6,
              median(bare_processor) * 1e6, mib / median(our_times), mib / median(bare_times),
              median(ratios));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const bench::BenchOptions options = bench::parse(argc, argv);
  int ends[2];
  if (pipe(ends) != 0) return 1;
  std::string folder = "/tmp/tandem-rpc-XXXXXX";
  if (options.api == "unix" && mkdtemp(folder.data()) == nullptr) return 1;
  const std::string unix_path = options.api == "unix" ? folder + "/server" : "";
  const pid_t server = fork();
  if (server == 0) serve(ends[1], unix_path);
  clockid_t clock = {};
  if (clock_getcpuclockid(server, &clock) != 0) return 1;
  Ports ports;
  if (read(ends[0], &ports, sizeof(ports)) != sizeof(ports)) return 1;

  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(INT_MAX);
  grpc::GenericStub stub(grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(ports.bare),
                                                   grpc::InsecureChannelCredentials(), arguments));
  const auto channel = rpc::make_grpc_channel({.host = "127.0.0.1",
                                               .port = static_cast<std::uint16_t>(ports.ours),
                                               .unix_path = unix_path,
                                               .task = "server",
                                               .caller = "client",
                                               .token = "of a benchmark"});
  std::printf("%-5s %9s  %8s %8s  %8s %8s  %8s %8s  %6s\n", "call", "bytes", "us", "bare us",
              "CPU us", "bare", "MiB/s", "bare", "ratio");
  for (const std::size_t size :
       {std::size_t{4} << 10, std::size_t{256} << 10, std::size_t{1} << 20, kLargest}) {
    measure(
        options, clock, "push", size,
        [&] { channel->call("push", message_of(size), {.limit = kLimit}); },
        [&] { call_bare(stub, "/push", size, 0); });
    const std::string count = std::to_string(size);
    measure(
        options, clock, "pull", size, [&] { channel->call("pull", {count}, {.limit = kLimit}); },
        [&] { call_bare(stub, "/pull/" + count, 0, size); });
  }
  kill(server, SIGKILL);
  waitpid(server, nullptr, 0);
  if (!unix_path.empty()) {
    unlink(unix_path.c_str());
    rmdir(folder.c_str());
  }
}
