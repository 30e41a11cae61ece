#include "comm/gloo/module/mesh.h"

#include <gloo/common/logging.h>
#include <gloo/transport/tcp/device.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>

#include "comm/gloo/module/address.h"
#include "comm/gloo/module/line.h"
#include "comm/gloo/module/sigpipe.h"
#include "comm/host_identity.h"
#include "core/env.h"
#include "core/log.h"
#include "core/status.h"

namespace tandem::gloo_backend {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kAMoment(1);
// The membership hears of a death about when connections break; of a peer that only left this
// group, never.
constexpr milliseconds kWordOfMembership(1000);

// One for each address, with its thread, which all groups of the process share.
std::shared_ptr<gloo::transport::Device> device_at(const GlooOptions& options) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<gloo::transport::Device>> devices;
  const std::lock_guard lock(mutex);
  auto& known = devices[options.interface + "/" + options.address];
  if (auto device = known.lock()) return device;
  gloo::transport::tcp::attr attributes;
  attributes.iface = options.interface;
  attributes.hostname = options.address;
  try {
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    known = device;
    return device;
  } catch (const std::exception& error) {
    fail<InvalidArgumentError>(
        "[gloo] cannot listen on {} '{}': {}", options.interface.empty() ? "address" : "interface",
        options.interface.empty() ? options.address : options.interface, error.what());
  }
}

std::string name_of_host() {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  return name;
}

}  // namespace

Mesh::Mesh(GlooOptions options) : options_(std::move(options)) {
  const NoSigpipe quiet;
  choose_address();
  listen();
  std::string addresses;
  for (int peer = 0; peer < size(); ++peer) {
    const auto bytes =
        peer == rank() ? std::vector<char>(1) : context_->createPair(peer)->address().bytes();
    addresses += fmt::format("{} ", bytes.size());
    addresses.append(bytes.begin(), bytes.end());
  }
  const auto values = collect("at", fmt::format("{} {} {}", name_of_host(), getpid(), addresses));
  for (const std::string& value : values) {
    const std::size_t host = value.find(' '), pid = value.find(' ', host + 1);
    if (pid == std::string::npos)
      fail<DataLossError>("[gloo] the store holds no address of a rank of group '{}'",
                          options_.name);
    peers_.push_back(
        {value.substr(0, host), std::atoll(value.c_str() + host), value.substr(pid + 1)});
  }
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank()) connect(peers_[static_cast<std::size_t>(peer)], peer);
  greet();
  // Every rank has greeted, so that none looks for these any more.
  options_.store->remove(key("at", rank()));
  options_.store->remove(key("host", rank()));
  const auto here = std::count_if(peers_.begin(), peers_.end(), [&](const Peer& peer) {
    return peer.host == peers_[static_cast<std::size_t>(rank())].host;
  });
  crowded_ = 2 * here > sysconf(_SC_NPROCESSORS_ONLN);
}

Mesh::~Mesh() {
  const NoSigpipe quiet;
  // Whoever is the last to leave leaves nothing in the store.
  try {
    options_.store->set(key("left", rank()), "1");
    if (options_.store->add(key("gone"), 1) == size()) {
      for (int peer = 0; peer < size(); ++peer) options_.store->remove(key("left", peer));
      options_.store->remove(key("failure"));
      options_.store->remove(key("gone"));
    }
  } catch (const Error& error) {
    // The store went away with the rank that kept it: then peers learn of that.
    logging::debug("[gloo] no goodbye from group '{}': {}", options_.name, error.what());
  }
}

std::string Mesh::key(std::string_view what) const {
  return fmt::format("gloo/{}/{}", options_.name, what);
}

std::string Mesh::key(std::string_view what, int rank) const {
  return fmt::format("gloo/{}/{}/{}", options_.name, what, rank);
}

std::string Mesh::find(const std::string& key) const {
  try {
    return options_.store->get(key, Clock::now());
  } catch (const Error&) {
    return "";
  }
}

std::vector<std::string> Mesh::collect(std::string_view what, const std::string& mine) {
  options_.store->set(key(what, rank()), mine);
  const auto deadline = Clock::now() + options_.time_limit;
  std::vector<std::string> values;
  while (static_cast<int>(values.size()) < size()) {
    const std::string next = key(what, static_cast<int>(values.size()));
    try {
      // In short waits, between which the membership can tell that the peer will never come.
      values.push_back(
          options_.store->get(next, std::min(deadline, Clock::now() + milliseconds(100))));
      continue;
    } catch (const DeadlineExceededError&) {
      if (options_.membership && options_.membership->failed())
        options_.membership->throw_failure();
      if (Clock::now() < deadline) continue;
    }
    std::vector<int> missing, here;
    for (int peer = 0; peer < size(); ++peer)
      (find(key(what, peer)).empty() ? missing : here).push_back(peer);
    options_.store->remove(key(what, rank()));
    fail<DeadlineExceededError>("[gloo] {} did not join group '{}' within {} ms; {} {} waiting",
                                list_ranks(missing), options_.name, options_.time_limit.count(),
                                list_ranks(here), here.size() == 1 ? "is" : "are");
  }
  return values;
}

void Mesh::choose_address() {
  if (options_.interface.empty() && options_.address.empty())
    options_.interface = env_string("GLOO_SOCKET_IFNAME").value_or("");
  if (!options_.interface.empty() || !options_.address.empty()) return;
  const std::string mine = host_identity();
  const auto hosts = collect("host", mine);
  if (std::all_of(hosts.begin(), hosts.end(), [&](const auto& host) { return host == mine; })) {
    options_.address = "127.0.0.1";
    return;
  }
  options_.address = address_towards(options_.master);
  if (options_.address.empty()) options_.address = first_address();
  if (options_.address.empty())
    fail<UnavailableError>(
        "[gloo] the ranks of group '{}' are on several hosts, and this one ({}) has no network "
        "interface but loopback",
        options_.name, name_of_host());
}

