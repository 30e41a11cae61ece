// Simulates hosts and cables with network namespaces.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "support/files.h"
#include "support/processes.h"
#include "support/waiting.h"

namespace tandem::testing {

// Moves this process to host 0 permanently. Host 0 has a switch, to which every other host is
// connected. The hosts end with their processes. connected() is false if the system does not permit
// this or has no `ip`.
class Hosts {
 public:
  explicit Hosts(int count = 2) {
    if (!enter_namespace()) return;
    connected_ =
        run("ip link set lo up") && run("ip link add switch type bridge forward_delay 0") &&
        run("ip address add " + address(0) + "/24 dev switch") && run("ip link set switch up");
    for (int host = 1; host < count; ++host) connected_ = connected_ && add(host);
  }

  bool connected() const { return connected_; }
  static std::string address(int host) { return "10.77.0." + std::to_string(host + 1); }
  // Moves the calling process to a host.
  void enter(int host) const {
    if (host == 0) return;
    const std::string path = network_of(host);
    const int network = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (setns(network, CLONE_NEWNET) != 0) throw std::runtime_error("cannot enter the host");
    close(network);
  }
  // Disconnects a host other than the first without any error: packets are lost.
  bool cut(int host) const { return run("ip link set " + cable(host) + " down"); }
  bool plug_in(int host) const { return run("ip link set " + cable(host) + " up"); }
  // Writes a script that is called like ssh, with a host's address and a command. Each host has its
  // own temporary directory, beside the script.
  void write_remote_shell(const std::filesystem::path& path) const {
    const std::string folder = path.parent_path().string();
    std::string text = "#!/bin/sh\naddress=$1; shift\nexport TMPDIR=" + folder +
                       "/$address; mkdir -p $TMPDIR\n"
                       // Daemons of one folder would race to make its subfolders.
                       "command=$(echo \"$*\" | sed \"s|tmpdir_base \\\"[^\\\"]*\\\"|"
                       "tmpdir_base $TMPDIR|\")\ncase $address in\n";
    for (int host = 0; host <= static_cast<int>(others_.size()); ++host) {
      const std::string enter = host == 0 ? "" : "nsenter --net=" + network_of(host) + " ";
      text += address(host) + ") exec " + enter + "sh -c \"$command\" ;;\n";
    }
    write_file(path, text + "esac\n");
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }

 private:
  static bool run(const std::string& command) {
    return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
  }
  static std::string cable(int host) { return "cable" + std::to_string(host); }
  std::string network_of(int host) const {
    const pid_t process = others_[static_cast<std::size_t>(host - 1)]->id();
    return "/proc/" + std::to_string(process) + "/ns/net";
  }
  static bool same_network(const std::string& other) {
    std::error_code error;
    return std::filesystem::equivalent("/proc/self/ns/net", other, error);
  }
  static bool enter_namespace() {
    const uid_t user = geteuid();
    const gid_t group = getegid();
    // permitted for root; for others, as root of a user namespace
    if (unshare(CLONE_NEWNET) == 0) return true;
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return false;
    write_file("/proc/self/setgroups", "deny");
    write_file("/proc/self/uid_map", "0 " + std::to_string(user) + " 1");
    write_file("/proc/self/gid_map", "0 " + std::to_string(group) + " 1");
    return true;
  }

  bool add(int host) {
    others_.push_back(std::make_unique<ChildProcess>([] {
      if (unshare(CLONE_NEWNET) == 0) pause();
      return "";
    }));
    const std::string network = network_of(host);
    // The host exists once its namespace differs from this one.
    eventually([&] { return !same_network(network); });
    const auto there = [&](const std::string& command) {
      return run("nsenter --net=" + network + " " + command);
    };
    return there("ip link set lo up") &&
           run("ip link add " + cable(host) + " type veth peer name eth netns " +
               std::to_string(others_.back()->id())) &&
           run("ip link set " + cable(host) + " master switch up") &&
           there("ip address add " + address(host) + "/24 dev eth") && there("ip link set eth up");
  }

  std::vector<std::unique_ptr<ChildProcess>> others_;
  bool connected_ = false;
};

}  // namespace tandem::testing
