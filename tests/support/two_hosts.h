// Two hosts with a cable between them, as network namespaces.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "support/files.h"
#include "support/processes.h"

namespace tandem::testing {

// This process moves to the first host, for good; both go when the processes on them end. Where the
// system does not allow it, or has no `ip`, connected() is false.
class TwoHosts {
 public:
  static constexpr const char* kFirst = "10.77.0.1";
  static constexpr const char* kSecond = "10.77.0.2";

  TwoHosts() {
    if (!enter_namespace()) return;
    second_ = std::make_unique<ChildProcess>([] {
      if (unshare(CLONE_NEWNET) == 0) pause();
      return "";
    });
    const std::string process = std::to_string(second_->id());
    // The second host is there when it is another than this one.
    for (int i = 0; i < 2000 && same_network(second_->id()); ++i) usleep(1000);
    const auto there = [&](const std::string& command) {
      return run("nsenter --net=/proc/" + process + "/ns/net " + command);
    };
    connected_ = run("ip link set lo up") && there("ip link set lo up") &&
                 run("ip link add cable0 type veth peer name cable1 netns " + process) &&
                 run(std::string("ip address add ") + kFirst + "/24 dev cable0") &&
                 there(std::string("ip address add ") + kSecond + "/24 dev cable1") &&
                 run("ip link set cable0 up") && there("ip link set cable1 up");
  }

  bool connected() const { return connected_; }
  // Moves the calling process to the second host.
  void enter_second() const {
    const std::string path = "/proc/" + std::to_string(second_->id()) + "/ns/net";
    const int network = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (setns(network, CLONE_NEWNET) != 0) throw std::runtime_error("cannot enter the host");
    close(network);
  }
  // Nobody is told: what is sent does not arrive.
  bool cut() const { return run("ip link set cable0 down"); }

 private:
  static bool run(const std::string& command) {
    return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
  }
  static bool same_network(pid_t process) {
    std::error_code error;
    return std::filesystem::equivalent("/proc/self/ns/net",
                                       "/proc/" + std::to_string(process) + "/ns/net", error);
  }
  static bool enter_namespace() {
    const uid_t user = geteuid();
    const gid_t group = getegid();
    if (unshare(CLONE_NEWNET) == 0) return true;  // root may; others, as root of a namespace
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return false;
    write_file("/proc/self/setgroups", "deny");
    write_file("/proc/self/uid_map", "0 " + std::to_string(user) + " 1");
    write_file("/proc/self/gid_map", "0 " + std::to_string(group) + " 1");
    return true;
  }

  std::unique_ptr<ChildProcess> second_;
  bool connected_ = false;
};

}  // namespace tandem::testing
