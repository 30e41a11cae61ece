// Runs a command on two hosts that a link of limited speed joins. The hosts are network namespaces.
// The commands share this program's standard output and error.
//
//     link [--mbit 1000] [--delay-us 0] COMMAND [ARGUMENTS]
//
// `delay-us` is the delay in one direction. Each host has one core. The commands find RANK,
// WORLD_SIZE, MASTER_ADDR, MASTER_PORT, TANDEM_JOB_TOKEN and GLOO_SOCKET_IFNAME in the environment.
//
// Without a delay the link is a veth pair whose ends send through a token bucket. With one it is a
// TUN device on each host, and a thread for each direction that passes packets on when they are
// due: a kernel need not have netem.
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kPacketBytes = 9000;

void check(bool good, const char* call) {
  if (!good) throw std::runtime_error(std::string(call) + ": " + std::strerror(errno));
}

std::string address_of(int host) { return "10.78.0." + std::to_string(host + 1); }

void configure(const std::string& command) {
  if (std::system(command.c_str()) != 0) throw std::runtime_error(command + " failed");
}

// In the network namespace of this process.
int make_tun() {
  const int end = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
  check(end >= 0, "/dev/net/tun");
  ifreq request{};
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  std::strcpy(request.ifr_name, "link0");
  check(ioctl(end, TUNSETIFF, &request) == 0, "TUNSETIFF");
  return end;
}

struct Packet {
  Clock::time_point due;
  std::vector<char> bytes;
};

// Forwards packets from one end to the other, after the link's transmission time and delay.
void relay(int from, int to, double bytes_per_second, std::chrono::microseconds delay,
           const std::atomic<bool>& ends) {
  prctl(PR_SET_TIMERSLACK, 1000);
  std::deque<Packet> under_way;
  std::vector<char> buffer(kPacketBytes + 1);
  auto link_is_free = Clock::now();
  while (!ends.load(std::memory_order_relaxed)) {
    auto wait = std::chrono::nanoseconds(std::chrono::milliseconds(100));
    if (!under_way.empty())
      wait =
          std::max(std::chrono::nanoseconds(0),
                   std::min(wait, std::chrono::nanoseconds(under_way.front().due - Clock::now())));
    const timespec limit{0, static_cast<long>(wait.count())};
    pollfd readable{from, POLLIN, 0};
    ppoll(&readable, 1, &limit, nullptr);
    for (ssize_t size; (size = read(from, buffer.data(), buffer.size())) > 0;) {
      const auto takes = std::chrono::duration_cast<Clock::duration>(
          std::chrono::duration<double>(static_cast<double>(size) / bytes_per_second));
      link_is_free = std::max(link_is_free, Clock::now()) + takes;
      under_way.push_back({link_is_free + delay, {buffer.data(), buffer.data() + size}});
    }
    for (; !under_way.empty() && under_way.front().due <= Clock::now(); under_way.pop_front())
      if (write(to, under_way.front().bytes.data(), under_way.front().bytes.size()) < 0 &&
          errno == EAGAIN)
        break;
  }
}

// Forks a process that runs the command once `ready` can be read from.
pid_t start(int host, int ready, char** command) {
  const pid_t child = fork();
  check(child >= 0, "fork");
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  cpu_set_t core;
  CPU_ZERO(&core);
  CPU_SET(static_cast<unsigned>(host) % std::thread::hardware_concurrency(), &core);
  sched_setaffinity(0, sizeof(core), &core);
  const std::pair<const char*, std::string> variables[] = {
      {"RANK", std::to_string(host)},
      {"WORLD_SIZE", "2"},
      {"LOCAL_RANK", "0"},
      {"LOCAL_WORLD_SIZE", "1"},
      {"MASTER_ADDR", address_of(0)},
      {"MASTER_PORT", "29400"},
      {"GLOO_SOCKET_IFNAME", "link0"},
      {"TANDEM_JOB_TOKEN", "that of a benchmark"}};
  for (const auto& [name, value] : variables) setenv(name, value.c_str(), 1);
  char go = 0;
  if (read(ready, &go, 1) != 1) _exit(1);
  execvp(command[0], command);
  std::fprintf(stderr, "link: %s: %s\n", command[0], std::strerror(errno));
  _exit(127);
}

void set_up(pid_t rank, int host, const std::string& settings) {
  const std::string there = "nsenter --net=/proc/" + std::to_string(rank) + "/ns/net ";
  configure(there + "ip link set lo up");
  configure(there + "ip address add " + address_of(host) + "/24 dev link0");
  configure(there + "ip link set link0 " + settings + " up");
}

int run(double mbit, std::chrono::microseconds delay, char** command) {
  const bool relays = delay.count() > 0;
  int ready[2], ends[2] = {-1, -1};
  check(pipe2(ready, O_CLOEXEC) == 0, "pipe");
  pid_t ranks[2];
  for (int host = 0; host < 2; ++host) {
    check(unshare(CLONE_NEWNET) == 0, "unshare");
    if (relays) ends[host] = make_tun();
    ranks[host] = start(host, ready[0], command);
  }
  if (!relays)
    configure("ip link add link0 type veth peer name link0 netns " + std::to_string(ranks[0]));
  for (int host = 0; host < 2; ++host) {
    set_up(ranks[host], host,
           relays ? "mtu " + std::to_string(kPacketBytes) + " txqueuelen 10000" : "");
    if (!relays)
      configure("nsenter --net=/proc/" + std::to_string(ranks[host]) +
                "/ns/net tc qdisc add dev link0 root tbf burst 256kb latency 50ms rate " +
                std::to_string(static_cast<long>(mbit)) + "mbit");
  }
  check(write(ready[1], "gg", 2) == 2, "write");
  std::atomic<bool> ended{false};
  std::vector<std::thread> relaying;
  for (int host = 0; relays && host < 2; ++host)
    relaying.emplace_back(
        [&, host] { relay(ends[host], ends[1 - host], mbit * 1e6 / 8, delay, ended); });
  int worst = 0;
  for (const pid_t rank : ranks) {
    int status = 0;
    waitpid(rank, &status, 0);
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  ended = true;
  for (std::thread& thread : relaying) thread.join();
  return worst;
}

}  // namespace

int main(int argc, char** argv) {
  double mbit = 1000;
  std::chrono::microseconds delay(0);
  int at = 1;
  for (; at + 1 < argc && argv[at][0] == '-'; at += 2) {
    const std::string key = argv[at];
    if (key == "--mbit") mbit = std::atof(argv[at + 1]);
    if (key == "--delay-us") delay = std::chrono::microseconds(std::atol(argv[at + 1]));
  }
  if (at >= argc) {
    std::fprintf(stderr, "link: expected a command\n");
    return 2;
  }
  try {
    return run(mbit, delay, argv + at);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "link: %s\n", error.what());
    return 1;
  }
}