void Mesh::listen() {
  device_ = device_at(options_);
  context_ = device_->createContext(rank(), size());
  context_->setTimeout(options_.time_limit);
}

void Mesh::connect(const Peer& peer, int to) {
  // The address that the peer made for this rank.
  std::string_view rest = peer.addresses;
  std::vector<char> address;
  for (int at = 0; at <= rank(); ++at) {
    const std::size_t blank = rest.find(' ');
    const std::size_t length =
        blank == std::string_view::npos
            ? rest.size()
            : static_cast<std::size_t>(std::atoll(std::string(rest.substr(0, blank)).c_str()));
    if (blank == std::string_view::npos || blank + 1 + length > rest.size())
      fail<DataLossError>("[gloo] the store holds no address of rank {} of group '{}'", to,
                          options_.name);
    address.assign(rest.begin() + static_cast<std::ptrdiff_t>(blank) + 1,
                   rest.begin() + static_cast<std::ptrdiff_t>(blank + 1 + length));
    rest.remove_prefix(blank + 1 + length);
  }
  try {
    context_->getPair(to)->connect(address);
  } catch (const std::exception& error) {
    fail<UnavailableError>("[gloo] rank {} cannot reach rank {} (pid {} on {}) of group '{}': {}",
                           rank(), to, peer.pid, peer.host, options_.name, error.what());
  }
}

// Tells that every connection leads to the rank that it should, and that every rank is there.
void Mesh::greet() {
  sentinels_.resize(static_cast<std::size_t>(size()));
  left_.resize(sentinels_.size());
  std::vector<int> mine(static_cast<std::size_t>(size()), rank()), theirs(mine.size(), -1);
  std::vector<Post> posts;
  Line line(*this);
  line.describe(fmt::format("joining group '{}'", options_.name));
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    const auto at = static_cast<std::size_t>(peer);
    // Before the greeting, which a peer may end right after.
    sentinels_[at] = context_->createUnboundBuffer(&nothing_, 1);
    try {
      sentinels_[at]->recv(peer, kSentinelSlot);
    } catch (const std::exception& error) {
      throw_broken(peer, line.description(), error.what());
    }
    posts.push_back(line.recv(peer, kGreetingSlot, &theirs[at], sizeof(int)));
    posts.push_back(line.send(peer, kGreetingSlot, &mine[at], sizeof(int)));
  }
  for (Post& post : posts) line.wait(post, options_.time_limit);
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    const auto at = static_cast<std::size_t>(peer);
    if (theirs[at] != peer)
      fail<UnavailableError>("[gloo] rank {} of group '{}' answers as rank {}", peer, options_.name,
                             theirs[at]);
  }
}

void Mesh::check_failure() const {
  const std::string failure = find(key("failure"));
  if (!failure.empty())
    throw_failure(static_cast<GroupFailure>(failure.front() - '0'), failure.substr(1));
}

void Mesh::throw_broken(int peer, const std::string& what, const std::string& reason) const {
  check_failure();
  const Peer& other = peers_[static_cast<std::size_t>(peer)];
  if (!find(key("left", peer)).empty())
    fail<AbortedError>("rank {} (pid {} on {}) has left the group; rank {} still waits for it: {}",
                       peer, other.pid, other.host, rank(), what);
  throw_first_failure();
  fail<AbortedError>(
      "the connection to rank {} (pid {} on {}) broke; rank {} was waiting for it: {} ({})", peer,
      other.pid, other.host, rank(), what, reason);
}

// Who went because another one had gone is not the cause; and rank 0, which carries the job's
// server, stays until that has told the others.
void Mesh::throw_first_failure() const {
  if (!options_.membership) return;
  const auto deadline = Clock::now() + kWordOfMembership;
  while (!options_.membership->failed() && Clock::now() < deadline)
    std::this_thread::sleep_for(kAMoment);
  if (options_.membership->failed()) options_.membership->throw_failure();
}

void Mesh::check_connections(int needed, const std::string& waiting_for) {
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank()) check_connection(peer, peer == needed, waiting_for);
}

// A wait that is called off before it begins still throws what the connection broke with.
void Mesh::check_connection(int peer, bool needed, const std::string& waiting_for) {
  const auto at = static_cast<std::size_t>(peer);
  if (left_[at] && !needed) return;
  std::string reason;
  sentinels_[at]->abortWaitRecv();
  try {
    sentinels_[at]->waitRecv(nullptr, kAMoment);
    return;
  } catch (const std::exception& error) {
    reason = error.what();
  }
  if (!needed && find(key("failure")).empty() && !find(key("left", peer)).empty())
    left_[at] = true;
  else
    throw_broken(peer, waiting_for, reason);
}

void Mesh::publish_failure(GroupFailure failure, const std::string& text) const {
  options_.store->set(
      key("failure"),
      fmt::format("{}{}", static_cast<char>('0' + static_cast<int>(failure)), text));
}

// Gloo closes all connections of a context when a wait runs out of time, and wakes those that wait,
// as no function of its interface does.
void Mesh::close() noexcept {
  try {
    const NoSigpipe quiet;
    char nothing = 0;
    context_->createUnboundBuffer(&nothing, 1)->waitRecv(nullptr, kAMoment);
  } catch (const std::exception&) {
    // As expected.
  }
}

}  // namespace tandem::gloo_backend
